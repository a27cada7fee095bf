package yaml

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the example file
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tallygate/tallygate/rules"
)

//go:embed example.yaml
var example string

// Example returns a commented rules file to start from.
func Example() []byte { return []byte(example) }

// Source reads rules from one file. See the package comment for what orders its
// versions. Load must not be called by two goroutines at once.
type Source struct {
	path string

	// The last load, returned again while the content is the same.
	set      rules.Set
	problems rules.Problems
	version  rules.Version
	modified time.Time
}

var _ rules.Source = (*Source)(nil)

// File returns the Source of that file. It reads nothing yet.
func File(path string) *Source { return &Source{path: path} }

// Load reads the file, and parses it if it changed: size and time alone do not
// tell, since copies keep times and clocks of file systems tick coarsely. An
// error means that there is no such file, it is not a regular file, or it is
// faulty as a whole; it then wraps the problems, which are returned too.
func (s *Source) Load(ctx context.Context) (rules.Set, rules.Problems, rules.Version, error) {
	if err := ctx.Err(); err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	if !info.Mode().IsRegular() { // reading a pipe would wait for a writer
		return rules.Set{}, nil, rules.Version{}, fmt.Errorf("%s: is not a regular file", s.path)
	}
	data, err := s.read()
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	sum := sha256.Sum256(data)
	content, modified := hex.EncodeToString(sum[:]), info.ModTime()
	if content != s.version.Content || !modified.Equal(s.modified) {
		set, problems, usable := parse(data)
		if !usable {
			return rules.Set{}, problems, rules.Version{}, fmt.Errorf("%s: %w", s.path, problems)
		}
		s.set, s.problems, s.modified = set, problems, modified
		s.version = rules.Version{Content: content, Revision: revision(modified)}
	}
	return s.set, s.problems, s.version, nil
}

func (s *Source) read() ([]byte, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
}

// revision is the modification time in ms, but none that is still to come: one
// that a wrong clock left behind would stand above every change until then, and
// buckets would go by it.
func revision(modified time.Time) int64 {
	return max(1, min(modified.UnixMilli(), time.Now().UnixMilli()))
}
