package tallygate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// everywhere runs a test at each home.
func everywhere(t *testing.T, f func(t *testing.T, h home, key string)) {
	t.Helper()
	for _, h := range homes(t) {
		t.Run(h.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				t.Helper()
				f(t, h, "acct_"+t.Name())
			})
		})
	}
}

// override is other numbers for one key.
func override(rule, key string, n rules.Numbers) rules.Override {
	return rules.Override{Rule: rule, Key: []string{key}, Numbers: n}
}

func wantAllowed(t *testing.T, what string, l *tallygate.Limiter, n int, c tallygate.Check, want int) {
	t.Helper()
	if got := allowed(t, l, n, c); got != want {
		t.Errorf("%s: %d allowed, want %d", what, got, want)
	}
}

// REL-03: the same rule again, other rules, and a pod that starts anew are no refill.
func TestREL03_aReloadIsNoRefill(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		s := new(switched)
		rule := bucket("r", 1, 3600, 20)
		h.apply(t, s, nil, rule)
		l := h.pod(t, s)
		wantAllowed(t, "before", l, 25, ask("r", key, 1), 20)
		for i := range 10 {
			rule.Description = fmt.Sprint("version ", i)
			h.apply(t, s, nil, rule)
			wantAllowed(t, "the same rule again", l, 1, ask("r", key, 1), 0)
			h.apply(t, s, nil, rule, bucket("other", 1, 1, int64(10+i)))
			wantAllowed(t, "another rule", l, 1, ask("r", key, 1), 0)
		}
		wantAllowed(t, "a new pod", h.pod(t, s), 1, ask("r", key, 1), 0)
		// One that knows no history gives the rule another revision.
		late := new(switched)
		h.apply(t, late, nil, rule)
		wantAllowed(t, "a new pod without a history", h.pod(t, late), 1, ask("r", key, 1), 0)
	})
}

// REL-05: what was refused does not count against a raised limit.
func TestREL05_refusedIsNotCounted(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
			s, r := new(switched), window(a.String(), a, 10, 100*days)
			h.apply(t, s, nil, r)
			l := h.pod(t, s)
			wantAllowed(t, a.String(), l, 50, ask(r.ID, key, 1), 10)
			h.apply(t, s, []rules.Override{override(r.ID, key, rules.Numbers{Limit: 20})}, r)
			wantAllowed(t, a.String()+" raised for this key", l, 11, ask(r.ID, key, 1), 10)
		}
	})
}

// REL-08: another length of the window; nobody is blocked until the old one ends.
func TestREL08_anotherWindowLength(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		s := new(switched)
		h.apply(t, s, nil, window("r", limit.FixedWindow, 5, 3600))
		l := h.pod(t, s)
		left := time.Duration(mustCheck(t, l, look("r", key)).Entries[0].ResetMS) * time.Millisecond
		if left < time.Minute { // not across the hour's end
			h.advance(left)
		}
		wantAllowed(t, "in the hour", l, 6, ask("r", key, 1), 5)
		h.apply(t, s, nil, window("r", limit.FixedWindow, 5, 10))
		v := mustCheck(t, h.pod(t, s), ask("r", key, 1)) // another's, so that this one remembers no denial
		if e := v.Entries[0]; v.Allow || e.Remaining != 0 || e.ResetMS > 10_000 || e.Limit != 5 {
			t.Errorf("%+v, want nothing left of a window of 10 s", e)
		}
		h.advance(time.Duration(v.Entries[0].ResetMS) * time.Millisecond)
		wantAllowed(t, "in the next 10 s", l, 6, ask("r", key, 1), 5)
	})
}

// REL-11: a pod that has not heard of the change writes after one that has. What is
// stored is never above the new burst again.
func TestREL11_aReaderWithTheOldRule(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		old, heard := new(switched), new(switched)
		before, after := bucket("r", 1, 3600, 8000), bucket("r", 1, 3600, 1)
		h.apply(t, old, nil, before)
		heard.Store(old.Load())
		first, second := h.pod(t, heard), h.pod(t, old)
		wantAllowed(t, "before", first, 1, ask("r", key, 1), 1)
		rested(t, first, "r", key, 7999)
		h.apply(t, heard, nil, after)
		v := mustCheck(t, first, ask("r", key, 1))
		if e := v.Entries[0]; !v.Allow || e.Remaining != 0 || e.Limit != 1 {
			t.Errorf("%+v, want the last one", e)
		}
		for i := range 20 {
			for who, l := range []*tallygate.Limiter{second, first} {
				v := mustCheck(t, l, ask("r", key, 1))
				if v.Allow || v.Entries[0].Remaining > 1 {
					t.Fatalf("check %d of pod %d: %+v, want denied", i, who, v.Entries[0])
				}
				if left := mustCheck(t, l, look("r", key)).Entries[0]; left.Remaining > 1 || left.Limit != 1 {
					t.Fatalf("look %d of pod %d: %+v, want the new numbers", i, who, left)
				}
			}
			h.advance(time.Second)
		}
	})
}

