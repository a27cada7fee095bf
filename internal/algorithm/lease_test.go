package algorithm_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// TestLease_LSE01: fifty pods that want 49 beyond their cost of 1, at once.
func TestLease_LSE01(t *testing.T) {
	l := perSecond(1, 3600, 2000)
	s := algorithm.Fresh(l, 0)
	var sum, first int64
	for pod := range 50 {
		s.Spend(0, 1)
		g := s.Lease(0, algorithm.LeaseAsk{Want: 49, Pods: 50, MaxCost: 1})
		sum += 1 + g.Tokens
		if pod == 0 {
			first = 1 + g.Tokens
		}
	}
	equal(t, "first", first, 20)
	equal(t, "granted", sum, 809)
	equal(t, "left", s.Remaining(0), 1191)
	equal(t, "out", s.Out(), 759)
}

func TestLease_bucket(t *testing.T) {
	hundred := perSecond(100, 1, 200)
	for _, c := range []struct {
		name string
		l    *limit.Limit
		b    algorithm.Bucket
		now  int64
		ask  algorithm.LeaseAsk
		want algorithm.Grant
	}{
		{"wants nothing", hundred, algorithm.Bucket{Level: 200_000}, 0, algorithm.LeaseAsk{Pods: 1}, algorithm.Grant{}},
		{"as wanted", hundred, algorithm.Bucket{Level: 200_000}, 0, algorithm.LeaseAsk{Want: 5, Pods: 1, MaxCost: 1}, algorithm.Grant{Tokens: 5, MS: 999}},
		{"half of what is left, over the pods", hundred, algorithm.Bucket{Level: 200_000}, 0, algorithm.LeaseAsk{Want: 99, Pods: 4, MaxCost: 1}, algorithm.Grant{Tokens: 25, MS: 999}},
		{"less the more are out", hundred, algorithm.Bucket{Level: 100_000, Out0: 60}, 0, algorithm.LeaseAsk{Want: 99, Pods: 1, MaxCost: 1}, algorithm.Grant{Tokens: 20, MS: 999}},
		{"near the limit, 20 ms of the rate", hundred, algorithm.Bucket{Level: 3_999, Out1: 50}, 0, algorithm.LeaseAsk{Want: 99, Pods: 1, MaxCost: 1}, algorithm.Grant{Tokens: 2, MS: 999}},
		{"nothing is left", hundred, algorithm.Bucket{Level: 999}, 0, algorithm.LeaseAsk{Want: 99, Pods: 1, MaxCost: 1}, algorithm.Grant{}},
		{"a request of the largest cost stays possible", hundred, algorithm.Bucket{Level: 200_000}, 0, algorithm.LeaseAsk{Want: 99, Pods: 1, MaxCost: 190}, algorithm.Grant{Tokens: 10, MS: 999}},
		{"no room for that", hundred, algorithm.Bucket{Level: 190_000, Out0: 10}, 0, algorithm.LeaseAsk{Want: 99, Pods: 1, MaxCost: 190}, algorithm.Grant{}},
		{"no pods is one", hundred, algorithm.Bucket{Level: 200_000}, 0, algorithm.LeaseAsk{Want: 200}, algorithm.Grant{Tokens: 100, MS: 999}},
		{"late in the generation it is shorter", hundred, algorithm.Bucket{Level: 200_000, TS: 1_499, Gen: 2}, 1_499, algorithm.LeaseAsk{Want: 1, Pods: 1}, algorithm.Grant{Tokens: 1, Generation: 2, MS: 500}},
		{"behind its generation it is no longer", hundred, algorithm.Bucket{Level: 200_000, Gen: 9}, 100, algorithm.LeaseAsk{Want: 1, Pods: 1}, algorithm.Grant{Tokens: 1, Generation: 9, MS: 999}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := algorithm.State{Limit: c.l, Bucket: c.b}
			got := s.Lease(c.now, c.ask)
			equal(t, "lease", got, c.want)
			equal(t, "level", s.Bucket.Level, c.b.Level-c.want.Tokens*c.l.PeriodMS)
			equal(t, "out", s.Out(), c.b.Out0+c.b.Out1+c.want.Tokens)
		})
	}
}

func TestLease_window(t *testing.T) {
	minute := fixed(1000, 60_000)
	for _, c := range []struct {
		name string
		l    *limit.Limit
		cur  int64
		now  int64
		ask  algorithm.LeaseAsk
		want algorithm.Grant
	}{
		{"half of what is left, over the pods", minute, 0, 0, algorithm.LeaseAsk{Want: 99, Pods: 10}, algorithm.Grant{Tokens: 50, MS: 999}},
		{"near the limit, 20 ms of the rate", fixed(60_000, 60_000), 59_990, 0, algorithm.LeaseAsk{Want: 99, Pods: 10}, algorithm.Grant{Tokens: 2, MS: 999}},
		{"not past the end", minute, 0, 59_500, algorithm.LeaseAsk{Want: 1, Pods: 1}, algorithm.Grant{Tokens: 1, MS: 499}},
		{"not in the last millisecond", minute, 0, 59_999, algorithm.LeaseAsk{Want: 1, Pods: 1}, algorithm.Grant{}},
		{"not while the clock is behind", minute, 0, -1, algorithm.LeaseAsk{Want: 1, Pods: 1}, algorithm.Grant{}},
		{"a log never leases", slidingLog(10, 1000), 0, 0, algorithm.LeaseAsk{Want: 1, Pods: 1}, algorithm.Grant{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := algorithm.State{Limit: c.l, Window: algorithm.Window{End: 60_000, Cur: c.cur}}
			equal(t, "lease", s.Lease(c.now, c.ask), c.want)
			equal(t, "count", s.Window.Cur, c.cur+c.want.Tokens)
		})
	}
}

