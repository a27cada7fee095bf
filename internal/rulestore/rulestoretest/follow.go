package rulestoretest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// watch starts a watcher over the store that loads when it is told to.
func watch(t *testing.T, h Harness, wholeEvery time.Duration) (*rules.Watcher, *rulestore.Source, *safeBuffer) {
	t.Helper()
	log := new(safeBuffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: h.Store, WholeEvery: wholeEvery, Log: logger})
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: source, Every: time.Hour, Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, source, log
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func reload(t *testing.T, w *rules.Watcher) {
	t.Helper()
	if err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// burstInForce is the burst of a rule for a key; 0 if there is no such rule.
func burstInForce(w *rules.Watcher, id, key string) int64 {
	rule := w.Snapshot().Rule(id)
	if rule == nil {
		return 0
	}
	lim, _ := rule.Effective(key, time.Now())
	return lim.Burst
}

func testFollow(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0))
	w, source, _ := watch(t, h, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rulestore.Follow(ctx, h.Store, source, w.Reload)
	}()
	writer := h.Again(t)
	applied, err := writer.Apply(ctx, by(), put("a", 20, 1), rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "k", 99)},
		rulestore.Change{Action: rulestore.ActionPropose, Body: bucket("a", 77), IfMatch: 2})
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the change in force", func() bool { return w.Snapshot().Revision() == applied.Revision })
	if a, k := burstInForce(w, "a", "x"), burstInForce(w, "a", "k"); a != 20 || k != 99 {
		t.Errorf("bursts %d and %d, want the live rule's 20 and the override's 99", a, k)
	}
	if _, err := writer.Apply(ctx, by(), rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 3}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the rule gone", func() bool { return w.Snapshot().Rule("a") == nil })
	cancel()
	<-done
}

func testRows(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), put("b", 10, 0), put("c", 10, 0), rulestore.Change{Action: rulestore.ActionOverride, Body: override("c", "k", 50)})
	w, _, log := watch(t, h, 0)
	db := h.SQL(t)
	next := h.whole(t).Revision + 1
	byHand(t, db, `UPDATE revision SET revision = $1`, next)
	byHand(t, db, `UPDATE rules SET live = '{"id":"a","burst":"many"}', revision = $1 WHERE id = 'a'`, next)
	byHand(t, db, `UPDATE rules SET live = $2, revision = $1 WHERE id = 'b'`, next, string(bucket("b", 20)))
	byHand(t, db, `UPDATE overrides SET body = 'junk', revision = $1`, next)
	byHand(t, db, `INSERT INTO rules (id, version, revision, live, live_version, changed_at_ms) VALUES ('new', 1, $1, 'junk', 1, 1), ('other', 1, $1, $2, 1, 1)`,
		next, string(bucket("a", 70)))
	reload(t, w)
	for _, tt := range []struct {
		rule, key string
		want      int64
	}{{"a", "x", 10}, {"b", "x", 20}, {"c", "k", 50}, {"c", "x", 10}, {"new", "x", 0}, {"other", "x", 0}} {
		if got := burstInForce(w, tt.rule, tt.key); got != tt.want {
			t.Errorf("%s for %s: burst %d in force, want %d", tt.rule, tt.key, got, tt.want)
		}
	}
	for _, name := range []string{"rule=a", "rule=c", "rule=new", "rule=other"} {
		if !strings.Contains(log.String(), name) {
			t.Errorf("the log does not name %s:\n%s", name, log)
		}
	}
	if strings.Contains(log.String(), "rule=b ") {
		t.Errorf("the log complains of a good row:\n%s", log)
	}
	// Who mends the row by the front door needs its version, as always.
	h.apply(t, put("a", 30, 1))
	reload(t, w)
	if got := burstInForce(w, "a", "x"); got != 30 {
		t.Errorf("burst %d, want 30", got)
	}
}

func testByHand(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), put("b", 10, 0))
	w, _, log := watch(t, h, time.Nanosecond)
	db := h.SQL(t)
	byHand(t, db, `UPDATE rules SET live = $1 WHERE id = 'a'`, string(bucket("a", 40)))
	byHand(t, db, `DELETE FROM rules WHERE id = 'b'`)
	before := w.Snapshot().Revision()
	reload(t, w)
	if a, b := burstInForce(w, "a", "x"), burstInForce(w, "b", "x"); a != 40 || b != 0 {
		t.Errorf("bursts %d and %d, want 40 and none", a, b)
	}
	if w.Snapshot().Revision() <= before {
		t.Error("the pod's revision did not grow")
	}
	if !strings.Contains(log.String(), "without a new revision") {
		t.Errorf("the log does not say so:\n%s", log)
	}
}

func testOlder(t *testing.T, h Harness) {
	first := h.apply(t, put("a", 10, 0)).Revision
	h.apply(t, put("b", 10, 0))
	w, source, log := watch(t, h, 0)
	db := h.SQL(t)
	byHand(t, db, `DELETE FROM rules WHERE id = 'b'`)
	byHand(t, db, `UPDATE revision SET revision = $1`, first)
	reload(t, w)
	if w.Snapshot().Rule("b") != nil || source.Revision() != first || !strings.Contains(log.String(), "older") {
		t.Errorf("revision %d, log:\n%s", source.Revision(), log)
	}
	if next := h.apply(t, put("c", 10, 0)).Revision; next <= first {
		t.Errorf("revision %d after %d", next, first)
	}
	reload(t, w)
	if w.Snapshot().Rule("c") == nil {
		t.Error("a change after that is not in force")
	}
}
