package algorithm_test

import (
	"testing"

	"github.com/tallygate/tallygate/limit"
)

// step is n checks of cost at a time, of which allowed pass; remaining is what
// is left after them, retry what the last denial was told.
type step struct {
	ms, cost, n, allowed, remaining, retry int64
}

const unsaid = -1

// TestTraces runs failures that other limiters had, by their ids.
func TestTraces(t *testing.T) {
	for _, c := range []struct {
		id    string
		limit *limit.Limit
		steps []step
	}{
		{"ALG-01", perSecond(10, 30, 10), []step{
			{0, 1, 1, 1, 9, unsaid},
			{1000, 1, 1, 1, 8, unsaid},
			{2000, 1, 1, 1, 7, unsaid},
			{3000, 1, 1, 1, 7, unsaid},
			{4000, 1, 1, 1, 6, unsaid},
			{5000, 1, 1, 1, 5, unsaid},
			{6000, 1, 1, 1, 5, unsaid},
			{7000, 1, 1, 1, 4, unsaid},
			{8000, 1, 1, 1, 3, unsaid},
			{9000, 1, 1, 1, 3, unsaid},
			{10000, 1, 1, 1, 2, unsaid},
			{11000, 1, 1, 1, 1, unsaid},
			{12000, 1, 1, 1, 1, unsaid},
			{13000, 1, 1, 1, 0, unsaid},
			{14000, 1, 1, 0, 0, 1000},
		}},
		{"ALG-03", perSecond(10, 1, 10), []step{{0, 1, 1, 1, 9, unsaid}, {60000, 1, 1, 1, 9, unsaid}, {60000, 1, 11, 9, 0, unsaid}}},
		{"ALG-05", perSecond(1, 10, 10), []step{{0, 8, 1, 1, 2, unsaid}, {0, 5, 1, 0, 2, 30000}, {0, 2, 1, 1, 0, unsaid}, {0, 1, 1, 0, 0, 10000}}},
		{"ALG-07", perSecond(1, 1, 1), []step{
			{0, 1, 1, 1, 0, unsaid},
			{1000, 1, 1, 1, 0, unsaid},
			{2000, 1, 1, 1, 0, unsaid},
			{3000, 1, 1, 1, 0, unsaid},
			{33000, 1, 20, 1, 0, unsaid},
			{34000, 1, 1, 1, 0, unsaid},
		}},
		{"ALG-09", perSecond(6, 60, 6), []step{{0, 1, 6, 6, 0, unsaid}, {5001, 1, 1, 0, 0, 4999}, {9999, 1, 1, 0, 0, 1}, {10000, 1, 1, 1, 0, unsaid}}},
		{"ALG-11", sliding(1, 10_000), []step{
			{0, 1, 1, 1, unsaid, unsaid},
			{5000, 1, 1, 0, unsaid, unsaid},
			{9900, 1, 1, 0, unsaid, unsaid},
			{10000, 1, 1, 0, unsaid, unsaid},
			{10500, 1, 1, 0, unsaid, unsaid},
			{11000, 1, 1, 0, unsaid, unsaid},
			{20000, 1, 1, 1, unsaid, unsaid},
		}},
		{"ALG-11 fresh key", sliding(1, 10_000), []step{{9900, 1, 1, 1, unsaid, unsaid}, {10100, 1, 1, 0, unsaid, unsaid}}},
		{"ALG-12", slidingLog(5, 60_000), []step{{0, 1, 10, 5, unsaid, unsaid}}},
		{"BND-01 sliding_window", sliding(5, 60_000), []step{{58000, 1, 5, 5, unsaid, unsaid}, {61000, 1, 5, 0, unsaid, unsaid}}},
		{"BND-01 fixed_window", fixed(5, 60_000), []step{{58000, 1, 5, 5, unsaid, unsaid}, {61000, 1, 5, 5, unsaid, unsaid}}},
		{"BND-01 sliding_log", slidingLog(5, 60_000), []step{{58000, 1, 5, 5, unsaid, unsaid}, {61000, 1, 5, 0, unsaid, unsaid}}},
		{"BND-03", slidingLog(5, 60_000), []step{{0, 1, 5, 5, unsaid, unsaid}, {59999, 1, 1, 0, unsaid, 1}, {60001, 1, 1, 1, 4, unsaid}}},
		{"BND-05", sliding(10, 60_000), []step{{59000, 1, 10, 10, unsaid, unsaid}, {60000, 1, 1, 0, unsaid, 6000}, {65900, 1, 1, 0, unsaid, 100}, {66000, 1, 1, 1, unsaid, unsaid}}},
		{"CLK-04", fixed(5, 60_000), []step{{1_790_849_700_000, 1, 5, 5, unsaid, unsaid}, {1_790_936_100_000, 1, 1, 1, 4, unsaid}}},
		{"TTL-02", fixed(5, 60_000), []step{
			{0, 1, 1, 1, unsaid, unsaid},
			{10000, 1, 1, 1, unsaid, unsaid},
			{20000, 1, 1, 1, unsaid, unsaid},
			{30000, 1, 1, 1, unsaid, unsaid},
			{40000, 1, 1, 1, unsaid, unsaid},
			{50000, 1, 1, 0, unsaid, unsaid},
			{60000, 1, 1, 1, unsaid, unsaid},
			{70000, 1, 1, 1, unsaid, unsaid},
			{80000, 1, 1, 1, unsaid, unsaid},
			{90000, 1, 1, 1, unsaid, unsaid},
			{100000, 1, 1, 1, unsaid, unsaid},
			{110000, 1, 1, 0, unsaid, unsaid},
			{120000, 1, 1, 1, unsaid, unsaid},
			{130000, 1, 1, 1, unsaid, unsaid},
			{140000, 1, 1, 1, unsaid, unsaid},
			{150000, 1, 1, 1, unsaid, unsaid},
			{160000, 1, 1, 1, unsaid, unsaid},
			{170000, 1, 1, 0, unsaid, unsaid},
		}},
		{"OVF-02", perSecond(980_000_000, 10, 980_000_000), []step{
			{0, 980_000_000, 1, 1, 0, unsaid},
			{1, 98_000, 1, 1, 0, unsaid},
			{10_000, 980_000_000, 1, 0, 979_902_000, 1},
			{10_001, 980_000_000, 1, 1, 0, unsaid},
		}},
		{"OVF-05 1500", perSecond(1500, 1, 1500), []step{{0, 1, 1500, 1500, 0, unsaid}, {1, 1, 3, 1, 0, unsaid}, {2, 1, 3, 2, 0, unsaid}}},
		{"OVF-05 8000", perSecond(8000, 1, 8000), []step{{0, 1, 8000, 8000, 0, unsaid}, {1, 1, 10, 8, 0, unsaid}}},
		{"OVF-08", perSecond(1, 2_592_000, 1), []step{{0, 1, 1, 1, 0, unsaid}, {0, 1, 1, 0, 0, 2_592_000_000}}},
		{"HDR-02", perSecond(6, 60, 6), []step{{0, 1, 6, 6, 0, unsaid}, {8500, 1, 1, 0, 0, 1500}, {9500, 1, 1, 0, 0, 500}, {10500, 1, 1, 1, 0, unsaid}}},
		{"HDR-04", fixed(2, 60_000), []step{{20000, 1, 2, 2, 0, unsaid}, {20000, 1, 1, 0, 0, 40000}, {50000, 1, 1, 0, 0, 10000}}},
		{"REL-05 fixed_window", fixed(10, 3_600_000), []step{{0, 1, 50, 10, unsaid, unsaid}}},
		{"REL-05 sliding_window", sliding(10, 3_600_000), []step{{0, 1, 50, 10, unsaid, unsaid}}},
		{"CST-03 sliding_window", sliding(100, 60_000), []step{{6000, 10, 11, 10, unsaid, unsaid}}},
		{"CST-03 fixed_window", fixed(100, 60_000), []step{{6000, 10, 11, 10, unsaid, unsaid}}},
		{"a window counts costs, not checks", sliding(100, 60_000), []step{{0, 10, 91, 10, 0, unsaid}}},
		{"retry in this window", sliding(100, 60_000), []step{
			{0, 100, 1, 1, 0, unsaid}, {63_000, 5, 1, 1, 0, unsaid}, {63_000, 1, 1, 0, 0, 600},
		}},
		{"retry in the next window", sliding(10, 60_000), []step{{30_000, 10, 1, 1, 0, unsaid}, {30_000, 1, 1, 0, 0, 36_000}}},
	} {
		t.Run(c.id, func(t *testing.T) {
			r := rig{}
			for _, s := range c.steps {
				var allowed, retry, remaining int64
				for range s.n {
					a := r.take(c.limit, s.ms, s.cost)
					if a.OK {
						allowed++
					} else {
						retry = a.RetryMS
					}
					remaining = a.remaining
					r.checkRetry(t, c.limit, s.ms, s.cost, a.Answer)
				}
				equal(t, "allowed", allowed, s.allowed)
				if s.remaining != unsaid {
					equal(t, "remaining", remaining, s.remaining)
				}
				if s.retry != unsaid {
					equal(t, "retry", retry, s.retry)
				}
			}
		})
	}
}

