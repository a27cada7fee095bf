package kept

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

const (
	// format is the version of the file; another one is not read.
	format = 1
	// maxFile bounds what is read: as much as the feed may answer.
	maxFile = 256 << 20
	// maxHead bounds its first line, and is what is read and written at once.
	maxHead = 64 << 10
)

// head is the first line of the file; the rest are the rows.
type head struct {
	Format int `json:"tallygate_snapshot"`
	// Source is whose rules they are.
	Source   string `json:"source"`
	Revision int64  `json:"revision"`
	// Hash is rulestore.Digest of the rows, Sum the SHA-256 of the bytes after this
	// line, which are Bytes.
	Hash  string `json:"hash"`
	Sum   string `json:"sum"`
	Bytes int64  `json:"bytes"`
	// WrittenMS is when, in Unix ms.
	WrittenMS int64 `json:"written_ms"`
}

// content is what a set is told apart by.
type content struct {
	revision int64
	hash     string
}

func (h *head) content() content { return content{h.Revision, h.Hash} }

// open reads the head of a file and goes to its rows, or says why it is not used: what
// follows the head must be what was written.
func open(source string, file io.ReadSeeker) (head, error) {
	none := func(format string, args ...any) (head, error) { return head{}, fmt.Errorf(format, args...) }
	in := bufio.NewReaderSize(file, maxHead)
	first, err := in.ReadSlice('\n')
	var h head
	if err != nil || json.Unmarshal(first, &h) != nil {
		return none("it is no snapshot of rules, or was cut off")
	}
	after := int64(len(first))
	sum := sha256.New()
	size, err := io.Copy(sum, io.LimitReader(in, maxFile))
	switch {
	case err != nil:
		return head{}, err
	case h.Format != format:
		return none("it has format %d, and this version reads %d", h.Format, format)
	case h.Source != source:
		return none("it is of %.200q, not of %.200q", h.Source, source)
	case size != h.Bytes || hex.EncodeToString(sum.Sum(nil)) != h.Sum:
		return none("it is damaged: its content is not what was written")
	case h.Revision < 0:
		return none("its revision is %d", h.Revision)
	}
	_, err = file.Seek(after, io.SeekStart)
	return h, err
}

// rows reads the rows of an open file.
func rows(file io.Reader, to wire.Reader) error {
	if err := to.Read(json.NewDecoder(bufio.NewReaderSize(file, maxHead))); err != nil {
		return fmt.Errorf("its rows cannot be read: %w", err)
	}
	return nil
}

// decode reads a file, or says why it is not used.
func decode(source string, file io.ReadSeeker) (rulestore.Set, time.Time, error) {
	h, err := open(source, file)
	if err != nil {
		return rulestore.Set{}, time.Time{}, err
	}
	set := rulestore.Set{Revision: h.Revision, Hash: h.Hash}
	err = rows(file, wire.Reader{
		Rule:     func(r rulestore.Rule) error { set.Rules = append(set.Rules, r); return nil },
		Override: func(o rulestore.Override) error { set.Overrides = append(set.Overrides, o); return nil },
	})
	if err != nil {
		return rulestore.Set{}, time.Time{}, err
	}
	set.Sort()
	if rulestore.Digest(set.Rules, set.Overrides) != h.Hash {
		return rulestore.Set{}, time.Time{}, errors.New("its rules do not have the hash that it says")
	}
	return set, time.UnixMilli(h.WrittenMS), nil
}

// load reads the file of a path.
func load(path, source string) (rulestore.Set, time.Time, error) {
	file, err := os.Open(path)
	if err != nil {
		return rulestore.Set{}, time.Time{}, err
	}
	defer func() { _ = file.Close() }() // it was only read
	return decode(source, file)
}

// errOtherFile is what merge says of a file that is not the one before the changes.
var errOtherFile = errors.New("the file is not the one that was written last")

// merge hands on the rows of the file of a path as they are after changes. was is what
// the file must have.
func merge(path, source string, was content, changes rulestore.Changes, rule func(*rulestore.Rule), override func(*rulestore.Override)) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", errOtherFile, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	h, err := open(source, file)
	if err != nil || h.content() != was {
		return errors.Join(errOtherFile, err)
	}
	m := wire.NewMerger(changes, rule, override)
	err = rows(file, wire.Reader{
		Rule:     func(r rulestore.Rule) error { m.Rule(&r); return nil },
		Override: func(o rulestore.Override) error { m.Override(&o); return nil },
	})
	m.End()
	return err
}

// fill writes a file, whose rows each hands over in the order of rulestore.Set, and
// returns its head.
func fill(file *os.File, h head, each func(func(*rulestore.Rule), func(*rulestore.Override)) error) (head, error) {
	// The head stands before the rows and is known after them: it has room, as blanks.
	h.Format, h.Hash, h.Sum, h.Bytes = format, strings.Repeat("0", 2*sha256.Size), strings.Repeat("0", 2*sha256.Size), maxFile
	longest, err := json.Marshal(h)
	if err != nil {
		return h, err
	}
	room := append(bytes.Repeat([]byte{' '}, len(longest)), '\n')
	out := bufio.NewWriterSize(file, maxHead)
	sum := sha256.New()
	var size counter
	to := io.MultiWriter(out, sum, &size)
	_, err = out.Write(room)
	if err == nil {
		_, err = io.WriteString(to, "{")
	}
	w := wire.NewWriter(to)
	var digest rulestore.Sum
	err = errors.Join(err, each(
		func(r *rulestore.Rule) { digest = digest.Plus(r.Sum()); w.Rule(r) },
		func(o *rulestore.Override) { digest = digest.Plus(o.Sum()); w.Override(o) },
	), w.Close(), out.Flush())
	if err != nil {
		return h, err
	}
	h.Hash, h.Sum, h.Bytes = digest.String(), hex.EncodeToString(sum.Sum(nil)), int64(size)
	if h.Bytes >= maxFile {
		return h, fmt.Errorf("the set has %d bytes; at most %d are kept", h.Bytes, maxFile)
	}
	first, err := json.Marshal(h)
	if err == nil {
		copy(room, first)
		_, err = file.WriteAt(room, 0)
	}
	return h, err
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// temporary is how names of unfinished files end.
const temporary = ".tmp"

// replace puts what fill writes in the place of the file at a path, all of it or
// nothing, also where the machine loses its power.
func replace(path string, fill func(*os.File) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+temporary) // with rights 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err = fill(file); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// leftFor is how old an unfinished file is that nobody writes any more.
const leftFor = time.Minute

// tidy removes unfinished files that a killed process left.
func tidy(path string, now time.Time) {
	left, err := filepath.Glob(filepath.Join(escape(filepath.Dir(path)), "."+escape(filepath.Base(path))+".*"+temporary))
	if err != nil {
		return // the pattern is ours
	}
	for _, name := range left {
		if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > leftFor {
			_ = os.Remove(name) // it only takes room
		}
	}
}

// escape makes a name that matches only itself.
func escape(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// Identity is what a file says of whose rules it holds: a URL without user, password
// and query, or a digest of what is no URL.
func Identity(source string) string {
	u, err := url.Parse(source)
	if err != nil || u.Scheme == "" {
		sum := sha256.Sum256([]byte(source))
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	plain := url.URL{Scheme: u.Scheme, Opaque: u.Opaque, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return plain.String()
}
