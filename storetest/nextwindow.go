package storetest

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// nextWindowCases are promises about changed numbers that apply from the next
// window on: Op.NextWindow.
func nextWindowCases() []testCase {
	return []testCase{
		{name: "a window that has not ended counts on by its numbers", run: waitsInWindow},
		{name: "newer numbers apply to the window after it", clock: true, run: appliesAfterwards},
		{name: "a cost waits for numbers by which it fits", clock: true, run: costsThatWait},
		{name: "a told wait is enough over the change", clock: true, run: toldWaits},
		{name: "a stamp converts nothing before the window ends", clock: true, run: stampsWait},
		{name: "what is no window, or another algorithm, changes at once", run: changesAtOnce},
		{name: "a clock that steps back does not bring the change", clock: true, run: stepsBackWaiting},
		{name: "the same numbers of a newer revision are taken at once", run: sameNumbersWait},
	}
}

// later is an op whose changed numbers wait for the next window.
func (s *subject) later(rule string, l *limit.Limit, cost int64) store.Op {
	op := s.op(rule, l, cost)
	op.NextWindow = true
	return op
}

// start moves the clock on to a multiple of so many ms and returns it. Calls may
// move the clock, so that what follows compares times rather than waits.
func (s *subject) start(ms int64) int64 {
	s.Helper()
	s.align(ms)
	now := s.now()
	return now - now%ms
}

// until moves the clock on to a time.
func (s *subject) until(ms int64) {
	s.Helper()
	s.wait(ms - s.now())
}

// passesAt is when a denied op was told to pass.
func passesAt(g store.Grant) int64 { return g.NowMS + g.RetryMS }

func waitsInWindow(s *subject) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		for _, c := range []struct {
			name     string
			capacity int64
			windowMS int64
		}{
			{"lowered", 5, hundredDays},
			{"raised", 20, hundredDays},
			{"shortened", 10, 10 * limit.DayMS},
			{"lengthened", 10, 150 * limit.DayMS},
		} {
			rule := c.name + " " + a.String()
			old, changed := at(2, window(a, 10, hundredDays)), at(4, window(a, c.capacity, c.windowMS))
			s.checks(s.op(rule, old, 1), 8)
			g := s.one(s.later(rule, changed, 1))
			want(s, rule+" ok", g.OK, true)
			want(s, rule+" remaining", g.Remaining, 1)
			want(s, rule+" numbers told", g.Limit.Same(old), true)
			want(s, rule+" revision told", g.Limit.Revision, 2)
			want(s, rule+" allowed", s.checks(s.later(rule, changed, 1), 5), 1)
			want(s, rule+" allowed by who does not know", s.checks(s.op(rule, old, 1), 2), 0)
			add := s.how(store.Add, s.later(rule, changed, 3))
			want(s, rule+" numbers told of an add", add.Limit.Revision, 2)
			s.how(store.Back, s.later(rule, changed, 4))
			want(s, rule+" left after one came back", s.left(s.later(rule, changed, 0)), 1)
			// Whoever does not wait changes it now, and it does not change back.
			want(s, rule+" numbers told at once", s.one(s.op(rule, changed, 1)).Limit.Full(), c.capacity)
			want(s, rule+" numbers told after", s.one(s.later(rule, changed, 1)).Limit.Revision, 4)
		}
	}
}

