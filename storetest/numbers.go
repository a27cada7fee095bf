package storetest

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// numberCases are promises about changed numbers: nothing refills.
func numberCases() []testCase {
	return []testCase{
		{name: "REL-03 the same numbers again are no refill", run: sameNumbersAgain},
		{name: "REL-05 a raised limit gives the difference", run: raisedLimit},
		{name: "REL-11 an older revision is decided by the stored numbers", run: olderRevision},
		{name: "an equal revision with other numbers is decided by the stored", run: equalRevision},
		{name: "a denial converts too", run: denialConverts},
		{name: "a look does not convert", run: lookDoesNotConvert},
		{name: "another algorithm keeps what is left", run: otherAlgorithm},
		{name: "REL-08 another window length carries the count", clock: true, run: otherLength},
		{name: "an older calendar does not place newer windows", clock: true, run: olderCalendar},
		{name: "a count at its bound is carried exactly", clock: true, run: largestCount},
		{name: "time before a change refills at the slower rate", clock: true, run: slowerRate},
		{name: "a fraction is kept in another period", clock: true, run: fractionKept},
		{name: "a store that lost count starts with one cost", run: notFresh},
	}
}

func sameNumbersAgain(s *subject) {
	for _, l := range four(20) {
		s.checks(s.op(l.Algorithm.String(), at(2, l), 5), 4)
		for revision := range int64(10) {
			g := s.one(s.op(l.Algorithm.String(), at(4+2*revision, l), 1))
			want(s, l.String()+" ok", g.OK, false)
			want(s, l.String()+" revision", g.Limit.Revision, 4+2*revision)
		}
	}
}

// resized returns l with another burst or capacity, of that revision.
func resized(l *limit.Limit, revision, tokens int64) *limit.Limit {
	c := at(revision, l)
	if l.Algorithm == limit.TokenBucket {
		c.Burst = tokens
	} else {
		c.Capacity = tokens
	}
	return c
}

func raisedLimit(s *subject) {
	for _, l := range four(10)[1:] {
		want(s, l.String()+" allowed", s.checks(s.op(l.Algorithm.String(), l, 1), 50), 10)
		want(s, l.String()+" allowed when raised", s.checks(s.op(l.Algorithm.String(), resized(l, 2, 20), 1), 11), 10)
	}
	bucket := slowBucket(10)
	s.checks(s.op("bucket", bucket, 1), 8)
	want(s, "tokens stay", s.one(s.op("bucket", resized(bucket, 2, 20), 1)).Remaining, 1)
}

func olderRevision(s *subject) {
	big, small := at(2, slowBucket(8000)), at(4, slowBucket(1))
	older, newer := s.op("rule", big, 1), s.op("rule", small, 1)
	want(s, "remaining", s.one(older).Remaining, 7999)
	want(s, "remaining by the new numbers", s.one(newer).Remaining, 0)
	for range 5 {
		g := s.one(older)
		want(s, "ok by an older revision", g.OK, false)
		want(s, "numbers told", g.Limit.Burst, 1)
		want(s, "ok by the new one", s.one(newer).OK, false)
	}
	for _, l := range four(10)[1:] {
		s.one(s.op(l.Algorithm.String(), resized(l, 6, 3), 1))
		g := s.one(s.op(l.Algorithm.String(), at(4, l), 3))
		want(s, l.String()+" ok by an older revision", g.OK, false)
		want(s, l.String()+" remaining", g.Remaining, 2)
		want(s, l.String()+" revision told", g.Limit.Revision, 6)
	}
}

func equalRevision(s *subject) {
	for _, l := range four(10) {
		s.one(s.op(l.Algorithm.String(), at(4, l), 1))
		g := s.one(s.op(l.Algorithm.String(), resized(l, 4, 100), 1))
		want(s, l.String()+" remaining", g.Remaining, 8)
		want(s, l.String()+" numbers told", g.Limit.Full(), 10)
	}
}

func denialConverts(s *subject) {
	for _, l := range four(10) {
		s.one(s.op(l.Algorithm.String(), at(2, l), 7)) // what is left is no full bucket, which a store may forget
		g := s.one(s.op(l.Algorithm.String(), resized(l, 4, 5), 6))
		want(s, l.String()+" never", g.Never, true)
		g = s.one(s.op(l.Algorithm.String(), at(2, l), 0))
		want(s, l.String()+" revision in force", g.Limit.Revision, 4)
		want(s, l.String()+" numbers in force", g.Limit.Full(), 5)
	}
}

func lookDoesNotConvert(s *subject) {
	for _, l := range four(10) {
		s.one(s.op(l.Algorithm.String(), at(2, l), 1))
		look := s.op(l.Algorithm.String(), resized(l, 4, 5), 0)
		want(s, l.String()+" numbers seen", s.how(store.Peek, look).Limit.Full(), 5)
		want(s, l.String()+" numbers seen", s.one(look).Limit.Full(), 5)
		g := s.one(s.op(l.Algorithm.String(), at(2, l), 1))
		want(s, l.String()+" remaining by the old numbers", g.Remaining, 8)
	}
}

