package algorithm_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// TestAdvance_converts: what is left right after a change of numbers.
func TestAdvance_converts(t *testing.T) {
	const hour = 3_600_000
	fromFirst := func(capacity, windowMS int64) *limit.Limit {
		l := fixed(capacity, windowMS)
		l.Align = limit.AlignFirstRequest
		return l
	}
	daily := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 100, Align: limit.AlignCalendar, Calendar: limit.NewCalendar(limit.Day, time.UTC)}
	for _, c := range []struct {
		name          string
		from, to      *limit.Limit
		spend, at     int64 // spent at hour
		now, wantLeft int64
	}{
		{"bucket: tokens stay", perSecond(1, 3600, 20), perSecond(1, 3600, 50), 15, hour, hour, 5},
		{"bucket: capped by a smaller burst (REL-11)", perSecond(1, 3600, 1_000_000), perSecond(1, 3600, 1), 1, hour, hour, 1},
		{"bucket: other period, fraction kept", perSecond(10, 10, 20), perSecond(1, 1, 20), 20, hour, hour + 2500, 2},
		{"bucket: time before a rise refills at the old rate", perSecond(1, 1, 100), perSecond(50, 1, 100), 100, hour, hour + 1000, 1},
		{"bucket: time before a cut refills at the new rate", perSecond(50, 1, 100), perSecond(1, 1, 100), 100, hour, hour + 1000, 1},
		{"bucket: a cut in another period", perSecond(50, 1, 100), perSecond(60, 60, 100), 100, hour, hour + 2000, 2},
		{"sliding: a raised limit gives the difference (REL-05)", sliding(10, hour), sliding(20, hour), 10, hour, hour, 10},
		{"sliding: a lowered limit leaves nothing", sliding(10, hour), sliding(5, hour), 10, hour, hour, 0},
		{"sliding: other length, rounded up", sliding(10, 60_000), sliding(10, 90_000), 10, hour, hour + 60_000 + 30_001, 5},
		{"fixed: a raised limit gives the difference (REL-05)", fixed(10, hour), fixed(20, hour), 10, hour, hour, 10},
		{"fixed: other length carries the count (REL-08)", fixed(5, hour), fixed(5, 10_000), 5, hour, hour + 5000, 0},
		{"fixed: a count of an ended window is not carried", fixed(5, 60_000), fixed(5, 10_000), 5, hour, hour + 60_000, 5},
		{"fixed: other alignment carries the count", fixed(5, 60_000), fromFirst(5, 60_000), 3, hour, hour + 59_999, 2},
		{"fixed: to a calendar", fixed(5, 60_000), daily, 3, hour, hour + 59_999, 97},
		{"log: a raised limit gives the difference", slidingLog(5, 60_000), slidingLog(8, 60_000), 5, hour, hour, 3},
		{"log: a lowered limit leaves nothing", slidingLog(5, 60_000), slidingLog(2, 60_000), 5, hour, hour, 0},
		{"log: a longer window keeps what counted", slidingLog(5, 60_000), slidingLog(5, hour), 5, hour, hour + 59_999, 0},
		{"log: a longer window revives nothing", slidingLog(5, 60_000), slidingLog(5, hour), 5, hour, hour + 60_000, 5},
		{"log: a shorter window drops", slidingLog(5, hour), slidingLog(5, 60_000), 5, hour, hour + 60_000, 5},
		{"bucket to window: what was left", perSecond(1, 3600, 20), fixed(100, hour), 13, hour, hour, 7},
		{"bucket to window: at most the new capacity", perSecond(1, 3600, 20), fixed(5, hour), 13, hour, hour, 5},
		{"sliding to bucket", sliding(10, hour), perSecond(1, 3600, 50), 4, hour, hour, 6},
		{"fixed to log", fixed(10, hour), slidingLog(50, hour), 4, hour, hour, 6},
		{"log to sliding", slidingLog(10, hour), sliding(50, hour), 4, hour, hour, 6},
		{"sliding to fixed", sliding(10, hour), fixed(10, hour), 4, hour, hour, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rig{}
			if a := r.take(at(2, c.from), hour, c.spend); !a.OK {
				t.Fatal("denied")
			}
			s, dirty := r.now(at(4, c.to), c.now)
			equal(t, "left", s.Remaining(c.now), c.wantLeft)
			equal(t, "dirty", dirty, true)
			equal(t, "revision", s.Limit.Revision, 4)
			if s.Advance(at(2, c.from), c.now) || s.Remaining(c.now) != c.wantLeft {
				t.Errorf("an older revision changed it: left %d, want %d", s.Remaining(c.now), c.wantLeft)
			}
			if a := s.Ask(c.now, c.wantLeft+1); a.OK {
				t.Errorf("more than what is left passes")
			}
		})
	}
}

