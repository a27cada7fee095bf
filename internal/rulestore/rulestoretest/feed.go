package rulestoretest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// troubled is a reader that fails or changes things when it is asked.
type troubled struct {
	rulestore.Reader
	failSince, failWhole bool
	afterWhole           func()
}

func (r *troubled) Whole(ctx context.Context) (rulestore.Set, error) {
	if r.failWhole {
		return rulestore.Set{}, errors.New("away")
	}
	set, err := r.Reader.Whole(ctx)
	if r.afterWhole != nil {
		r.afterWhole()
	}
	return set, err
}

func (r *troubled) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	if r.failSince {
		return rulestore.Changes{}, errors.New("away")
	}
	return r.Reader.Since(ctx, revision)
}

// testResetsOnce has resets come at any time and counts how often each is passed on.
func testResetsOnce(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0))
	reader := &troubled{Reader: h.Store}
	now := time.Now()
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: reader, Now: func() time.Time { return now }})
	reset := func(key string) {
		h.apply(t, rulestore.Change{Action: rulestore.ActionReset, Rule: "a", Key: []string{key}})
	}
	next := func(fails bool, want ...string) {
		t.Helper()
		update, err := source.Next(t.Context())
		if (err != nil) != fails {
			t.Fatalf("got error %v", err)
		}
		var got []string
		var refs []rules.Ref
		if update.Set != nil {
			refs = update.Set.Resets
		} else if update.Delta != nil {
			refs = update.Delta.Resets
		}
		for _, ref := range refs {
			got = append(got, ref.Key[0])
		}
		if len(got) != len(want) {
			t.Fatalf("got resets %q, want %q", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("got resets %q, want %q", got, want)
			}
		}
	}
	reset("before the first load")
	next(false) // nothing is held for it
	reset("1")
	reset("2")
	next(false, "1", "2")
	next(false)
	reset("3")
	reader.failSince = true
	next(true)
	reader.failSince = false
	next(false, "3")
	// The comparison with everything: what came before it, and while it ran.
	reset("4")
	now = now.Add(2 * rulestore.WholeEvery)
	reader.afterWhole = func() { reset("5") }
	next(false, "4")
	reader.afterWhole = nil
	next(false, "5")
	next(false)
	reset("6")
	now = now.Add(2 * rulestore.WholeEvery)
	reader.failWhole = true
	next(true)
	reader.failWhole, reader.failSince = false, true
	next(true)
	reader.failSince = false
	next(false, "6")
	now = now.Add(2 * rulestore.WholeEvery)
	next(false)
}

// testReset has a watcher's keys numbers anew.
func testReset(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), propose(bucket("a", 20), 1))
	w, _, _ := watch(t, h, 0)
	rule := w.Snapshot().Rule("a")
	before, _ := rule.Effective("k", time.Now())
	trial, _ := rule.Trial().Rule.Effective("k", time.Now())
	applied := h.apply(t, rulestore.Change{Action: rulestore.ActionReset, Key: []string{"k"}})
	reload(t, w)
	rule = w.Snapshot().Rule("a")
	after, _ := rule.Effective("k", time.Now())
	trialAfter, _ := rule.Trial().Rule.Effective("k", time.Now())
	if after == before || !after.Same(before) || after.Revision != 2*applied.Revision || trialAfter == trial || trialAfter.Revision != after.Revision {
		t.Errorf("got %v and %v after %v and %v", after, trialAfter, before, trial)
	}
	other, _ := rule.Effective("other", time.Now())
	if other != before {
		t.Errorf("another key has %v, had %v", other, before)
	}
}

func testClock(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0))
	changes, err := h.Store.Since(t.Context(), h.whole(t).Revision) // without a change as well
	for what, now := range map[string]time.Time{"everything": h.whole(t).Now, "no change": changes.Now} {
		if off := time.Since(now).Abs(); err != nil || off > 10*time.Second {
			t.Errorf("%s: the store's clock is %v (off by %v), %v", what, now, off, err)
		}
	}
	ahead := rulestore.NewSource(rulestore.SourceConfig{Reader: h.Store, Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	if ahead.Offset() != 0 {
		t.Errorf("offset %v before the first answer", ahead.Offset())
	}
	if _, err := ahead.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if off := (ahead.Offset() - time.Hour).Abs(); off > 10*time.Second {
		t.Errorf("offset %v, want about an hour", ahead.Offset())
	}
}
