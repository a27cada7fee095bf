package storetest

import (
	"time"

	"github.com/tallygate/tallygate/limit"
)

// step is n checks of cost at ms after the start, of which allowed pass;
// remaining is what is left after them, retry what the last denial was told.
type step struct {
	ms, cost, n, allowed, remaining, retry int64
}

// unsaid is a figure that a trace does not give.
const unsaid = -1

// trace is a history of one bucket from a whole multiple of its window on.
type trace struct {
	id    string
	limit *limit.Limit
	steps []step
}

// traceCases are the histories of failures that other limiters had, by the ids
// under which they are collected.
func traceCases() []testCase {
	var cases []testCase
	for _, tr := range append(bucketTraces(), windowTraces()...) {
		cases = append(cases, testCase{name: tr.id, clock: true, run: tr.run})
	}
	return append(cases, testCase{name: "calendar windows end at local midnight", clock: true, run: calendarWindows})
}

// bucketTraces are histories of token buckets.
func bucketTraces() []trace {
	const minute, hour = 60_000, 3_600_000
	return []trace{
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
		{"ALG-03", perSecond(10, 1, 10), []step{{0, 1, 1, 1, 9, unsaid}, {minute, 1, 1, 1, 9, unsaid}, {minute, 1, 11, 9, 0, unsaid}}},
		{"ALG-05", perSecond(1, 10, 10), []step{{0, 8, 1, 1, 2, unsaid}, {0, 5, 1, 0, 2, 30_000}, {0, 2, 1, 1, 0, unsaid}, {0, 1, 1, 0, 0, 10_000}}},
		{"ALG-07", perSecond(1, 1, 1), []step{
			{0, 1, 1, 1, 0, unsaid},
			{1000, 1, 1, 1, 0, unsaid},
			{2000, 1, 1, 1, 0, unsaid},
			{3000, 1, 1, 1, 0, unsaid},
			{33_000, 1, 20, 1, 0, unsaid},
			{34_000, 1, 1, 1, 0, unsaid},
		}},
		{"ALG-09", perSecond(6, 60, 6), []step{{0, 1, 6, 6, 0, unsaid}, {5001, 1, 1, 0, 0, 4999}, {9999, 1, 1, 0, 0, 1}, {10_000, 1, 1, 1, 0, unsaid}}},
		{"OVF-02", perSecond(980_000_000, 10, 980_000_000), []step{
			{0, 980_000_000, 1, 1, 0, unsaid},
			{1, 98_000, 1, 1, 0, unsaid},
			{10_000, 980_000_000, 1, 0, 979_902_000, 1},
			{10_001, 980_000_000, 1, 1, 0, unsaid},
		}},
		{"OVF-05 1500 a second", perSecond(1500, 1, 1500), []step{{0, 1500, 1, 1, 0, unsaid}, {1, 1, 3, 1, 0, unsaid}, {2, 1, 3, 2, 0, unsaid}}},
		{"OVF-05 8000 a second", perSecond(8000, 1, 8000), []step{{0, 8000, 1, 1, 0, unsaid}, {1, 1, 10, 8, 0, unsaid}}},
		{"OVF-08", perSecond(1, 2_592_000, 1), []step{{0, 1, 1, 1, 0, unsaid}, {0, 1, 1, 0, 0, 2_592_000_000}}},
		{"HDR-02", perSecond(6, 60, 6), []step{{0, 1, 6, 6, 0, unsaid}, {8500, 1, 1, 0, 0, 1500}, {9500, 1, 1, 0, 0, 500}, {10_500, 1, 1, 1, 0, unsaid}}},
		{"CLK-02 drained buckets stay drained", perSecond(1, 3600, 5), []step{{0, 1, 6, 5, 0, unsaid}, {3_599_999, 1, 1, 0, 0, 1}, {hour, 1, 2, 1, 0, hour}}},
	}
}