func TestAdvance_revisions(t *testing.T) {
	r := rig{}
	r.take(at(4, perSecond(1, 3600, 20)), 0, 15)
	for _, c := range []struct {
		name        string
		l           *limit.Limit
		dirty       bool
		left, stamp int64
	}{
		{"older: stored numbers decide", at(3, perSecond(1, 3600, 50)), false, 5, 4},
		{"equal, other numbers: stored numbers decide", at(4, perSecond(1, 3600, 3)), false, 5, 4},
		{"equal, same numbers", at(4, perSecond(1, 3600, 20)), false, 5, 4},
		{"newer, same numbers: only the revision (REL-03)", at(9, perSecond(1, 3600, 20)), true, 5, 9},
		{"newer, other numbers", at(5, perSecond(1, 3600, 3)), true, 3, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, dirty := r.now(c.l, 0)
			equal(t, "dirty", dirty, c.dirty)
			equal(t, "left", s.Remaining(0), c.left)
			equal(t, "revision", s.Limit.Revision, c.stamp)
		})
	}
}

func TestAdvance_convertsBesideLeases(t *testing.T) {
	held := algorithm.State{Limit: at(1, perSecond(1, 1, 100)), Bucket: algorithm.Bucket{Level: 60_000, Out0: 30, Out1: 10}}
	for _, c := range []struct {
		name            string
		to              *limit.Limit
		now, left, outs int64
	}{
		{"raised: what is left stays", perSecond(1, 1, 500), 0, 60, 40},
		{"cut: level and out fit the new burst", perSecond(1, 1, 50), 0, 10, 40},
		{"cut below what is out", perSecond(1, 1, 20), 0, 0, 40},
		{"cut after a generation", perSecond(1, 1, 50), 500, 20, 30},
		{"another algorithm forgets them", fixed(100, 60_000), 0, 60, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := held
			s.Advance(at(2, c.to), c.now)
			equal(t, "left", s.Remaining(c.now), c.left)
			equal(t, "out", s.Out(), c.outs)
		})
	}
}

// TestAdvance_convertsHugeNumbers: products that would leave 64 bits.
func TestAdvance_convertsHugeNumbers(t *testing.T) {
	wide := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1_000_000, PeriodMS: limit.MaxPeriodMS, Burst: limit.MaxExact / limit.MaxPeriodMS}
	tall := &limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.MaxNumber, PeriodMS: 1, Burst: limit.MaxNumber}
	for _, c := range []struct {
		name     string
		from, to *limit.Limit
		want     int64
	}{
		{"into a long period", tall, wide, wide.Burst},
		{"into a short period", wide, tall, wide.Burst},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := algorithm.Fresh(at(1, c.from), 0)
			s.Bucket.Out0 = 1
			s.Advance(at(2, c.to), 1)
			equal(t, "left", s.Remaining(1), c.want-min(1, c.from.Burst/c.to.Burst))
		})
	}
	t.Run("a window's count stays multipliable", func(t *testing.T) {
		s := algorithm.Fresh(at(1, sliding(1000, 1)), 0)
		s.Add(0, limit.MaxNumber)
		s.Advance(at(2, sliding(1000, limit.MaxSlidingWindowMS)), 0)
		equal(t, "count", s.Window.Cur, limit.MaxExact/limit.MaxSlidingWindowMS)
		equal(t, "retry", s.Ask(0, 1).OK, false)
	})
}

func TestHolding(t *testing.T) {
	for _, l := range []*limit.Limit{perSecond(1, 60, 10), sliding(10, 60_000), fixed(10, 60_000), slidingLog(10, 60_000)} {
		for left, want := range map[int64]int64{0: 0, 3: 3, 10: 10, 11: 10} {
			s := algorithm.Holding(l, 5, left)
			equal(t, l.String()+" left", s.Remaining(5), want)
		}
	}
	s := algorithm.Holding(slidingLog(10, 60_000), 5, 10)
	equal(t, "entries of an untouched log", len(s.Log.Entries), 0)
}
