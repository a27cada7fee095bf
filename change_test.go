package tallygate_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// switched are rules that a test changes under a limiter.
type switched struct {
	atomic.Pointer[rules.Snapshot]
}

func (s *switched) Snapshot() *rules.Snapshot { return s.Load() }

// apply puts a set in force, as the next revision.
func (s *switched) apply(t testing.TB, now time.Time, set rules.Set) {
	t.Helper()
	prev, revision := s.Load(), int64(1)
	if prev != nil {
		revision = prev.Revision() + 1
	}
	next, problems := rules.Compile(prev, set, revision, now)
	if err := problems.Err(); err != nil {
		t.Fatalf("rules: %v", err)
	}
	s.Store(next)
}

// home is where the buckets of a test lie, with a clock that the test moves.
type home struct {
	name     string
	counting rules.Counting
	now      func() time.Time
	advance  func(d time.Duration)
	store    func() store.Store
}

// homes are the embedded store, and one Redis behind pods that ask it each time and
// behind such with leases.
func homes(t *testing.T) []home {
	t.Helper()
	c := newClock()
	memory := c.Memory()
	list := []home{{
		name: "memory", now: c.Now, advance: c.Advance,
		store: func() store.Store { return memory },
	}}
	server := redistest.WithClock(t)
	clock, offset := server.Clock(t), new(atomic.Int64)
	for name, counting := range map[string]rules.Counting{"redis": rules.CountingExact, "redis with leases": rules.CountingLease} {
		list = append(list, home{
			name: name, counting: counting,
			now:     func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
			advance: func(d time.Duration) { clock.Set(t, time.Duration(offset.Add(int64(d)))) },
			store:   func() store.Store { return redisAt(t, server) },
		})
	}
	return list
}

