package rulestoretest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

const crowd = 50

// together runs f at the same time, n times.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func testOneWins(t *testing.T, h Harness) {
	h.apply(t, put("a", 1, 0))
	other := h.Again(t)
	var won, lost atomic.Int64
	together(crowd, func(i int) {
		store := h.Store
		if i%2 == 1 {
			store = other // another process
		}
		_, err := store.Apply(t.Context(), by(), put("a", 10+i, 1))
		switch {
		case err == nil:
			won.Add(1)
		case rulestore.CodeOf(err) == rulestore.Conflict:
			lost.Add(1)
		default:
			t.Errorf("writer %d: %v", i, err)
		}
	})
	if won.Load() != 1 || lost.Load() != crowd-1 {
		t.Errorf("%d won and %d had a conflict, want 1 and %d", won.Load(), lost.Load(), crowd-1)
	}
	if r := h.rule(t, "a"); r.Version != 2 {
		t.Errorf("version %d, want 2", r.Version)
	}
	if n := len(h.audit(t, rulestore.AuditFilter{Rule: "a"})); n != 2 {
		t.Errorf("%d audit rows, want 2", n)
	}
}

func testAllWin(t *testing.T, h Harness) {
	other := h.Again(t)
	var mu sync.Mutex
	revisions := map[int64]bool{}
	together(crowd, func(i int) {
		store := h.Store
		if i%2 == 1 {
			store = other
		}
		applied, err := store.Apply(t.Context(), by(), put(fmt.Sprintf("r%d", i), 1, 0))
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if revisions[applied.Revision] {
			t.Errorf("revision %d was given twice", applied.Revision)
		}
		revisions[applied.Revision] = true
	})
	if set := h.whole(t); len(set.Rules) != crowd {
		t.Errorf("%d rules, want %d", len(set.Rules), crowd)
	}
}

// A cursor over numbers that are given before the commit would skip the first of
// these two: it has the lower number and commits last.
func testLateCommit(t *testing.T, h Harness) {
	ctx := t.Context()
	start := h.apply(t, put("a", 1, 0)).Revision
	tx, err := h.SQL(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	late := start + 1
	byHand(t, tx, `UPDATE revision SET revision = $1`, late)
	byHand(t, tx, `INSERT INTO rules (id, version, revision, live, live_version, changed_at_ms) VALUES ('late', 1, $1, $2, 1, 1)`, late, string(bucket("late", 1)))

	done := make(chan error, 1)
	go func() {
		_, err := h.Store.Apply(ctx, by(), put("early", 1, 0))
		done <- err
	}()
	follower := rulestore.Set{Revision: start}
	for range 50 {
		changes, err := h.Store.Since(ctx, follower.Revision)
		if err != nil {
			t.Fatal(err)
		}
		if changes.Revision != start {
			t.Fatalf("revision %d is to be seen while %d has not committed", changes.Revision, late)
		}
		follower = after(follower, changes)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	changes, err := h.Store.Since(ctx, follower.Revision)
	if err != nil || len(changes.Rules) != 2 || changes.Rules[0].ID != "late" || changes.Rules[1].ID != "early" || changes.Rules[1].Revision <= late {
		t.Errorf("got %+v, %v; want late, then early", changes, err)
	}
}

func testOneMoment(t *testing.T, h Harness) {
	h.apply(t, put("a", 1, 0), put("b", 1, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		for i := range 30 {
			h.apply(t, put("a", 2+i, int64(1+i)), put("b", 2+i, int64(1+i)))
		}
	})
	var follower rulestore.Set
	for ctx.Err() == nil {
		changes, err := h.Store.Since(t.Context(), follower.Revision)
		if err != nil {
			t.Error(err)
			break
		}
		follower = after(follower, changes)
		for _, set := range []rulestore.Set{follower, h.whole(t)} {
			if a, b := burstOf(set.Rules[0].Live), burstOf(set.Rules[1].Live); a != b || set.Rules[0].Revision > set.Revision {
				t.Errorf("at revision %d a has %d and b %d", set.Revision, a, b)
			}
		}
	}
	wg.Wait()
}

func testWait(t *testing.T, h Harness) {
	now := h.apply(t, put("a", 1, 0)).Revision
	if err := h.Store.Wait(t.Context(), now-1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() { cancelled <- h.Store.Wait(ctx, now) }()
	cancel()
	if err := <-cancelled; err == nil {
		t.Error("a wait without a change ended well")
	}
	waitFor(t, h.Store, now, func() { h.apply(t, put("a", 2, 1)) })
}

func testWaitElsewhere(t *testing.T, h Harness) {
	now := h.apply(t, put("a", 1, 0)).Revision
	other := h.Again(t)
	waitFor(t, other, now, func() { h.apply(t, put("a", 2, 1)) })
}

// waitFor checks that a wait ends soon after a change.
func waitFor(t *testing.T, waiter rulestore.Waiter, since int64, change func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- waiter.Wait(ctx, since) }()
	change()
	if err := <-done; err != nil {
		t.Errorf("the wait did not see the change: %v", err)
	}
}
