package tallygate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// inBubble runs a test on virtual time, which starts at midnight, at each place a
// bucket may be in: in the process, and behind a pod that counts in some way.
func inBubble(t *testing.T, f func(t *testing.T, h home)) {
	t.Helper()
	for _, at := range []struct {
		name     string
		counting rules.Counting
		behind   bool
	}{
		{"in the process", "", false},
		{"behind a pod", rules.CountingLease, true},
		{"behind a pod, exact", rules.CountingExact, true},
	} {
		t.Run(at.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := store.NewMemoryStore(store.MemoryConfig{})
				f(t, home{name: at.name, counting: at.counting, now: time.Now, advance: time.Sleep, store: func() store.Store {
					if at.behind {
						return &elsewhere{store: memory}
					}
					return memory
				}})
			})
		})
	}
}

// nextWindow is a rule whose changes wait for the next window.
func nextWindow(r rules.Rule) rules.Rule {
	r.OnChange = rules.OnChangeNextWindow
	return r
}

// withLimit is the rule with another limit.
func withLimit(r rules.Rule, n int64) rules.Rule {
	r.Limit = n
	return r
}

func TestNextWindow(t *testing.T) {
	fixed, sliding := window("", limit.FixedWindow, 10, 60), window("", limit.SlidingWindow, 10, 60)
	first, day := fixed, fixed
	first.Align = "first_request"
	day.WindowS, day.Window = 0, "day"
	for _, tt := range []struct {
		name  string
		rule  rules.Rule
		to    int64
		spend int
		// what passes in the same window, at the start of the next one, and more of it
		// half a window later
		same, next, half int
	}{
		{"fixed lowered", fixed, 5, 8, 2, 5, 0},
		{"fixed lowered, more is left than the new limit", fixed, 5, 2, 8, 5, 0},
		{"fixed raised", fixed, 20, 8, 2, 20, 0},
		{"fixed raised, none is left", fixed, 20, 10, 0, 20, 0},
		{"first request lowered", first, 5, 8, 2, 5, 0},
		{"first request raised", first, 20, 8, 2, 20, 0},
		{"day lowered", day, 5, 8, 2, 5, 0},
		{"day raised", day, 20, 8, 2, 20, 0},
		{"sliding lowered", sliding, 7, 8, 2, 0, 2}, // 10 weigh at the start, 5 half a window later
		{"sliding raised", sliding, 20, 8, 2, 10, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, h home) {
				t.Helper()
				time.Sleep(23*time.Hour + 59*time.Minute) // a day's last minute
				s, r := new(switched), nextWindow(tt.rule)
				r.ID = "r"
				h.apply(t, s, nil, r)
				l := h.pod(t, s)
				wantAllowed(t, "before", l, tt.spend, ask("r", "k", 1), tt.spend)
				h.apply(t, s, nil, withLimit(r, tt.to))
				wantAllowed(t, "in the same window", l, tt.same, ask("r", "k", 1), tt.same)
				for range 3 { // told by the store, remembered, and asked again
					v := mustCheck(t, l, ask("r", "k", 1))
					e := v.Entries[0]
					if v.Allow || e.Limit != 10 || e.Source == tallygate.SourcePreLimit || e.Remaining != 0 || e.ResetMS <= 0 {
						t.Errorf("%+v, want denied by the old limit", e)
					}
					if left := mustCheck(t, l, look("r", "k")).Entries[0]; left.Limit != 10 || left.ResetMS > v.RetryMS {
						t.Errorf("a look %+v, retry %d: want the old limit, and no wait shorter than the window", left, v.RetryMS)
					}
					h.advance(12 * time.Second)
				}
				h.advance(time.Minute - time.Millisecond - time.Duration(h.now().UnixNano())%time.Minute)
				wantAllowed(t, "in the last millisecond", l, 1, ask("r", "k", 1), 0)
				h.advance(time.Millisecond)
				wantAllowed(t, "in the next window", l, tt.next+3, ask("r", "k", 1), tt.next)
				if e := mustCheck(t, l, look("r", "k")).Entries[0]; e.Limit != tt.to {
					t.Errorf("limit %d in the next window, want %d", e.Limit, tt.to)
				}
				h.advance(30 * time.Second)
				wantAllowed(t, "half a window later", l, tt.half+3, ask("r", "k", 1), tt.half)
			})
		})
	}
}

// An override that comes, goes or ends by time waits like any change; without
// next_window each is at once.
func TestNextWindow_override(t *testing.T) {
	for _, ends := range []bool{false, true} {
		for _, now := range []bool{false, true} {
			t.Run(fmt.Sprintf("ends by time %v, at once %v", ends, now), func(t *testing.T) {
				inBubble(t, func(t *testing.T, h home) {
					t.Helper()
					s, r := new(switched), nextWindow(window("r", limit.FixedWindow, 10, 60))
					if now {
						r.OnChange = rules.OnChangeNow
					}
					o := override("r", "k", rules.Numbers{Limit: 30})
					if ends {
						o.ExpiresAt = h.now().Add(30 * time.Second)
					}
					h.apply(t, s, []rules.Override{o}, r)
					l := h.pod(t, s)
					wantAllowed(t, "under the override", l, 20, ask("r", "k", 1), 20)
					h.advance(30 * time.Second)
					if !ends {
						h.apply(t, s, nil, r)
					}
					want := 10
					if now {
						want = 0
					}
					wantAllowed(t, "in the same window", l, 15, ask("r", "k", 1), want)
					h.advance(30 * time.Second)
					wantAllowed(t, "in the next window", l, 15, ask("r", "k", 1), 10)
				})
			})
		}
	}
}

