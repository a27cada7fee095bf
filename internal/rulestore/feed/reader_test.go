package feed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/rules"
)

// newHub returns a hub that is not started.
func newHub(t testing.TB, d *database, change func(*feed.HubConfig)) *feed.Hub {
	t.Helper()
	cfg := feed.HubConfig{Reader: d, Waiter: d}
	if change != nil {
		change(&cfg)
	}
	h, err := feed.NewHub(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// A process that serves the feed works from it itself: what it has is what the database
// has, and only the hub asks that.
func TestOneFollowerForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.put("a", 1)
		first := d.current()
		h := newHub(t, d, func(c *feed.HubConfig) { c.Keep, c.Resync = 3, time.Hour })
		h.Start()
		source := rulestore.NewSource(rulestore.SourceConfig{Reader: h})
		w, err := rules.NewWatcher(rules.WatcherConfig{Source: source, Every: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			rulestore.Follow(ctx, h, source, w.Reload)
		}()
		defer func() { cancel(); <-followed; _ = w.Close(); _ = h.Close() }()
		burst := func(what string, want int64) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			var got int64
			if rule := w.Snapshot().Rule("a"); rule != nil {
				lim, _ := rule.Effective("x", time.Now())
				got = lim.Burst
			}
			if got != want || source.Revision() != d.current().Revision {
				t.Errorf("%s: burst %d at revision %d, want %d at %d", what, got, source.Revision(), want, d.current().Revision)
			}
		}
		burst("the first load", 1)
		d.put("a", 2)
		burst("a change", 2)
		for version := int64(3); version < 9; version++ {
			d.put("a", version) // more than the hub remembers
		}
		burst("many changes", 8)
		asked := d.asked()
		time.Sleep(10 * time.Second)
		if got := d.asked() - asked; got != 0 {
			t.Errorf("%d questions to the database in 10 s without a change", got)
		}
		d.byHand("a", 20)
		time.Sleep(2 * rulestore.WholeEvery)
		if err := h.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		burst("a change by hand", 20)
		d.older(first)
		burst("an older database", 1)
	})
}

// A reset is told to who follows the hub, once, also where the change is not remembered.
func TestTheHubTellsResets(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	h := startHub(t, d, func(c *feed.HubConfig) { c.Keep = 2 })
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: h})
	next := func() []rules.Ref {
		t.Helper()
		await.That(t, "the hub has it", func() bool { return h.Revision() == d.current().Revision })
		update, err := source.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if update.Delta == nil {
			return nil
		}
		return update.Delta.Resets
	}
	next()
	d.reset("a", "k")
	if got := next(); len(got) != 1 || got[0].Key[0] != "k" {
		t.Errorf("got %+v", got)
	}
	for version := int64(2); version < 6; version++ { // one by one: each is a row to remember
		want := d.put("a", version)
		await.That(t, "the change", func() bool { return h.Revision() == want })
	}
	d.reset("a", "l")
	if got := next(); len(got) != 1 || got[0].Key[0] != "l" {
		t.Errorf("after changes that are forgotten: got %+v", got)
	}
	if got := next(); len(got) != 0 {
		t.Errorf("again: got %+v", got)
	}
}

// Who is served a set is not told that the database is away: there is no moment in
// which both are so.
func TestTheHubForgetsAFailureInTime(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	d.put("a", 1)
	d.setAway(true)
	var h *feed.Hub
	var looked atomic.Bool
	h = newHub(t, d, func(c *feed.HubConfig) {
		c.Resync = 10 * time.Millisecond
		c.Now = func() time.Time { // asked right after a set was put into force, too
			if h.Ready() && looked.CompareAndSwap(false, true) {
				if _, err := h.Whole(t.Context()); err != nil {
					t.Errorf("with a set to serve: %v", err)
				}
			}
			return time.Now()
		}
	})
	h.Start()
	if _, err := h.Whole(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("away: %v", err)
	}
	d.setAway(false)
	await.That(t, "a look", looked.Load)
}

// Before the first answer of the database nobody is told that there are no rules, and
// while it is away its error is passed on.
func TestTheHubAsAReaderOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase()
		d.put("a", 1)
		d.setAway(true)
		h := newHub(t, d, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.Whole(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before the start: %v", err)
		}
		h.Start()
		if _, err := h.Whole(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("away: %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- h.Wait(t.Context(), 0) }()
		d.setAway(false)
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if set, err := h.Whole(t.Context()); err != nil || set.Hash != d.current().Hash {
			t.Errorf("got %+v, %v", set, err)
		}
		d.setAway(true)
		if err := h.Refresh(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("asked at once: %v", err)
		}
		if _, err := h.Since(t.Context(), 1); !errors.Is(err, errAway) {
			t.Errorf("away again: %v", err)
		}
		_ = h.Close()
		if err := h.Wait(t.Context(), 1); err == nil {
			t.Error("a wait on a closed hub ended well")
		}
	})
}