// windowTraces are histories of windows and logs.
func windowTraces() []trace {
	const minute, hour = 60_000, 3_600_000
	sliding := func(capacity, ms int64) *limit.Limit { return window(limit.SlidingWindow, capacity, ms) }
	fixed := func(capacity, ms int64) *limit.Limit { return window(limit.FixedWindow, capacity, ms) }
	log := func(capacity, ms int64) *limit.Limit { return window(limit.SlidingLog, capacity, ms) }
	first := fixed(5, minute)
	first.Align = limit.AlignFirstRequest
	return []trace{
		{"ALG-11", sliding(1, 10_000), []step{
			{0, 1, 1, 1, 0, unsaid},
			{5000, 1, 1, 0, 0, unsaid},
			{9900, 1, 1, 0, 0, unsaid},
			{10_000, 1, 1, 0, 0, unsaid},
			{10_500, 1, 1, 0, 0, unsaid},
			{11_000, 1, 1, 0, 0, unsaid},
			{20_000, 1, 1, 1, 0, unsaid},
		}},
		{"ALG-12", log(5, minute), []step{{0, 1, 10, 5, 0, minute}}},
		{"BND-01 sliding_window", sliding(5, minute), []step{{58_000, 1, 5, 5, 0, unsaid}, {61_000, 1, 5, 0, 0, unsaid}}},
		{"BND-01 fixed_window", fixed(5, minute), []step{{58_000, 1, 5, 5, 0, unsaid}, {61_000, 1, 5, 5, 0, unsaid}}},
		{"BND-01 sliding_log", log(5, minute), []step{{58_000, 1, 5, 5, 0, unsaid}, {61_000, 1, 5, 0, 0, 57_000}}},
		{"BND-03", log(5, minute), []step{{0, 1, 5, 5, 0, unsaid}, {59_999, 1, 1, 0, 0, 1}, {60_001, 1, 1, 1, 4, unsaid}}},
		{"BND-05", sliding(10, minute), []step{{59_000, 1, 10, 10, 0, unsaid}, {60_000, 1, 1, 0, 0, 6000}, {65_900, 1, 1, 0, 0, 100}, {66_000, 1, 1, 1, 0, unsaid}}},
		{"BND-05 in the next window", sliding(10, minute), []step{{30_000, 10, 1, 1, 0, unsaid}, {30_000, 1, 1, 0, 0, 36_000}, {66_000, 1, 1, 1, 0, unsaid}}},
		{"CLK-04", fixed(5, minute), []step{{0, 1, 5, 5, 0, unsaid}, {limit.DayMS, 1, 1, 1, 4, unsaid}}},
		{"TTL-02", fixed(5, minute), []step{
			{0, 1, 1, 1, 4, unsaid},
			{10_000, 1, 1, 1, 3, unsaid},
			{20_000, 1, 1, 1, 2, unsaid},
			{30_000, 1, 1, 1, 1, unsaid},
			{40_000, 1, 1, 1, 0, unsaid},
			{50_000, 1, 1, 0, 0, 10_000},
			{60_000, 1, 5, 5, 0, unsaid},
			{110_000, 1, 1, 0, 0, 10_000},
			{120_000, 1, 5, 5, 0, unsaid},
			{170_000, 1, 1, 0, 0, 10_000},
		}},
		{"TTL-02 from the first request", first, []step{
			{7000, 1, 5, 5, 0, unsaid}, {66_999, 1, 1, 0, 0, 1}, {67_000, 1, 5, 5, 0, unsaid}, {126_999, 1, 1, 0, 0, 1}, {200_000, 1, 6, 5, 0, minute},
		}},
		{"HDR-04", fixed(2, minute), []step{{20_000, 1, 2, 2, 0, unsaid}, {20_000, 1, 1, 0, 0, 40_000}, {50_000, 1, 1, 0, 0, 10_000}}},
		{"CST-03 sliding_window", sliding(100, minute), []step{{6000, 10, 11, 10, 0, unsaid}}},
		{"REL-05 sliding_window", sliding(10, hour), []step{{0, 1, 50, 10, 0, unsaid}}},
		{"REL-05 fixed_window", fixed(10, hour), []step{{0, 1, 50, 10, 0, unsaid}}},
	}
}

// longestWindow is a multiple of every window in the traces.
const longestWindow = 3_600_000

func (tr trace) run(s *subject) {
	s.align(longestWindow)
	op, start := s.op("rule", tr.limit, 1), s.now()
	for i, st := range tr.steps {
		s.wait(start + st.ms - s.now())
		op.Cost = st.cost
		var allowed, remaining, retry int64
		for range st.n {
			g := s.one(op)
			remaining = g.Remaining
			if g.OK {
				allowed++
			} else {
				retry = g.RetryMS
			}
		}
		if allowed != st.allowed || st.remaining != unsaid && remaining != st.remaining || st.retry != unsaid && retry != st.retry {
			s.Errorf("step %d at %d ms: %d allowed, %d remaining, retry %d, want %+v", i, st.ms, allowed, remaining, retry, st)
		}
	}
}

func calendarWindows(s *subject) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		s.Skip(err)
	}
	for _, unit := range []limit.Unit{limit.Day, limit.Week, limit.Month} {
		calendar := limit.NewCalendar(unit, zone)
		op := s.op(unit.String(), &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 3, Align: limit.AlignCalendar, Calendar: calendar}, 1)
		_, end := calendar.At(s.now())
		g := s.one(op)
		want(s, unit.String()+" reset", g.ResetMS, end-g.NowMS)
		s.checks(op, 3)
		s.wait(end - 1 - s.now())
		g = s.one(op)
		want(s, unit.String()+" ok a millisecond before", g.OK, false)
		want(s, unit.String()+" retry a millisecond before", g.RetryMS, 1)
		s.wait(1)
		want(s, unit.String()+" allowed after", s.checks(op, 4), 3)
	}
}