// A pod that counts first and tells later estimates by the numbers in force: by those
// that wait it would admit what is not there.
func TestNextWindow_async(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := home{counting: rules.CountingAsync, now: time.Now, advance: time.Sleep}
		memory := store.NewMemoryStore(store.MemoryConfig{})
		h.store = func() store.Store { return &elsewhere{store: memory} }
		s, r := new(switched), nextWindow(window("r", limit.FixedWindow, 100, 60))
		h.apply(t, s, nil, r)
		l := h.pod(t, s)
		wantAllowed(t, "before", l, 50, ask("r", "k", 1), 50)
		h.advance(time.Second)
		h.apply(t, s, nil, withLimit(r, 1_000_000))
		// By the old rate 50 ms bring less than a token, by the new one 834.
		if got := allowed(t, l, 2000, ask("r", "k", 1)); got < 50 || got > 51 {
			t.Errorf("%d allowed in the same window, want the 50 that were left", got)
		}
		h.advance(time.Minute)
		if got := allowed(t, l, 2000, ask("r", "k", 1)); got != 2000 {
			t.Errorf("%d allowed in the next window, want all", got)
		}
	})
}

// While the store is away a pod's fallback is a part of the limit in force: the old
// one until its window ends, then the new one.
func TestNextWindow_away(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &elsewhere{store: store.NewMemoryStore(store.MemoryConfig{})}
		h := home{counting: rules.CountingLease, now: time.Now, advance: time.Sleep, store: func() store.Store { return away }}
		s, r := new(switched), nextWindow(window("r", limit.FixedWindow, 6000, 60))
		h.apply(t, s, nil, r)
		l := h.pod(t, s)
		wantAllowed(t, "before", l, 10, ask("r", "k", 1), 10)
		h.apply(t, s, nil, withLimit(r, 60))
		wantAllowed(t, "by the old limit", l, 10, ask("r", "k", 1), 10)
		away.err.Store(givenUp())
		wantAllowed(t, "of a second of twice the old limit", l, 300, ask("r", "k", 1), 200)
		h.advance(59 * time.Second)
		wantAllowed(t, "refilled by the old limit", l, 300, ask("r", "k", 1), 200)
		h.advance(10 * time.Second) // the window has ended
		if got := allowed(t, l, 300, ask("r", "k", 1)); got > 2 {
			t.Errorf("%d allowed, want no more than a second of twice the new limit", got)
		}
	})
}

// On a real Redis, with leases: what goes back as the numbers change must not bring
// the change, nor may leases of the old window outlive it. All rules at once, in
// windows of real time.
func TestNextWindow_redis(t *testing.T) { inTime(t, nextWindowOnRedis) }

func nextWindowOnRedis(t *testing.T) {
	t.Helper()
	const length, margin = 6, 4500 // s, ms
	var before, after []rules.Rule
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		for _, counting := range []rules.Counting{rules.CountingLease, rules.CountingExact} {
			for _, to := range []int64{25, 100} {
				r := nextWindow(window(fmt.Sprintf("%s.%s.%d", a, counting, to), a, 50, length))
				r.Counting, r.MaxCost = counting, 1
				before, after = append(before, r), append(after, withLimit(r, to))
			}
		}
	}
	s, key := new(switched), newKey()
	s.apply(t, time.Now(), rules.Set{Rules: before})
	l, err := tallygate.New(tallygate.Config{Rules: s, Store: redisAt(t, redistest.SharedStandalone(t)), Deadline: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	seen := func(r rules.Rule) tallygate.EntryVerdict { return mustCheck(t, l, look(r.ID, key)).Entries[0] }
	var ends time.Time // of the window, or a little earlier
	await.That(t, "a window has just begun", func() bool {
		now := time.Now()
		left := seen(before[0]).ResetMS
		ends = now.Add(time.Duration(left) * time.Millisecond)
		return left > margin
	})
	for _, r := range before {
		wantAllowed(t, r.ID+" before", l, 40, ask(r.ID, key, 1), 40)
	}
	s.apply(t, time.Now(), rules.Set{Rules: after})
	for _, r := range after { // which lets go of the old numbers' leases, and leases anew
		wantAllowed(t, r.ID+" changed", l, 2, ask(r.ID, key, 1), 2)
	}
	for _, r := range after {
		rested(t, l, r.ID, key, 8)
		if e := seen(r); e.Limit != 50 {
			t.Errorf("%s: limit %d after leases went back, want the old one", r.ID, e.Limit)
		}
		wantAllowed(t, r.ID+" in the same window", l, 15, ask(r.ID, key, 1), 8)
		v := mustCheck(t, l, ask(r.ID, key, 1))
		if v.Allow || v.Entries[0].Limit != 50 || v.Entries[0].Source == tallygate.SourcePreLimit {
			t.Errorf("%s: %+v, want denied by the old limit", r.ID, v.Entries[0])
		}
	}
	for _, r := range after {
		await.That(t, r.ID+" is in the next window", func() bool { return seen(r).Limit == r.Limit })
		if r.Algorithm == limit.SlidingWindow {
			got := int64(allowed(t, l, int(r.Limit), ask(r.ID, key, 1)))
			light := 50 * int64(time.Since(ends)) / int64(length*time.Second) // of the 50
			if got > max(0, r.Limit-50)+light+5 {
				t.Errorf("%s: %d allowed beside the 50 that still weigh, but for %d", r.ID, got, light)
			}
			continue
		}
		// The pod's time is finer than the store's: its denial may end within a millisecond.
		await.That(t, r.ID+" is free", func() bool { return mustCheck(t, l, ask(r.ID, key, 1)).Allow })
		wantAllowed(t, r.ID+" in the next window", l, int(r.Limit)+5, ask(r.ID, key, 1), int(r.Limit)-1)
	}
}