// A key that is denied on every pod is free on each as soon as its limit is raised.
func TestChange_raisedWhileDenied(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		for _, r := range []rules.Rule{bucket("bucket", 1, 3600, 10), window("fixed", limit.FixedWindow, 10, 100*days), window("sliding", limit.SlidingWindow, 10, 100*days), window("log", limit.SlidingLog, 10, 100*days)} {
			s := new(switched)
			h.apply(t, s, nil, r)
			pods := []*tallygate.Limiter{h.pod(t, s), h.pod(t, s), h.pod(t, s)}
			wantAllowed(t, r.ID, pods[0], 11, ask(r.ID, key, 1), 10)
			for i, l := range pods {
				wantAllowed(t, fmt.Sprint(r.ID, " pod ", i), l, 3, ask(r.ID, key, 1), 0)
				source := mustCheck(t, l, ask(r.ID, key, 1)).Entries[0].Source
				if h.counting == rules.CountingLease && r.Algorithm != limit.SlidingLog && source == tallygate.SourceStore {
					t.Errorf("%s pod %d: source %s, want a denial by the pod", r.ID, i, source)
				}
			}
			n, what := rules.Numbers{Limit: 40}, fmt.Sprint(r.ID, " when raised, pod ")
			if r.Algorithm == limit.TokenBucket {
				n = rules.Numbers{Rate: 3_600_000} // 1,000 a second: not at once, but in no time
			}
			h.apply(t, s, []rules.Override{override(r.ID, key, n)}, r)
			for i, l := range pods {
				if r.Algorithm != limit.TokenBucket {
					wantAllowed(t, fmt.Sprint(what, i), l, 5, ask(r.ID, key, 1), 5)
					continue
				}
				raised := time.Now()
				await.That(t, fmt.Sprint(what, i, " is free"), func() bool {
					h.advance(10 * time.Millisecond)
					return mustCheck(t, l, ask(r.ID, key, 1)).Allow
				})
				if took := time.Since(raised); took > 5*time.Second { // a denial is remembered for 10 s
					t.Errorf("%s%d is free after %v", what, i, took)
				}
			}
		}
	})
}

// overridden is a rule and an override of it: so much is spent under the rule first,
// during passes under the override and outside under the rule again.
type overridden struct {
	name                   string
	rule                   rules.Rule
	numbers                rules.Numbers
	spend, during, outside int
}

// Overrides come, go and end by time: each is a change like any other.
func TestChange_overrides(t *testing.T) {
	rows := []overridden{
		{"a bucket's burst raised", bucket("", 1, 3600, 10), rules.Numbers{Burst: 50}, 4, 6, 0},
		{"a bucket's burst lowered", bucket("", 1, 3600, 10), rules.Numbers{Burst: 3}, 4, 3, 0},
		{"a fixed window raised", window("", limit.FixedWindow, 10, 100*days), rules.Numbers{Limit: 30}, 4, 26, 0},
		{"a fixed window lowered", window("", limit.FixedWindow, 10, 100*days), rules.Numbers{Limit: 6}, 4, 2, 4},
		{"a sliding window raised", window("", limit.SlidingWindow, 10, 100*days), rules.Numbers{Limit: 30}, 4, 26, 0},
		{"a sliding window lowered", window("", limit.SlidingWindow, 10, 100*days), rules.Numbers{Limit: 6}, 4, 2, 4},
		{"a log raised", window("", limit.SlidingLog, 10, 100*days), rules.Numbers{Limit: 30}, 4, 26, 0},
		{"a log lowered", window("", limit.SlidingLog, 10, 100*days), rules.Numbers{Limit: 6}, 4, 2, 4},
	}
	for i := range rows {
		rows[i].rule.ID = fmt.Sprint("row-", i)
	}
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		for name, ends := range map[string]bool{"removed": false, "ended by time": true} {
			t.Run(name, func(t *testing.T) {
				inTime(t, func(t *testing.T) {
					t.Helper()
					h.override(t, key+t.Name(), rows, ends)
				})
			})
		}
	})
}

