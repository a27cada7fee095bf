package rules_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// source is a Source that a test changes.
type source struct {
	mu       sync.Mutex
	set      rules.Set
	problems rules.Problems
	version  rules.Version
	err      error
	loads    int
}

func (s *source) Load(context.Context) (rules.Set, rules.Problems, rules.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	return s.set, s.problems, s.version, s.err
}

// put changes what the source holds.
func (s *source) put(set rules.Set, revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set, s.version, s.err = set, rules.Version{Content: fmt.Sprint("v", s.loads, revision), Revision: revision}, nil
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func mustWatcher(t testing.TB, cfg rules.WatcherConfig) *rules.Watcher {
	t.Helper()
	w, err := rules.NewWatcher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func TestWatcherFollowsItsSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		src.put(mustSet(t, bucket("r", 1, 1)), 100)
		var changes []int64
		w := mustWatcher(t, rules.WatcherConfig{Source: src, OnChange: func(s *rules.Snapshot, _ rules.Problems) {
			changes = append(changes, s.Revision())
		}})
		if s := w.Snapshot(); s.Revision() != 0 || s.Domain("") != nil || len(s.Rules()) != 0 {
			t.Error("there is something before Start")
		}
		for range 2 { // the second does nothing
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.Snapshot(); got.Revision() != 100 || got.Rule("r") == nil {
			t.Errorf("after Start: revision %d", got.Revision())
		}

		src.put(mustSet(t, bucket("r", 2, 2)), 50)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if got := w.Snapshot().Revision(); got != 100 {
			t.Errorf("revision %d before a second passed", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := w.Snapshot().Revision(); got != 101 {
			t.Errorf("revision %d after the change, want 101: it never goes back", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if fmt.Sprint(changes) != "[100 101]" || src.loads != 62 {
			t.Errorf("changes %v in %d loads, want [100 101] in 62", changes, src.loads)
		}

		src.put(mustSet(t, bucket("r", 3, 3)), 3000)
		if err := w.Reload(t.Context()); err != nil || w.Snapshot().Revision() != 3000 {
			t.Errorf("Reload: %v, revision %d", err, w.Snapshot().Revision())
		}
	})
}

// Whether its rule is in force is said of a rule's problem, and not of a file's, of which
// it would say that something is not.
func TestWatcherSaysWhatIsInForce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	src := &source{problems: rules.Problems{
		{Rule: "r", Field: "match", Message: "of a rule", Warning: true},
		{Field: "domain", Message: "of the file", Warning: true},
	}}
	src.put(mustSet(t, bucket("r", 1, 1)), 1)
	w := mustWatcher(t, rules.WatcherConfig{Source: src, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "of a rule") != strings.Contains(line, "in_force=true") || strings.Contains(line, "in_force=false") {
			t.Error(line)
		}
	}
	if n := strings.Count(log.String(), "in_force"); n != 1 {
		t.Errorf("%d lines say it, want 1:\n%s", n, log.String())
	}
}

func TestWatcherKeepsTheLastGoodRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		src := &source{}
		src.fail(errors.New("rules.yaml:3:5: mapping value is not allowed"))
		w := mustWatcher(t, rules.WatcherConfig{Source: src, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err := w.Start(t.Context()); err == nil {
			t.Fatal("Start without rules succeeds")
		}
		bad := mustRule(t, bucket("bad", 2, 2))
		bad.Rate = -1
		set := mustSet(t, bucket("r", 1, 1))
		set.Rules = append(set.Rules, bad)
		src.put(set, 7)
		if err := w.Start(t.Context()); err != nil {
			t.Fatalf("Start after the source was mended: %v", err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "rate: -1 is below 1; raise it"); n != 1 {
			t.Errorf("REL-07: the fault is logged %d times, want once:\n%s", n, log.String())
		}
		if n := len(w.Problems()); n != 1 {
			t.Errorf("%d problems, want 1", n)
		}

		log.Reset()
		src.fail(errors.New("no such file"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.Snapshot().Rule("r") == nil || w.Snapshot().Revision() != 7 {
			t.Error("REL-07: the last good rules are gone")
		}
		if n := strings.Count(log.String(), "no such file"); n != 1 {
			t.Errorf("the failure is logged %d times, want once:\n%s", n, log.String())
		}
		if err := w.Reload(t.Context()); err == nil {
			t.Error("Reload hides the failure")
		}
		src.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), "can be loaded again") {
			t.Error("the recovery is not logged")
		}
	})
}

func TestWatcherLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	src := &source{}
	src.put(mustSet(t, bucket("r", 1, 1)), 1)
	w := mustWatcher(t, rules.WatcherConfig{Source: src, Every: time.Millisecond})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 1_000 {
		src.put(mustSet(t, bucket("r", i%7+1, 9)), int64(i+2))
		if err := w.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Errorf("MEM-03: %d goroutines after 1,000 updates, %d before", n, before)
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Errorf("MEM-03: Close: %v", err)
		}
	}
	// Close returns when the loop has: its goroutine may have its last steps to go.
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("MEM-03: %d goroutines after Close, %d before", runtime.NumGoroutine(), before)
		}
	}
	if err := w.Reload(t.Context()); !errors.Is(err, rules.ErrClosed) {
		t.Errorf("MEM-03: Reload after Close: %v, want ErrClosed", err)
	}
	if err := w.Start(t.Context()); !errors.Is(err, rules.ErrClosed) {
		t.Errorf("MEM-03: Start after Close: %v, want ErrClosed", err)
	}
	if w.Snapshot().Rule("r") == nil {
		t.Error("MEM-03: the snapshot is gone after Close")
	}
}

func TestWatcherClosedBeforeStart(t *testing.T) {
	t.Parallel()
	w := mustWatcher(t, rules.WatcherConfig{Source: &source{}})
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestNewWatcherChecksItsConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []rules.WatcherConfig{{}, {Source: &source{}, Every: -1}} {
		if _, err := rules.NewWatcher(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestWatcherIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	src := &source{}
	src.put(mustSet(t, bucket("r", 1, 1)), 1)
	w := mustWatcher(t, rules.WatcherConfig{Source: src, Every: time.Millisecond})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			_ = w.Start(t.Context())
			for j := range 50 {
				src.put(mustSet(t, bucket("r", i+1, j+1)), int64(j))
				_ = w.Reload(t.Context())
				w.Snapshot().Rule("r").Effective("k", start)
				_ = w.Problems()
			}
			_ = w.Close()
		})
	}
	wg.Wait()
}