func TestReport(t *testing.T) {
	l := perSecond(1, 1, 100)
	for _, c := range []struct {
		name             string
		gen, spent, back int64
		level, out0      int64
		out1             int64
		changed          bool
	}{
		{"spent", 7, 4, 0, 50, 6, 20, true},
		{"back", 7, 0, 4, 54, 6, 20, true},
		{"of the generation before", 6, 5, 5, 55, 10, 10, true},
		{"more than is out", 7, 99, 99, 60, 0, 20, true},
		{"too old", 5, 4, 4, 50, 10, 20, false},
		{"not yet", 8, 4, 4, 50, 10, 20, false},
		{"nothing", 7, 0, 0, 50, 10, 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := algorithm.State{Limit: l, Bucket: algorithm.Bucket{Level: 50_000, Gen: 7, Out0: 10, Out1: 20}}
			equal(t, "changed", s.Report(c.gen, c.spent, c.back), c.changed)
			equal(t, "level", s.Remaining(0), c.level)
			equal(t, "out0", s.Bucket.Out0, c.out0)
			equal(t, "out1", s.Bucket.Out1, c.out1)
		})
	}
	t.Run("back after the burst was cut below what is out", func(t *testing.T) {
		s := algorithm.State{Limit: perSecond(1, 1, 10), Bucket: algorithm.Bucket{Gen: 7, Out0: 50}}
		s.Report(7, 0, 45)
		equal(t, "level", s.Remaining(0), 5)
	})
	t.Run("window", func(t *testing.T) {
		s := algorithm.State{Limit: fixed(10, 1000), Window: algorithm.Window{Start: 1000, End: 2000, Cur: 5}}
		equal(t, "spent", s.Report(1000, 3, 0), false)
		equal(t, "other window", s.Report(0, 0, 3), false)
		equal(t, "back", s.Report(1000, 0, 3), true)
		equal(t, "count", s.Window.Cur, 2)
	})
}

// TestAdvance_refillsUnderWhatIsOut: a bucket refills in three stretches, each under
// what is still out in it.
func TestAdvance_refillsUnderWhatIsOut(t *testing.T) {
	l := perSecond(1000, 1, 100) // a token a millisecond
	leased := algorithm.Bucket{Level: 10_000, Gen: 0, Out0: 60, Out1: 20}
	for _, c := range []struct {
		now, left, out0, out1 int64
	}{
		{5, 15, 60, 20},
		{499, 20, 60, 20},  // cap 100-80
		{500, 20, 0, 60},   // out1 was another generation's
		{510, 30, 0, 60},   // cap 100-60
		{999, 40, 0, 60},   //
		{1000, 40, 0, 0},   // all dead: the level only now
		{1059, 99, 0, 0},   //
		{99999, 100, 0, 0}, //
	} {
		s := algorithm.State{Limit: l, Bucket: leased}
		if s.Advance(l, c.now) {
			t.Errorf("at %d: dirty", c.now)
		}
		equal(t, "left", s.Remaining(c.now), c.left)
		equal(t, "out0", s.Bucket.Out0, c.out0)
		equal(t, "out1", s.Bucket.Out1, c.out1)
		equal(t, "ts", s.Bucket.TS, c.now)
	}
}

func TestAdvance_clockBehindTheBucket(t *testing.T) {
	l := perSecond(1, 1, 10)
	s := algorithm.State{Limit: l, Bucket: algorithm.Bucket{Level: 2000, TS: 60_000, Gen: 120, Out0: 3}}
	equal(t, "dirty", s.Advance(l, 50_000), true)
	equal(t, "ts", s.Bucket.TS, 50_000)
	equal(t, "generation", s.Bucket.Gen, 120)
	equal(t, "out", s.Out(), 3)
	equal(t, "left", s.Remaining(50_000), 2)
	ttl := s.TTLMS(50_000)
	equal(t, "ttl outlives the lease", ttl, 8000+1+122*500-50_000)
}

// envelope replays admissions through an exact bucket that has a millisecond of
// refill to spare: what fits into it is at most burst + rate·(d + 1 ms) in every
// span of d.
type envelope struct {
	l         *limit.Limit
	level, ts int64
}

