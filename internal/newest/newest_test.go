package newest_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/newest"
)

// rig is a file, a clock and a log.
type rig struct {
	path string
	at   time.Time
	log  bytes.Buffer
	reads,
	changes int
}

// write replaces the file; each time its time of change is another.
func (r *rig) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(r.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.changes++
	at := time.Unix(1_800_000_000+int64(r.changes), 0)
	if err := os.Chtimes(r.path, at, at); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) (*rig, *newest.Value[string]) {
	t.Helper()
	r := &rig{path: filepath.Join(t.TempDir(), "f"), at: time.Unix(1_800_000_000, 0)}
	r.write(t, "one")
	v, err := newest.New(newest.Config[string]{
		Files: []string{r.path}, Now: func() time.Time { return r.at }, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Load: func() (string, error) {
			r.reads++
			text, err := os.ReadFile(r.path)
			if strings.HasPrefix(string(text), "bad") {
				return "", errors.New("it is bad")
			}
			return string(text), err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, v
}

func TestGet_takesWhatIsNew(t *testing.T) {
	t.Parallel()
	r, v := open(t)
	r.write(t, "two")
	if got := v.Get(); got != "one" {
		t.Errorf("got %q within the second", got)
	}
	r.at = r.at.Add(newest.Every)
	if got := v.Get(); got != "two" {
		t.Errorf("got %q a second later", got)
	}
	r.at = r.at.Add(time.Hour)
	for range 10 {
		v.Get()
	}
	if r.reads != 2 {
		t.Errorf("read %d times, want 2", r.reads)
	}
	// A clock that steps back keeps nothing in force.
	r.write(t, "six")
	r.at = r.at.Add(-2 * time.Hour)
	if got := v.Get(); got != "six" {
		t.Errorf("got %q after the clock stepped back", got)
	}
}

func TestGet_keepsTheLastGoodOne(t *testing.T) {
	t.Parallel()
	r, v := open(t)
	fault := func() {
		t.Helper()
		for range 5 {
			r.at = r.at.Add(newest.Every)
			if got := v.Get(); got != "one" {
				t.Errorf("got %q", got)
			}
		}
	}
	r.write(t, "bad")
	fault()
	if n := strings.Count(r.log.String(), "it is bad"); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	fault()
	r.write(t, "new")
	r.at = r.at.Add(newest.Every)
	if got := v.Get(); got != "new" {
		t.Errorf("got %q after it was good again", got)
	}
	r.write(t, "bad")
	r.at = r.at.Add(newest.Every)
	v.Get()
	if n := strings.Count(r.log.String(), "it is bad"); n != 2 {
		t.Errorf("a fault that comes again is logged %d times in all, want 2", n)
	}
}

func TestNew_refusesWhatDoesNotLoad(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func() (int, error){"faulty": func() (int, error) { return 0, errors.New("bad") }} {
		if _, err := newest.New(newest.Config[int]{Load: load}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := newest.New(newest.Config[int]{Files: []string{filepath.Join(t.TempDir(), "none")}, Load: func() (int, error) { return 1, nil }}); err == nil {
		t.Error("a file that is not there: no error")
	}
}