// TestResetMS_ofWhatIsMissing: 59 tokens at 100 a second are 590 ms.
func TestResetMS_ofWhatIsMissing(t *testing.T) {
	r := rig{}
	a := r.take(perSecond(100, 1, 200), 0, 59)
	equal(t, "remaining", a.remaining, 141)
	equal(t, "reset", a.reset, 590)
}

func TestTake_refusesMoreThanFull(t *testing.T) {
	for _, l := range []*limit.Limit{perSecond(1, 1, 5), sliding(5, 1000), fixed(5, 1000), slidingLog(5, 1000)} {
		r := rig{}
		a := r.take(l, 0, 6)
		equal(t, l.Algorithm.String()+" ok", a.OK, false)
		equal(t, l.Algorithm.String()+" never", a.Never, true)
		equal(t, l.Algorithm.String()+" retry", a.RetryMS, 0)
	}
}

func TestTake_allocatesNothing(t *testing.T) {
	for _, l := range []*limit.Limit{perSecond(1000, 1, 1000), sliding(1<<30, 1000), fixed(1<<30, 1000)} {
		s := rigState(l)
		now := int64(0)
		got := testing.AllocsPerRun(1000, func() {
			now++
			next := s
			next.Advance(l, now)
			if next.Ask(now, 1).OK {
				next.Spend(now, 1)
			}
			s = next
		})
		equal(t, l.String()+" allocations", got, 0)
	}
}
