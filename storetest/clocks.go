package storetest

import (
	"github.com/tallygate/tallygate/limit"
)

// clockCases are promises about time.
func clockCases() []testCase {
	return []testCase{
		{name: "the told retry is true to the millisecond", clock: true, run: retryIsTrue},
		{name: "the told reset is true", clock: true, run: resetIsTrue},
		{name: "CLK-02 a clock that steps back is no refill", clock: true, run: clockBackIsNoRefill},
		{name: "a clock that steps back locks nobody out", clock: true, run: clockBackLocksNobodyOut},
		{name: "a window holds for one length of it, then is re-based", clock: true, run: windowHolds},
		{name: "MUL-02 a short and a long window stacked", clock: true, run: stackedWindows},
		{name: "all ops of a call see one time", run: oneTime},
	}
}

// busy returns limits of ten tokens that come back within minutes.
func busy() []*limit.Limit {
	first := window(limit.FixedWindow, 10, 60_000)
	first.Align = limit.AlignFirstRequest
	return []*limit.Limit{
		perSecond(7, 61, 10),
		window(limit.SlidingWindow, 10, 60_000),
		window(limit.SlidingLog, 10, 60_000),
		window(limit.FixedWindow, 10, 60_000),
		first,
	}
}

func retryIsTrue(s *subject) {
	for i, l := range busy() {
		op := s.op(string(rune('a'+i)), l, 1)
		for round := range int64(12) {
			op.Cost = 1 + round*5%4
			g := s.one(op)
			for !g.OK {
				if g.RetryMS < 1 {
					s.Fatalf("%s: denied with retry %d", l, g.RetryMS)
				}
				s.wait(g.RetryMS - 1)
				if early := s.one(op); early.OK || early.RetryMS != 1 {
					s.Errorf("%s: 1 ms before retry: ok %v, retry %d", l, early.OK, early.RetryMS)
				}
				s.wait(1)
				if g = s.one(op); !g.OK {
					s.Errorf("%s: denied again after the told retry", l)
				}
			}
			s.wait(round * 1009)
		}
	}
}

func resetIsTrue(s *subject) {
	for i, l := range busy() {
		if l.Algorithm == limit.SlidingWindow {
			continue // its reset is the window's end, when it is not full yet
		}
		op := s.op(string(rune('a'+i)), l, 3)
		s.one(op)
		s.wait(1777)
		g := s.one(op)
		s.wait(g.ResetMS)
		s.wantLeft(op, 10)
	}
}

func clockBackIsNoRefill(s *subject) {
	for _, back := range []int64{1, 10_000, 60_000, 3_600_000} {
		for i, l := range busy() {
			op := s.op(string(rune('a'+i)), l, 1)
			op.Bucket.Key += string(rune('a' + back%26))
			s.align(60_000)
			s.checks(op, 10)
			s.wait(-back)
			g := s.one(op)
			want(s, l.String()+" ok", g.OK, false)
			want(s, l.String()+" remaining", g.Remaining, 0)
			s.wait(back)
		}
	}
}

func clockBackLocksNobodyOut(s *subject) {
	bucket := s.op("bucket", perSecond(1, 10, 5), 1)
	s.checks(bucket, 5)
	s.wait(-3_600_000)
	g := s.one(bucket)
	want(s, "ok", g.OK, false)
	want(s, "retry", g.RetryMS, 10_000)
	s.wait(10_000)
	want(s, "ok after it", s.one(bucket).OK, true)

	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		op := s.op(a.String(), window(a, 5, 60_000), 1)
		s.align(60_000)
		s.checks(op, 5)
		s.wait(-600_000)
		s.one(op)
		s.wait(120_000)
		want(s, a.String()+" ok two windows later", s.one(op).OK, true)
	}
}

func windowHolds(s *subject) {
	for _, c := range []struct {
		a           limit.Algorithm
		back, retry int64
	}{
		{limit.FixedWindow, 1, 60_001},
		{limit.FixedWindow, 60_000, 120_000},
		{limit.FixedWindow, 60_001, 1},
		{limit.SlidingWindow, 60_000, 126_000},
		{limit.SlidingWindow, 60_001, 6001},
		{limit.SlidingLog, 60_001, 120_001},
	} {
		op := s.op(c.a.String(), window(c.a, 10, 60_000), 10)
		op.Bucket.Key += string(rune('a' + c.back%26))
		s.align(60_000)
		s.one(op)
		s.wait(-c.back)
		op.Cost = 1
		for range 2 { // the second finds what the first has stored
			want(s, c.a.String()+" retry", s.one(op).RetryMS, c.retry)
		}
	}
}

func stackedWindows(s *subject) {
	s.align(1_800_000)
	short := s.op("short", window(limit.FixedWindow, 10, 60_000), 1)
	long := s.op("long", window(limit.FixedWindow, 30, 1_800_000), 1)
	for minute, c := range []struct{ offered, allowed int }{{16, 10}, {15, 10}, {11, 10}, {1, 0}} {
		allowed := 0
		for range c.offered {
			grants := s.do(short, long)
			if grants[0].OK && grants[1].OK {
				allowed++
			}
		}
		if allowed != c.allowed {
			s.Errorf("minute %d: %d allowed, want %d", minute, allowed, c.allowed)
		}
		s.wait(60_000)
	}
}

func oneTime(s *subject) {
	grants := s.do(s.op("a", slowBucket(1), 1), s.op("b", four(1)[1], 1), s.op("c", four(1)[2], 1))
	for _, g := range grants {
		want(s, "now", g.NowMS, grants[0].NowMS)
	}
}