// redisAt is a connection to a server for the length of the test.
func redisAt(t testing.TB, server *redistest.Server) store.Store {
	t.Helper()
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: "redis://" + server.Addr, Tags: identity.NewHasher(nil), Deadline: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// pod is a limiter of this home by those rules.
func (h home) pod(t testing.TB, s *switched) *tallygate.Limiter {
	t.Helper()
	l, err := tallygate.New(tallygate.Config{Rules: s, Store: h.store(), Now: h.now, Deadline: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// counted are the rules as this home counts them.
func (h home) counted(list ...rules.Rule) []rules.Rule {
	out := make([]rules.Rule, len(list))
	for i, r := range list {
		if r.Algorithm != limit.SlidingLog {
			r.Counting = h.counting
		}
		r.MaxCost = 1
		out[i] = r
	}
	return out
}

// apply puts rules in force, as this home counts them.
func (h home) apply(t testing.TB, s *switched, overrides []rules.Override, list ...rules.Rule) {
	t.Helper()
	s.apply(t, h.now(), rules.Set{Rules: h.counted(list...), Overrides: overrides})
}

// out is the tokens that a pod holds on leases of a rule, or has not told of.
func out(l *tallygate.Limiter, rule string) (tokens int64) {
	for _, r := range l.Stats().Rules {
		if r.Rule == rule {
			tokens += r.Leases.Out
		}
	}
	return tokens
}

// rested waits until the store knows again that so much is left: leases went back.
func rested(t testing.TB, l *tallygate.Limiter, rule, key string, left int64) {
	t.Helper()
	var quiet time.Time // since when nothing is out
	await.That(t, fmt.Sprintf("%s has %d left, and no lease is out", rule, left), func() bool {
		switch {
		case out(l, rule) != 0:
			quiet = time.Time{}
		case mustCheck(t, l, look(rule, key)).Entries[0].Remaining == left:
			return true
		case quiet.IsZero():
			quiet = time.Now()
		case time.Since(quiet) > time.Second:
			t.Skip("a lease was over before it went back, see inTime")
		}
		return false
	})
}

// inTime runs a test that waits until leases are back, and again where the machine was too
// busy for it: one that comes back after its end is lost to all, as it has to be.
func inTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for n := range 5 {
		ended := false
		t.Run(fmt.Sprint("try ", n+1), func(t *testing.T) {
			f(t)
			ended = true
		})
		if ended || t.Failed() {
			return
		}
	}
	t.Error("leases were lost in each of 5 tries")
}

// change is a rule that changes after so many of its tokens were spent, and, with the
// change, so long after that.
type change struct {
	name     string
	from, to rules.Rule
	spend    int
	after    time.Duration
	want     int // checks of cost 1 that pass then
}

const days = 86_400

// changes are every number that can change, up and down, and all pairs of algorithms.
func changes() []change {
	list := []change{
		{"burst lowered", bucket("", 1, 3600, 20), bucket("", 1, 3600, 5), 8, 0, 5},
		{"burst lowered, less is left", bucket("", 1, 3600, 20), bucket("", 1, 3600, 5), 18, 0, 2},
		{"burst raised", bucket("", 1, 3600, 20), bucket("", 1, 3600, 40), 8, 0, 12},
		{"burst raised, none is left", bucket("", 1, 3600, 20), bucket("", 1, 3600, 40), 20, 0, 0},
		{"burst and rate raised", bucket("", 1, 3600, 20), bucket("", 10, 3600, 40), 8, 0, 12},
		{"rate raised, an hour of the old", bucket("", 1, 3600, 20), bucket("", 60, 3600, 20), 20, time.Hour, 1},
		{"rate lowered, an hour of the old", bucket("", 60, 3600, 20), bucket("", 1, 3600, 20), 20, time.Hour, 1},
		{"another period, the same rate", bucket("", 1, 3600, 20), bucket("", 10, 36_000, 20), 20, time.Hour, 1},
		{"fixed window shortened", window("", limit.FixedWindow, 20, 100*days), window("", limit.FixedWindow, 20, 50*days), 8, 0, 12},
		{"fixed window lengthened", window("", limit.FixedWindow, 20, 50*days), window("", limit.FixedWindow, 20, 100*days), 8, 0, 12},
		{"sliding window shortened", window("", limit.SlidingWindow, 20, 100*days), window("", limit.SlidingWindow, 20, 50*days), 8, 0, 12},
		{"sliding window lengthened", window("", limit.SlidingWindow, 20, 50*days), window("", limit.SlidingWindow, 20, 100*days), 8, 0, 12},
		{"log shortened", window("", limit.SlidingLog, 20, 100*days), window("", limit.SlidingLog, 20, 50*days), 8, 0, 12},
		{"log lengthened", window("", limit.SlidingLog, 20, 50*days), window("", limit.SlidingLog, 20, 100*days), 8, 0, 12},
	}
	for _, a := range []limit.Algorithm{limit.SlidingWindow, limit.SlidingLog, limit.FixedWindow} {
		of := func(n int64) rules.Rule { return window("", a, n, 100*days) }
		list = append(list,
			change{a.String() + " lowered", of(20), of(10), 8, 0, 2},
			change{a.String() + " lowered, more is spent", of(20), of(5), 8, 0, 0},
			change{a.String() + " raised", of(20), of(40), 8, 0, 32},
			change{a.String() + " raised, none is left", of(20), of(30), 20, 0, 10},
		)
	}
	algorithms := []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.SlidingLog, limit.FixedWindow}
	for _, from := range algorithms {
		for _, to := range algorithms {
			if from != to {
				name := from.String() + " to " + to.String()
				list = append(list,
					change{name + ", more", any100Days(from, 20), any100Days(to, 30), 8, 0, 12},
					change{name + ", less", any100Days(from, 20), any100Days(to, 5), 8, 0, 5})
			}
		}
	}
	return list
}

// any100Days is a rule of an algorithm of which hardly anything comes back.
func any100Days(a limit.Algorithm, tokens int64) rules.Rule {
	if a == limit.TokenBucket {
		return bucket("", 1, 3600, tokens)
	}
	return window("", a, tokens, 100*days)
}

// A changed number refills nothing and forgets nothing, whichever it is and wherever
// the buckets are: all rows at once, as the rules of one limiter. Where a pod holds
// leases as the numbers change, what is out of them may be lost, and nothing is won.
func TestChange_refillsNothing(t *testing.T) {
	for _, h := range homes(t) {
		for _, held := range []bool{false, true} {
			if held && h.counting != rules.CountingLease {
				continue
			}
			for _, after := range []time.Duration{0, time.Hour} {
				t.Run(fmt.Sprintf("%s, held %v, after %v", h.name, held, after), func(t *testing.T) {
					inTime(t, func(t *testing.T) {
						t.Helper()
						h.runChanges(t, held, after)
					})
				})
			}
		}
	}
}

func (h home) runChanges(t *testing.T, held bool, after time.Duration) {
	t.Helper()
	var rows []change
	var from, to []rules.Rule
	for _, row := range changes() {
		if row.after == after {
			row.from.ID = fmt.Sprint("row-", len(rows))
			row.to.ID = row.from.ID
			rows, from, to = append(rows, row), append(from, row.from), append(to, row.to)
		}
	}
	s := new(switched)
	h.apply(t, s, nil, from...)
	l := h.pod(t, s)
	key := "acct_" + t.Name()
	for _, row := range rows {
		if got := allowed(t, l, row.spend, ask(row.from.ID, key, 1)); got != row.spend {
			t.Fatalf("%s: %d allowed before, want %d", row.name, got, row.spend)
		}
	}
	for _, row := range rows {
		if !held {
			rested(t, l, row.from.ID, key, max(row.from.Burst, row.from.Limit)-int64(row.spend))
		}
	}
	h.advance(after)
	h.apply(t, s, nil, to...)
	for _, row := range rows {
		least := row.want
		if held {
			least -= int(out(l, row.to.ID))
		}
		got := allowed(t, l, row.want+5, ask(row.to.ID, key, 1))
		if got > row.want || got < least {
			t.Errorf("%s: %d allowed after, want %d, at least %d", row.name, got, row.want, least)
		}
	}
}