func (e *envelope) admit(t *testing.T, now, n int64) {
	t.Helper()
	e.level = min((now-e.ts)*e.l.Rate+e.level, e.l.Burst*e.l.PeriodMS+e.l.Rate)
	e.ts = now
	if e.level -= n * e.l.PeriodMS; e.level < 0 {
		t.Fatalf("%s: admitted too much at %d", e.l, now)
	}
}

// holding is a lease as a pod has it.
type holding struct {
	generation, tokens, spent, until int64
}

// fleet is pods that take leases of one bucket and do with them what is worst.
type fleet struct {
	rng      *rand.Rand
	l        *limit.Limit
	s        algorithm.State
	envelope envelope
	leases   []holding
	now      int64
}

// visit is one pod's call: reports, a cost, a lease.
func (f *fleet) visit(t *testing.T, reports bool) {
	t.Helper()
	f.s.Advance(f.l, f.now)
	for i := len(f.leases) - 1; i >= 0 && reports; i-- {
		if h := f.leases[i]; f.rng.IntN(4) == 0 {
			// Told and given up, or lost with its pod.
			f.drop(i)
			if f.rng.IntN(3) > 0 {
				f.s.Report(h.generation, h.spent, h.tokens-h.spent)
			}
		}
	}
	maxCost := 1 + f.rng.Int64N(min(f.l.Burst, 5))
	cost := 1 + f.rng.Int64N(maxCost)
	if f.s.Ask(f.now, cost).OK {
		f.s.Spend(f.now, cost)
		f.envelope.admit(t, f.now, cost)
		g := f.s.Lease(f.now, algorithm.LeaseAsk{Want: f.rng.Int64N(2 * f.l.Burst), Pods: 1 + f.rng.Int64N(2), MaxCost: maxCost})
		if g.Tokens > 0 {
			f.leases = append(f.leases, holding{g.Generation, g.Tokens, 0, f.now + g.MS})
		}
	}
	if got := f.s.Bucket.Level + f.s.Out()*f.l.PeriodMS; got > f.l.Burst*f.l.PeriodMS || f.s.Bucket.Level < 0 {
		t.Fatalf("%s: level + out = %d at %d", f.l, got, f.now)
	}
}

func (f *fleet) drop(i int) {
	f.leases[i] = f.leases[len(f.leases)-1]
	f.leases = f.leases[:len(f.leases)-1]
}

// spend is a pod that spends some of a lease while it lasts.
func (f *fleet) spend(t *testing.T, i int, all bool) {
	t.Helper()
	h := &f.leases[i]
	n := h.tokens - h.spent
	if n <= 0 || f.now > h.until {
		return
	}
	if !all {
		n = 1 + f.rng.Int64N(n)
	}
	h.spent += n
	f.envelope.admit(t, f.now, n)
}

// assault spends at once whatever can be spent: every lease that lasts, and the
// bucket, at the last millisecond of a lease or just past it.
func (f *fleet) assault(t *testing.T) {
	t.Helper()
	if len(f.leases) > 0 {
		f.now = max(f.now, f.leases[f.rng.IntN(len(f.leases))].until+f.rng.Int64N(3))
	}
	for i := range f.leases {
		f.spend(t, i, true)
	}
	f.s.Advance(f.l, f.now)
	if left := f.s.Remaining(f.now); left > 0 {
		f.s.Spend(f.now, left)
		f.envelope.admit(t, f.now, left)
	}
}

// tick is one thing that happens.
func (f *fleet) tick(t *testing.T) {
	t.Helper()
	for i, v := range slices.Backward(f.leases) {
		if f.now > v.until+1000 {
			f.drop(i)
		}
	}
	switch k := f.rng.IntN(40); {
	case k < 10:
		f.visit(t, true)
	case k < 20:
		f.visit(t, false)
	case k < 26:
		if len(f.leases) > 0 {
			f.spend(t, f.rng.IntN(len(f.leases)), f.rng.IntN(2) == 0)
		}
	case k < 34:
		f.now += f.rng.Int64N(30)
	case k < 36:
		f.now += f.rng.Int64N(600)
	case k < 37: // the edge of a generation, or the millisecond before
		f.now += algorithm.GenerationMS - f.now%algorithm.GenerationMS - f.rng.Int64N(2)
	case k < 38: // long enough to fill up
		f.now += f.rng.Int64N(2000 * f.l.Burst / f.l.Rate)
	default:
		f.assault(t)
	}
}

// TestLease_envelope is the invariant of leases: of any size, spent as
// late as they may be, reported late or never, admit no more than the bucket.
func TestLease_envelope(t *testing.T) {
	episodes := 3_000
	if testing.Short() {
		episodes = 300
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range episodes {
		l := perSecond(1+rng.Int64N(2000), 1+rng.Int64N(2), 1+rng.Int64N(300))
		f := &fleet{rng: rng, l: l, s: algorithm.Fresh(l, 0)}
		f.envelope = envelope{l: l, level: l.Burst*l.PeriodMS + l.Rate}
		for range 500 {
			f.tick(t)
		}
	}
}