func otherAlgorithm(s *subject) {
	for _, from := range four(10) {
		for _, to := range four(20) {
			if from.Algorithm == to.Algorithm {
				continue
			}
			rule := from.Algorithm.String() + " to " + to.Algorithm.String()
			s.one(s.op(rule, at(2, from), 4))
			g := s.one(s.op(rule, at(4, to), 1))
			want(s, rule+" remaining", g.Remaining, 5)
			want(s, rule+" numbers told", g.Limit.Algorithm, to.Algorithm)
			want(s, rule+" allowed", s.checks(s.op(rule, at(4, to), 1), 10), 5)
		}
	}
}

func otherLength(s *subject) {
	s.align(3_600_000)
	hour, short := window(limit.FixedWindow, 5, 3_600_000), at(2, window(limit.FixedWindow, 5, 10_000))
	want(s, "allowed", s.checks(s.op("fixed", hour, 1), 6), 5)
	s.wait(3000)
	g := s.one(s.op("fixed", short, 1))
	want(s, "ok in the same window", g.OK, false)
	want(s, "retry", g.RetryMS, 7000)
	s.wait(7000)
	want(s, "allowed in the next window", s.checks(s.op("fixed", short, 1), 6), 5)

	s.align(360_000)
	minute, longer := window(limit.SlidingWindow, 10, 60_000), at(2, window(limit.SlidingWindow, 10, 90_000))
	s.checks(s.op("sliding", minute, 1), 10)
	s.wait(60_000 + 30_001) // 10 × 29,999/60,000 still count: 5, rounded up
	want(s, "remaining in a longer window", s.left(s.op("sliding", longer, 0)), 5)
}

// olderCalendar: a pod that still has the month's rule must not stretch the day's
// window to a month, in which everybody else would be denied.
func olderCalendar(s *subject) {
	calendar := func(unit limit.Unit, revision int64) *limit.Limit {
		return &limit.Limit{
			Algorithm: limit.FixedWindow, Capacity: 3, Revision: revision,
			Align: limit.AlignCalendar, Calendar: limit.NewCalendar(unit, time.UTC),
		}
	}
	older, newer := s.op("calendar", calendar(limit.Month, 2), 1), s.op("calendar", calendar(limit.Day, 4), 1)
	s.align(limit.DayMS)
	want(s, "allowed on the first day", s.checks(newer, 4), 3)
	s.wait(limit.DayMS)
	g := s.one(older)
	want(s, "ok on the second day", g.OK, true)
	want(s, "reset", g.ResetMS, limit.DayMS)
	want(s, "allowed on the second day", s.checks(newer, 3), 2)
	s.wait(limit.DayMS)
	want(s, "allowed on the third day", s.checks(newer, 4), 3)
}

// largestCount: what counts × the window's length is 2^53, and rounding it up to
// whole tokens must not go beyond, where a double skips every other number.
func largestCount(s *subject) {
	const length = 1 << 20
	old := window(limit.SlidingWindow, limit.MaxExact/length, length)
	op := s.op("rule", old, limit.MaxCost)
	s.align(length)
	for range old.Capacity/limit.MaxCost + 1 {
		s.how(store.Add, op)
	}
	s.wait(length)
	shorter := at(2, window(limit.SlidingWindow, old.Capacity+5, length/2))
	want(s, "remaining", s.left(s.op("rule", shorter, 0)), 5)
}

func slowerRate(s *subject) {
	slow, fast := at(2, perSecond(1, 1, 100)), at(4, perSecond(50, 1, 100))
	s.one(s.op("raised", slow, 100))
	s.wait(2000)
	want(s, "left after a rise", s.one(s.op("raised", fast, 1)).Remaining, 1)
	slow = at(6, perSecond(60, 60, 100))
	s.one(s.op("cut", fast, 100))
	s.wait(2000)
	want(s, "left after a cut, in another period", s.one(s.op("cut", slow, 1)).Remaining, 1)
}

func fractionKept(s *subject) {
	ten, one := at(2, perSecond(10, 10, 20)), at(4, perSecond(1, 1, 20))
	s.one(s.op("rule", ten, 20))
	s.wait(1500)
	g := s.one(s.op("rule", one, 1))
	want(s, "remaining", g.Remaining, 0)
	g = s.one(s.op("rule", one, 1))
	want(s, "retry", g.RetryMS, 500)
}

func notFresh(s *subject) {
	for _, l := range four(10) {
		op := s.op(l.Algorithm.String(), l, 3)
		op.NotFresh = true
		g := s.one(op)
		want(s, l.String()+" ok", g.OK, true)
		want(s, l.String()+" remaining", g.Remaining, 0)
		want(s, l.String()+" allowed", s.checks(s.op(l.Algorithm.String(), l, 1), 2), 0)

		known := s.op("known "+l.Algorithm.String(), l, 3)
		s.one(known)
		known.NotFresh = true
		want(s, l.String()+" remaining of a known one", s.one(known).Remaining, 4)

		costly := s.op("costly "+l.Algorithm.String(), l, 11)
		costly.NotFresh = true
		want(s, l.String()+" never", s.one(costly).Never, true)
		costly.NotFresh = false
		s.wantLeft(costly, 10) // nothing was spent, nothing is stored
	}
}