func appliesAfterwards(s *subject) {
	day := &limit.Limit{Algorithm: limit.FixedWindow, Align: limit.AlignCalendar, Calendar: limit.NewCalendar(limit.Day, time.UTC)}
	first := at(0, window(limit.FixedWindow, 0, 3_600_000))
	first.Align = limit.AlignFirstRequest
	for _, c := range []struct {
		name   string
		form   *limit.Limit
		length int64
	}{
		{"clock", window(limit.FixedWindow, 0, 3_600_000), 3_600_000},
		{"calendar", day, limit.DayMS},
		{"first request", first, 3_600_000},
	} {
		for _, capacity := range []int64{5, 20} {
			rule := c.name + map[bool]string{true: " raised", false: " lowered"}[capacity > 10]
			old, changed := resized(c.form, 2, 10), resized(c.form, 4, capacity)
			s.align(c.length)
			g := s.one(s.op(rule, old, 1))
			end := g.NowMS + g.ResetMS
			want(s, rule+" allowed", s.checks(s.op(rule, old, 1), 7), 7)
			s.until(end - 3)
			want(s, rule+" allowed at the end", s.checks(s.later(rule, changed, 1), 4), 2)
			g = s.one(s.later(rule, changed, 1))
			want(s, rule+" retry", passesAt(g), end)
			want(s, rule+" reset", g.NowMS+g.ResetMS, end)
			want(s, rule+" limit told", g.Limit.Full(), 10)
			want(s, rule+" calendar told", g.Limit.Calendar.ID(), old.Calendar.ID())
			s.until(end)
			g = s.one(s.later(rule, changed, 1))
			want(s, rule+" limit told in the next", g.Limit.Full(), capacity)
			want(s, rule+" remaining in the next", g.Remaining, capacity-1)
			want(s, rule+" reset in the next", g.ResetMS > c.length-3 && g.ResetMS <= c.length, true)
			want(s, rule+" allowed in the next", s.checks(s.later(rule, changed, 1), 30), int(capacity)-1)
		}
	}
	start := s.start(3_600_000)
	hour, short := at(2, window(limit.FixedWindow, 10, 3_600_000)), at(4, window(limit.FixedWindow, 3, 10_000))
	s.checks(s.op("shortened", hour, 1), 10)
	s.wait(3_599_000)
	want(s, "retry in the hour", passesAt(s.one(s.later("shortened", short, 1))), start+3_600_000)
	s.until(start + 3_600_000)
	g := s.one(s.later("shortened", short, 4)) // a denial converts
	want(s, "never", g.Never, true)
	want(s, "numbers in force after a denial", s.one(s.op("shortened", hour, 0)).Limit.Revision, 4)
	want(s, "allowed in the short one", s.checks(s.later("shortened", short, 1), 4), 3)
	want(s, "retry in the short one", passesAt(s.one(s.later("shortened", short, 1))), start+3_610_000)
}

// costsThatWait: what the old numbers can never hold, the new ones may, and the
// other way round.
func costsThatWait(s *subject) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		start := s.start(120_000)
		small, large := at(2, window(a, 5, 60_000)), at(4, window(a, 10, 60_000))
		s.one(s.op("raised "+a.String(), small, 3))
		g := s.one(s.later("raised "+a.String(), large, 7))
		want(s, a.String()+" never of what fits later", g.Never, false)
		want(s, a.String()+" retry of what fits later", passesAt(g), start+60_000)
		want(s, a.String()+" never of what fits neither", s.one(s.later("raised "+a.String(), large, 11)).Never, true)

		large, small = at(2, large), at(4, small)
		s.one(s.op("lowered "+a.String(), large, 3))
		g = s.one(s.later("lowered "+a.String(), small, 8))
		want(s, a.String()+" never of what will not fit", g.Never, true)
		want(s, a.String()+" retry of what will not fit", g.RetryMS, 0)
		want(s, a.String()+" ok of what fits until then", s.one(s.later("lowered "+a.String(), small, 7)).OK, true)
	}
	// The previous window fades: above the new limit, and yet in time.
	start := s.start(120_000)
	large, small := at(2, window(limit.SlidingWindow, 10, 60_000)), at(4, window(limit.SlidingWindow, 5, 60_000))
	s.one(s.op("fading", large, 10))
	s.until(start + 66_000)
	s.one(s.op("fading", large, 1)) // of the last window 9 weigh, and 1 counts
	g := s.one(s.later("fading", small, 6))
	want(s, "never of what fits as the last window fades", g.Never, false)
	want(s, "retry of what fits as the last window fades", passesAt(g), start+102_000) // 3 weigh
}

