package envoyconfig_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/envoyconfig"
	"github.com/tallygate/tallygate/rules"
)

func put(t *testing.T, dir, name, text string, modified time.Time) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, dir} {
		if err := os.Chtimes(p, modified, modified); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWatchedDirectoryKeepsLastGoodRules: any fault refuses all of the new files.
func TestWatchedDirectoryKeepsLastGoodRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	other := strings.Replace(one("{unit: day, requests_per_unit: 7}"), "domain: d", "domain: e", 1)
	put(t, dir, "a.yaml", one("{unit: day, requests_per_unit: 5}"), at)
	put(t, dir, "b.yaml", other, at)
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: envoyconfig.NewSource(envoyconfig.SourceConfig{Path: dir})})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if revision := w.Snapshot().Revision(); revision != at.UnixMilli() {
		t.Errorf("revision %d, want the newest modification time in ms, %d", revision, at.UnixMilli())
	}
	for _, step := range []struct {
		name, file, want string // want is part of the error
		limit            int64
	}{
		{"changed", one("{unit: day, requests_per_unit: 6}"), "", 6},
		{"REL-07 unknown key", one("{unit: day, requests_per_unt: 8}"), "a.yaml:4:29: requests_per_unt: unknown key", 6},
		{"REL-07 domain of another file", strings.Replace(one("{unit: day, requests_per_unit: 8}"), "domain: d", "domain: e", 1), `b.yaml:1:1: domain: "e" is in a.yaml:1:1 already`, 6},
		{"emptied by a write under way", "", "a.yaml:1:1: the file is empty", 6},
		{"good again", one("{unit: day, requests_per_unit: 9}"), "", 9},
	} {
		put(t, dir, "a.yaml", step.file, at) // the time does not move
		err := w.Reload(t.Context())
		if (err != nil) != (step.want != "") || err != nil && !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s: Reload: %v, want %q", step.name, err, step.want)
		}
		if lim, _ := w.Snapshot().Rule("d.a").Effective("k", at); lim.Capacity != step.limit {
			t.Errorf("%s: limit %d, want %d", step.name, lim.Capacity, step.limit)
		}
		if w.Snapshot().Rule("e.a") == nil {
			t.Errorf("%s: the other file's rule is gone", step.name)
		}
	}
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := w.Reload(t.Context()); err != nil || w.Snapshot().Rule("e.a") != nil {
		t.Errorf("after the file was removed its rule stays: %v", err)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := envoyconfig.NewSource(envoyconfig.SourceConfig{Path: dir, Now: func() time.Time { return time.UnixMilli(1_000) }})
	if _, _, _, err := src.Load(t.Context()); err == nil {
		t.Error("an empty directory is no error")
	}
	put(t, dir, "a.yaml", "domain: d\nunit: day\ndescriptors: [{key: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}]", time.Now())
	_, problems, first, err := src.Load(t.Context())
	if err != nil || first.Revision != 1_000 {
		t.Fatalf("revision %d, want none that is still to come: %v", first.Revision, err)
	}
	if text := problems.Error(); problems.Err() != nil || !strings.Contains(text, "a.yaml:2:1: nothing reads this key here") || !strings.Contains(text, "refuses alone") {
		t.Errorf("warnings: %v, want those of lint and import", problems)
	}
	if _, _, again, err := src.Load(t.Context()); err != nil || again != first {
		t.Errorf("unchanged: %v, was %v: %v", again, first, err)
	}
	put(t, dir, "a.yaml", "domain: [", time.Now())
	if _, problems, _, err := src.Load(t.Context()); err == nil || len(problems.Faults()) == 0 {
		t.Errorf("broken: %v, %v", problems, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := src.Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
