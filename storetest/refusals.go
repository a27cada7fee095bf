package storetest

import (
	"fmt"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// refuseCases are promises about calls that no limiter should make: refused as a
// whole, and nothing happened.
func refuseCases() []testCase {
	return []testCase{
		{name: "CST-02 costs out of bounds", run: refusesCosts},
		{name: "OVF-07 OVF-10 numbers out of bounds", run: refusesNumbers},
		{name: "OVF-02 numbers at their bounds are taken", run: takesLargest},
		{name: "a bucket named twice", run: refusesTwins},
		{name: "too many ops", run: refusesTooMany},
		{name: "TTL-04 a bad op spoils no other", run: badOpSpoilsNothing},
	}
}

func refusesCosts(s *subject) {
	for _, l := range four(20) {
		for _, cost := range []int64{-1, -5, limit.MaxCost + 1, -1 << 63, 1<<63 - 1} {
			for _, how := range []store.How{store.Take, store.Add, store.Back, store.Peek} {
				op := s.op(l.Algorithm.String(), l, cost)
				op.How = how
				s.refused("cost", op)
			}
		}
		want(s, l.String()+" allowed", s.checks(s.op(l.Algorithm.String(), l, 1), 21), 20)
	}
	for _, change := range []func(*store.Op){
		func(op *store.Op) { op.Want = -1 },
		func(op *store.Op) { op.Queue = -1 },
		func(op *store.Op) { op.Pods = -1 },
		func(op *store.Op) { op.MaxCost = -1 },
		func(op *store.Op) { op.Reports = []store.Report{{Spent: -1}} },
		func(op *store.Op) { op.Reports = []store.Report{{Back: -1}} },
		func(op *store.Op) { op.Reports = make([]store.Report, store.MaxReports+1) },
		func(op *store.Op) { op.How = 99 },
	} {
		op := s.op("rule", slowBucket(5), 1)
		change(&op)
		s.refused("an amount below 0", op)
	}
	s.wantLeft(s.op("rule", slowBucket(5), 1), 5)
}

func refusesNumbers(s *subject) {
	huge := int64(1<<53 + 1)
	for _, l := range []*limit.Limit{
		nil,
		{},
		{Algorithm: 77, Capacity: 1, WindowMS: 1000},
		perSecond(0, 1, 1),
		perSecond(-1, 1, 1),
		perSecond(1, 0, 1),
		perSecond(1, 1, 0),
		perSecond(1, 1, huge),
		perSecond(1, 1, 1<<63-1),
		perSecond(1, 1, limit.MaxWindowMS), // full in more than 366 days
		window(limit.FixedWindow, 0, 1000),
		window(limit.FixedWindow, 1, 0),
		window(limit.FixedWindow, huge, 1000),
		window(limit.SlidingWindow, 0, 1000),
		window(limit.SlidingWindow, 1, 0),
		window(limit.SlidingWindow, 1, limit.MaxSlidingWindowMS+1),
		window(limit.SlidingWindow, huge/1000, 1001),
		window(limit.SlidingLog, limit.MaxLogLimit+1, 1000),
		window(limit.SlidingLog, 1, 0),
		{Algorithm: limit.FixedWindow, Capacity: 1, Align: limit.AlignCalendar},
	} {
		s.refused("numbers", s.op("rule", l, 1))
	}
}

// takesLargest is the other side: what the bounds allow is counted to the token.
func takesLargest(s *subject) {
	for i, l := range []*limit.Limit{
		{Algorithm: limit.TokenBucket, Rate: limit.MaxNumber, PeriodMS: 1, Burst: limit.MaxNumber},
		{Algorithm: limit.TokenBucket, Rate: 1_000_000, PeriodMS: limit.MaxPeriodMS, Burst: limit.MaxExact / limit.MaxPeriodMS},
		window(limit.SlidingWindow, limit.MaxExact/limit.MaxSlidingWindowMS, limit.MaxSlidingWindowMS),
		window(limit.FixedWindow, limit.MaxNumber, limit.DayMS),
		window(limit.FixedWindow, limit.MaxNumber, limit.MaxWindowMS),
		window(limit.SlidingLog, limit.MaxLogLimit, limit.MaxWindowMS),
	} {
		op := s.op(fmt.Sprint("rule-", i), l, min(limit.MaxCost, l.Full()/4))
		g := s.one(op)
		want(s, l.String()+" ok", g.OK, true)
		want(s, l.String()+" remaining", g.Remaining, l.Full()-op.Cost)
		if l.Algorithm != limit.TokenBucket { // some refill within a millisecond
			want(s, l.String()+" remaining after an add", s.how(store.Add, op).Remaining, l.Full()-2*op.Cost)
		}
	}
}

func refusesTwins(s *subject) {
	op := s.op("rule", slowBucket(5), 1)
	s.refused("a bucket named twice", op, s.op("other", slowBucket(5), 1), op)
	s.wantLeft(op, 5)
}

func refusesTooMany(s *subject) {
	ops := make([]store.Op, store.MaxOps+1)
	for i := range ops {
		ops[i] = s.op(string(rune('A'+i)), slowBucket(5), 1)
	}
	s.refused("33 ops", ops...)
	s.wantLeft(ops[0], 5)
}

func badOpSpoilsNothing(s *subject) {
	good := s.op("good", slowBucket(5), 1)
	s.refused("a bad op beside a good one", good, s.op("bad", perSecond(0, 1, 5), 1))
	s.refused("a bad op before a good one", s.op("bad", slowBucket(5), -1), good)
	s.wantLeft(good, 5)
	want(s, "allowed of the bucket of the bad op", s.checks(s.op("bad", slowBucket(5), 1), 6), 5)
}