// override goes through all rows at once, the rules of one limiter.
func (h home) override(t *testing.T, key string, rows []overridden, ends bool) {
	t.Helper()
	var list []rules.Rule
	var overrides []rules.Override
	for _, row := range rows {
		o := override(row.rule.ID, key, row.numbers)
		if ends {
			o.ExpiresAt = h.now().Add(time.Hour)
		}
		list, overrides = append(list, row.rule), append(overrides, o)
	}
	s := new(switched)
	h.apply(t, s, nil, list...)
	l := h.pod(t, s)
	for _, row := range rows {
		wantAllowed(t, row.name+": before", l, row.spend, ask(row.rule.ID, key, 1), row.spend)
	}
	for _, row := range rows {
		rested(t, l, row.rule.ID, key, int64(10-row.spend))
	}
	h.apply(t, s, overrides, list...)
	for _, row := range rows {
		wantAllowed(t, row.name+": with the override", l, row.during+3, ask(row.rule.ID, key, 1), row.during)
	}
	if ends {
		h.advance(time.Hour) // nobody tells the pod
	} else {
		h.apply(t, s, nil, list...)
	}
	for _, row := range rows {
		want := row.outside
		if ends && row.rule.Algorithm == limit.TokenBucket {
			want = 1 // of the hour
		}
		wantAllowed(t, row.name+": without it again", l, want+3, ask(row.rule.ID, key, 1), want)
	}
	h.apply(t, s, nil, list...) // where it has ended, the snapshot without it is no news
	for _, row := range rows {
		wantAllowed(t, row.name+": once more without it", l, 2, ask(row.rule.ID, key, 1), 0)
	}
}

// What is unspent as an override ends is capped by the rule's burst.
func TestChange_overrideEndsUnspent(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		s, r := new(switched), bucket("r", 1, 3600, 5)
		o := override("r", key, rules.Numbers{Burst: 50})
		o.ExpiresAt = h.now().Add(time.Minute)
		h.apply(t, s, []rules.Override{o}, r)
		l := h.pod(t, s)
		wantAllowed(t, "under the override", l, 10, ask("r", key, 1), 10)
		rested(t, l, "r", key, 40)
		h.advance(time.Minute)
		wantAllowed(t, "of 40 that were left", l, 10, ask("r", key, 1), 5)
	})
}

// A bucket that expired as full under a fast rate is not full under a slow one: for a
// while a missing bucket starts with one cost.
func TestChange_expiredUnderTheOldRate(t *testing.T) {
	everywhere(t, func(t *testing.T, h home, key string) {
		t.Helper()
		s := new(switched)
		h.apply(t, s, nil, bucket("r", 1, 1, 60))
		l := h.pod(t, s)
		if got := allowed(t, l, 60, ask("r", key, 1)); got != 60 {
			t.Fatalf("%d allowed, want 60", got)
		}
		h.advance(40 * time.Second)
		h.apply(t, s, nil, bucket("r", 1, 3600, 60))
		h.advance(30 * time.Second) // by the old rate it was full 10 s ago
		want := 1
		if h.name == "memory" {
			want = 0 // it was kept, and converted at the slow rate
		}
		wantAllowed(t, "after its key expired", l, 10, ask("r", key, 1), want)
	})
}

// A change of one rule drops nothing of another: no lease, no denial.
func TestChange_ofAnotherRule(t *testing.T) {
	server := redistest.SharedStandalone(t)
	h := home{counting: rules.CountingLease, now: time.Now}
	s, key := new(switched), newKey()
	busy, empty := bucket("busy", 1000, 1, 1000), window("empty", limit.FixedWindow, 1, 100*days)
	apply := func(n int64, list ...rules.Override) {
		h.apply(t, s, list, busy, empty, bucket("another", n, 1, 1000))
	}
	apply(1)
	l, err := tallygate.New(tallygate.Config{Rules: s, Store: redisAt(t, server), Deadline: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	wantAllowed(t, "empty", l, 2, ask("empty", key, 1), 1)
	n := int64(1)
	leased := func() bool {
		return mustCheck(t, l, ask("busy", key, 1)).Entries[0].Source == tallygate.SourceLease
	}
	// A lease may end between the two checks by itself, not each time.
	await.That(t, "a lease outlived the change of another rule", func() bool {
		await.That(t, "a lease", leased)
		n++
		apply(n, override("busy", "somebody", rules.Numbers{Burst: n}))
		return leased()
	})
	await.That(t, "a denial outlived the change of another rule", func() bool {
		mustCheck(t, l, ask("empty", key, 1))
		n++
		apply(n)
		return mustCheck(t, l, ask("empty", key, 1)).Entries[0].Source == tallygate.SourceDenyCache
	})
}
