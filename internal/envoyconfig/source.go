package envoyconfig

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// SourceConfig says what to serve.
type SourceConfig struct {
	// Path is a file or a directory, see [Read]. Required.
	Path    string
	Read    ReadOptions
	Options Options
	// Now is the clock that bounds revisions; nil means time.Now.
	Now func() time.Time
}

// Source reads rules from a configuration of envoyproxy/ratelimit. The newest
// modification time of its files, in ms, is the revision. Load must not be called by
// two goroutines at once. It holds no file and no goroutine.
type Source struct {
	cfg SourceConfig

	// The last load, returned again while names and contents are the same.
	set      rules.Set
	problems rules.Problems
	version  rules.Version
	modified time.Time
}

var _ rules.Source = (*Source)(nil)

// NewSource returns the Source of that path. It reads nothing yet.
func NewSource(cfg SourceConfig) *Source {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Source{cfg: cfg}
}

// Load reads the files, and imports them if a name or a content changed. Any fault
// refuses the whole new set, with file, line and column in the error. The problems are
// warnings: those of [Lint], and the lines whose meaning [Import] could not keep.
func (s *Source) Load(ctx context.Context) (rules.Set, rules.Problems, rules.Version, error) {
	if err := ctx.Err(); err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	modified, err := newest(s.cfg.Path)
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	in, err := load(s.cfg.Path)
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	content := in.digest()
	if content == s.version.Content && modified.Equal(s.modified) {
		return s.set, s.problems, s.version, nil
	}
	tree, err := in.parse(s.cfg.Read)
	if err != nil {
		return rules.Set{}, s.faults(err), rules.Version{}, fmt.Errorf("%s: %w", s.cfg.Path, err)
	}
	im, err := Import(tree, s.cfg.Options)
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, fmt.Errorf("%s: %w", s.cfg.Path, err)
	}
	s.set, s.problems, s.modified = im.Set, warnings(tree, im), modified
	s.version = rules.Version{Content: content, Revision: max(1, min(modified.UnixMilli(), s.cfg.Now().UnixMilli()))}
	return s.set, s.problems, s.version, nil
}

func (*Source) faults(err error) rules.Problems {
	var out rules.Problems
	if ps, ok := err.(Problems); ok { //nolint:errorlint // parse returns it bare
		for _, p := range ps {
			out = append(out, p.rule(false))
		}
	}
	return out
}

func warnings(t *Tree, im *Imported) rules.Problems {
	var out rules.Problems
	for _, p := range Lint(t) {
		out = append(out, p.rule(true))
	}
	for _, n := range im.Notes {
		if n.Verdict != Kept && n.Line > 0 && len(out) < maxProblems {
			p := Problem{Place: n.Place, Field: n.Text, Message: string(n.Verdict) + ": " + n.Why}.rule(true)
			p.Rule = n.Rule
			out = append(out, p)
		}
	}
	return out[:min(len(out), maxProblems)]
}

// digest names the files' names and contents.
func (in loaded) digest() string {
	sum := sha256.New()
	part := func(data []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(data)))
		_, _ = sum.Write(size[:]) // a hash never fails
		_, _ = sum.Write(data)
	}
	for _, f := range in.files {
		part([]byte(f.Name))
		part(f.Data)
	}
	for _, name := range in.skipped {
		part([]byte(name))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// newest returns the latest modification time of a path and, where it is a directory,
// of the files in it: its own tells that one was removed.
func newest(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	last := info.ModTime()
	if !info.IsDir() {
		return last, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return time.Time{}, err
	}
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(path, e.Name())); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last, nil
}
