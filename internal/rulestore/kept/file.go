package kept

import (
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
	// maxHead bounds its first line.
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
	Bytes int    `json:"bytes"`
	// WrittenMS is when, in Unix ms.
	WrittenMS int64 `json:"written_ms"`
}

// encode returns the file of a set.
func encode(source string, set rulestore.Set, at time.Time) ([]byte, error) {
	rows, err := wire.Encode(wire.RowsOf(set.Rules, set.Overrides, nil))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(rows)
	first, err := wire.Encode(head{
		Format: format, Source: source, Revision: set.Revision, Hash: set.Hash,
		Sum: hex.EncodeToString(sum[:]), Bytes: len(rows), WrittenMS: at.UnixMilli(),
	})
	if err != nil {
		return nil, err
	}
	if len(first)+len(rows) >= maxFile {
		return nil, fmt.Errorf("the set has %d bytes; at most %d are kept", len(rows), maxFile)
	}
	return append(append(first, '\n'), rows...), nil
}

// decode reads a file, or says why it is not used.
func decode(source string, file []byte) (rulestore.Set, time.Time, error) {
	none := func(format string, args ...any) (rulestore.Set, time.Time, error) {
		return rulestore.Set{}, time.Time{}, fmt.Errorf(format, args...)
	}
	first, rows, ok := bytes.Cut(file, []byte{'\n'})
	var h head
	if !ok || len(first) > maxHead || json.Unmarshal(first, &h) != nil {
		return none("it is no snapshot of rules, or was cut off")
	}
	sum := sha256.Sum256(rows)
	switch {
	case h.Format != format:
		return none("it has format %d, and this version reads %d", h.Format, format)
	case h.Source != source:
		return none("it is of %.200q, not of %.200q", h.Source, source)
	case len(rows) != h.Bytes || hex.EncodeToString(sum[:]) != h.Sum:
		return none("it is damaged: its content is not what was written")
	case h.Revision < 0:
		return none("its revision is %d", h.Revision)
	}
	var list wire.Rows
	if err := json.Unmarshal(rows, &list); err != nil {
		return none("its rows cannot be read: %w", err)
	}
	set := rulestore.Set{Revision: h.Revision, Hash: h.Hash}
	set.Rules, set.Overrides, _ = list.Records()
	set.Sort()
	if rulestore.Digest(set.Rules, set.Overrides) != h.Hash {
		return none("its rules do not have the hash that it says")
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
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return rulestore.Set{}, time.Time{}, err
	case len(text) > maxFile:
		return rulestore.Set{}, time.Time{}, fmt.Errorf("it is above %d bytes", maxFile)
	}
	return decode(source, text)
}

// temporary is how names of unfinished files end.
const temporary = ".tmp"

// replace puts content in the place of the file at a path, all of it or nothing,
// also where the machine loses its power.
func replace(path string, content []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*"+temporary) // with rights 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(content)
	if err == nil {
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