// toldWaits: waiting as long as told is enough and a millisecond less is not, where
// the numbers change meanwhile.
func toldWaits(s *subject) {
	sliding := func(revision, capacity, ms int64) *limit.Limit {
		return at(revision, window(limit.SlidingWindow, capacity, ms))
	}
	for _, c := range []struct {
		name     string
		from, to *limit.Limit
		retry    int64
	}{
		// 10 × (60 − e) + 1 × 60 ≤ 5 × 60 from e = 36 on.
		{"lowered", sliding(2, 10, 60_000), sliding(4, 5, 60_000), 60_000 + 36_000},
		{"raised", sliding(2, 10, 60_000), sliding(4, 20, 60_000), 60_000},
		// Carried into the other window as it stands when it is asked.
		{"lengthened", sliding(2, 10, 60_000), sliding(4, 5, 90_000), 60_000 + 36_000},
		{"shortened", sliding(2, 10, 60_000), sliding(4, 9, 7_000), 60_000 + 12_000},
	} {
		for _, early := range []int64{1, 0} {
			rule := c.name + map[int64]string{1: " early", 0: ""}[early]
			start := s.start(180_000)
			s.checks(s.op(rule, c.from, 1), 10)
			g := s.one(s.later(rule, c.to, 1))
			want(s, rule+" retry", passesAt(g), start+c.retry)
			s.wait(g.RetryMS - early)
			then := s.one(s.later(rule, c.to, 1))
			want(s, rule+" ok", then.OK, then.NowMS >= passesAt(g))
		}
	}
}

func stampsWait(s *subject) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		start := s.start(60_000)
		old, changed := at(2, window(a, 10, 60_000)), at(4, window(a, 5, 60_000))
		s.one(s.op(a.String(), old, 8))
		s.until(start + 59_997)
		want(s, a.String()+" revision stamped early", s.how(store.Stamp, s.later(a.String(), changed, 0)).Limit.Revision, 2)
		want(s, a.String()+" left", s.left(s.op(a.String(), old, 0)), 2)
		s.until(start + 60_000)
		want(s, a.String()+" revision stamped in time", s.how(store.Stamp, s.later(a.String(), changed, 0)).Limit.Revision, 4)
		want(s, a.String()+" revision in force", s.one(s.op(a.String(), old, 1)).Limit.Revision, 4)
	}
}

func changesAtOnce(s *subject) {
	for _, from := range four(10) {
		for _, to := range four(20) {
			windows := from.Algorithm == limit.FixedWindow || from.Algorithm == limit.SlidingWindow
			if from.Algorithm == to.Algorithm && windows {
				continue
			}
			rule := from.Algorithm.String() + " to " + to.Algorithm.String()
			s.one(s.op(rule, at(2, from), 4))
			g := s.one(s.later(rule, at(4, to), 1))
			want(s, rule+" revision", g.Limit.Revision, 4)
			want(s, rule+" limit", g.Limit.Full(), 20)
		}
	}
	for _, l := range four(10) {
		want(s, l.String()+" left of a missing one", s.one(s.later("missing "+l.Algorithm.String(), at(4, l), 1)).Remaining, 9)
	}
}

func stepsBackWaiting(s *subject) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		s.align(600_000)
		old, changed := at(2, window(a, 10, 60_000)), at(4, window(a, 5, 60_000))
		s.one(s.op(a.String(), old, 8))
		for _, back := range []int64{30_000, 200_000} { // within a window's length, and beyond
			s.wait(-back)
			g := s.one(s.later(a.String(), changed, 3))
			want(s, a.String()+" ok", g.OK, false)
			want(s, a.String()+" remaining", g.Remaining, 2)
			want(s, a.String()+" revision", g.Limit.Revision, 2)
			want(s, a.String()+" reset within two windows", g.ResetMS > 0 && g.ResetMS <= 120_000, true)
		}
	}
}

func sameNumbersWait(s *subject) {
	for _, l := range four(10) {
		s.one(s.op(l.Algorithm.String(), at(2, l), 4))
		g := s.one(s.later(l.Algorithm.String(), at(4, l), 1))
		want(s, l.String()+" revision", g.Limit.Revision, 4)
		want(s, l.String()+" remaining", g.Remaining, 5)
	}
}
