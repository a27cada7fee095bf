package yaml_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

// write puts a file in place with a modification time.
func write(t *testing.T, path, text string, modified time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	src := yaml.File(path)
	if _, _, _, err := src.Load(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}

	modified := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	write(t, path, one, modified)
	set, _, first, err := src.Load(t.Context())
	if err != nil || len(set.Rules) != 1 || first.Revision != modified.UnixMilli() {
		t.Fatalf("%d rules at revision %d: %v", len(set.Rules), first.Revision, err)
	}
	if _, _, again, err := src.Load(t.Context()); err != nil || again != first {
		t.Errorf("unchanged: version %v, was %v: %v", again, first, err)
	}

	// The same length at the same time: only the content tells.
	write(t, path, strings.Replace(one, "100", "101", 1), time.Now())
	_, _, _, _ = src.Load(t.Context())
	now, _ := os.Stat(path)
	write(t, path, strings.Replace(one, "100", "102", 1), now.ModTime())
	if set, _, _, err = src.Load(t.Context()); err != nil || set.Rules[0].Rate != 102 {
		t.Errorf("a change within a tick of the clock is missed: rate %d: %v", set.Rules[0].Rate, err)
	}

	write(t, path, "rules: [", modified.Add(time.Hour))
	var problems rules.Problems
	if _, _, _, err := src.Load(t.Context()); !errors.As(err, &problems) || !strings.HasPrefix(err.Error(), path+": 1:8: ") {
		t.Errorf("broken file: %v", err)
	}
	write(t, path, one, modified)
	if _, _, version, err := src.Load(t.Context()); err != nil || version != first {
		t.Errorf("mended: version %v, was %v: %v", version, first, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := src.Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestFileFromTheFuture: a time that is still to come orders nothing: pods that
// took it for a revision would ignore every change until then.
func TestFileFromTheFuture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	src := yaml.File(path)
	var last rules.Version
	for i, modified := range []time.Time{time.Now().Add(240 * time.Hour), time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)} {
		write(t, path, strings.Replace(one, "100", strconv.Itoa(101+i), 1), modified)
		_, _, version, err := src.Load(t.Context())
		if now := time.Now().UnixMilli(); err != nil || version.Revision > now || version.Revision < last.Revision {
			t.Errorf("revision %d after %d at %d: %v", version.Revision, last.Revision, now, err)
		}
		time.Sleep(2 * time.Millisecond)
		if _, _, again, err := src.Load(t.Context()); err != nil || again != version {
			t.Errorf("unchanged: version %v, was %v: %v", again, version, err)
		}
		last = version
	}
}

func TestFileRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{dir, pipe} {
		if _, _, _, err := yaml.File(path).Load(t.Context()); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}

func TestWatchedFileKeepsLastGoodRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	write(t, path, one, at)
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: yaml.File(path)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	revision := w.Snapshot().Revision()
	if revision != at.UnixMilli() {
		t.Errorf("revision %d, want the modification time in ms", revision)
	}
	for _, step := range []struct {
		name, file string
		fails      bool
		want       int64 // the rate in force
	}{
		{"changed", strings.Replace(one, "rate: 100", "rate: 120", 1), false, 120},
		{"REL-07 faulty rule", strings.Replace(one, "rate: 100", "rate: 0", 1), false, 120},
		{"REL-07 unknown algorithm", strings.Replace(one, "token_bucket", "foo", 1), false, 120},
		{"REL-07 no YAML", "rules: [", true, 120},
		{"emptied by a write under way", "", true, 120},
		{"good again", one, false, 100},
	} {
		write(t, path, step.file, at) // an older copy put in place: the time does not move
		if err := w.Reload(t.Context()); (err != nil) != step.fails {
			t.Errorf("%s: Reload: %v", step.name, err)
		}
		lim, _ := w.Snapshot().Rule("growth").Effective("k", at)
		if lim.Rate != step.want {
			t.Errorf("%s: rate %d, want %d", step.name, lim.Rate, step.want)
		}
		if next := w.Snapshot().Revision(); next < revision {
			t.Errorf("%s: revision went from %d to %d", step.name, revision, next)
		}
		revision = w.Snapshot().Revision()
	}
}
