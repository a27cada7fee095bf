package storetest

import (
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// takeCases are promises about spending.
func takeCases() []testCase {
	return []testCase{
		{name: "spends exactly what is there", run: spendsExactly},
		{name: "ALG-05 a denied costly request spends nothing", run: denialSpendsNothing},
		{name: "ALG-12 requests of one millisecond are distinct", run: sameMillisecond},
		{name: "all or nothing", run: allOrNothing},
		{name: "MET-03 only the denying bucket is to blame", run: onlyTheDenierDenies},
		{name: "CST-03 costs are added", run: costsAreAdded},
		{name: "CST-05 cost 0 looks", run: costZeroLooks},
		{name: "a cost above full never passes", run: neverPasses},
		{name: "SHD-01 shadow denies nobody", run: shadowDeniesNobody},
		{name: "shadow spends with the others", run: shadowSpendsWithOthers},
		{name: "queue is granted as far as it goes", run: queueIsGranted},
		{name: "a receipt says what was spent", run: receiptSaysWhatWasSpent},
		{name: "no ops, no grants", run: func(s *subject) { s.do() }},
		{name: "as many ops as may be", run: asManyOpsAsMayBe},
	}
}

func spendsExactly(s *subject) {
	for _, l := range four(7) {
		op := s.op(l.Algorithm.String(), l, 1)
		for i := range int64(7) {
			g := s.one(op)
			want(s, l.String()+" ok", g.OK, true)
			want(s, l.String()+" remaining", g.Remaining, 6-i)
		}
		g := s.one(op)
		want(s, l.String()+" ok", g.OK, false)
		want(s, l.String()+" remaining", g.Remaining, 0)
		want(s, l.String()+" numbers", g.Limit.Same(l), true)
		if g.RetryMS < 1 || g.ResetMS < 1 {
			s.Errorf("%s: denied with retry %d, reset %d", l, g.RetryMS, g.ResetMS)
		}
	}
}

func denialSpendsNothing(s *subject) {
	for _, l := range four(10) {
		op := s.op(l.Algorithm.String(), l, 8)
		s.one(op)
		op.Cost = 5
		for range 3 {
			g := s.one(op)
			want(s, l.String()+" ok", g.OK, false)
			want(s, l.String()+" remaining", g.Remaining, 2)
		}
		op.Cost = 2
		want(s, l.String()+" ok", s.one(op).OK, true)
	}
}

func sameMillisecond(s *subject) {
	op := s.op("log", window(limit.SlidingLog, 5, hundredDays), 1)
	want(s, "allowed", s.checks(op, 10), 5)
}

func allOrNothing(s *subject) {
	for _, big := range four(10) {
		for _, small := range four(2) {
			a := s.op("big "+big.Algorithm.String()+" "+small.Algorithm.String(), big, 1)
			b := s.op("small "+big.Algorithm.String()+" "+small.Algorithm.String(), small, 1)
			for i := range 5 {
				grants := s.do(a, b)
				want(s, "big ok", grants[0].OK, true)
				want(s, "small ok", grants[1].OK, i < 2)
			}
			s.wantLeft(a, 8)
			s.wantLeft(b, 0)
			s.do(b, a) // the order does not matter
			s.wantLeft(a, 8)
		}
	}
}

func onlyTheDenierDenies(s *subject) {
	site, user := s.op("site", slowBucket(100), 1), s.op("user", slowBucket(2), 1)
	for range 10 {
		if grants := s.do(site, user); !grants[0].OK {
			s.Error("the site's limit denied")
		}
	}
	s.wantLeft(site, 98)
	s.wantLeft(user, 0)
}

func costsAreAdded(s *subject) {
	for _, l := range four(100) {
		want(s, l.String()+" allowed", s.checks(s.op(l.Algorithm.String(), l, 10), 11), 10)
	}
}

func costZeroLooks(s *subject) {
	for _, l := range four(5) {
		op := s.op(l.Algorithm.String(), l, 3)
		s.one(op)
		op.Cost, op.Want, op.Queue = 0, 50, 50
		for range 20 {
			g := s.one(op)
			want(s, l.String()+" ok", g.OK, true)
			want(s, l.String()+" remaining", g.Remaining, 2)
			want(s, l.String()+" lease", g.Lease, 0)
			want(s, l.String()+" queue", g.Queue, 0)
		}
		want(s, l.String()+" allowed", s.checks(s.op(l.Algorithm.String(), l, 1), 3), 2)
	}
}

func neverPasses(s *subject) {
	for _, l := range four(5) {
		g := s.one(s.op(l.Algorithm.String(), l, 6))
		want(s, l.String()+" ok", g.OK, false)
		want(s, l.String()+" never", g.Never, true)
		want(s, l.String()+" retry", g.RetryMS, 0)
		want(s, l.String()+" remaining", g.Remaining, 5)
	}
}

func shadowDeniesNobody(s *subject) {
	enforced, shadow := s.op("enforced", slowBucket(20), 1), s.op("shadow", slowBucket(5), 1)
	shadow.Shadow = true
	denied := 0
	for range 20 {
		grants := s.do(enforced, shadow)
		want(s, "enforced ok", grants[0].OK, true)
		if !grants[1].OK {
			denied++
		}
	}
	want(s, "denials in shadow", denied, 15)
	s.wantLeft(enforced, 0)
}

func shadowSpendsWithOthers(s *subject) {
	for _, l := range four(10) {
		enforced, shadow := s.op("enforced "+l.Algorithm.String(), slowBucket(3), 1), s.op("shadow "+l.Algorithm.String(), l, 1)
		shadow.Shadow = true
		for range 5 {
			s.do(shadow, enforced)
		}
		s.wantLeft(shadow, 7)
	}
}

func queueIsGranted(s *subject) {
	for _, l := range []*limit.Limit{four(10)[0], four(10)[1], four(10)[3]} {
		op := s.op(l.Algorithm.String(), l, 2)
		op.Queue = 5
		g := s.one(op)
		want(s, l.String()+" queue", g.Queue, 5)
		want(s, l.String()+" remaining", g.Remaining, 3)
		g = s.one(op)
		want(s, l.String()+" queue beyond what is left", g.Queue, 1)
		want(s, l.String()+" remaining", g.Remaining, 0)
		g = s.one(op)
		want(s, l.String()+" queue of a denial", g.Queue, 0)
	}
	other := s.op("other", slowBucket(10), 2)
	other.Queue = 5
	g := s.do(other, s.op("empty", slowBucket(1), 2))[0]
	want(s, "queue when another op denies", g.Queue, 0)
	s.wantLeft(other, 10)
}

func receiptSaysWhatWasSpent(s *subject) {
	for _, l := range four(10) {
		op := s.op(l.Algorithm.String(), l, 4)
		want(s, l.String()+" receipt of a take", s.one(op).Receipt.Cost, 4)
		op.Cost = 7
		want(s, l.String()+" receipt of a denial", s.one(op).Receipt, store.Receipt{})
	}
	grants := s.do(s.op("spent", slowBucket(10), 1), s.op("denied", slowBucket(1), 2))
	want(s, "receipt when another op denies", grants[0].Receipt, store.Receipt{})
}

func asManyOpsAsMayBe(s *subject) {
	ops := make([]store.Op, store.MaxOps)
	for i := range ops {
		ops[i] = s.op(string(rune('A'+i)), four(3)[i%4], 1)
	}
	for i := range 4 {
		for _, g := range s.do(ops...) {
			want(s, "ok", g.OK, i < 3)
		}
	}
}
