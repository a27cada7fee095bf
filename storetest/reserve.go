package storetest

import (
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// reserveCases are promises about reservations.
func reserveCases() []testCase {
	return []testCase{
		{name: "a commit adds the difference or gives it back", run: commitSettles},
		{name: "a cancel gives all back", run: cancelGivesBack},
		{name: "each call can be repeated", run: reservationRepeats},
		{name: "a settled name is refused", run: settledIsRefused},
		{name: "a commit above what is left stops at 0", run: commitFloors},
		{name: "a commit of the unknown adds its cost once", run: lateCommit},
		{name: "a denied reservation leaves nothing", run: deniedReserves},
		{name: "all buckets are reserved or none", run: reserveAllOrNone},
		{name: "shadow reserves and denies nobody", run: shadowReserves},
		{name: "an undo forgets the reservation", run: undoneReservation},
		{name: "it ends to the millisecond", clock: true, run: reservationEnds},
		{name: "a mark stays for its time", clock: true, run: markStays},
		{name: "another window gives nothing back", clock: true, run: reservedInAnotherWindow},
		{name: "what ended in a window was given back in it", clock: true, run: endedInItsWindow},
		{name: "the places are bounded, and marks make room", clock: true, run: reservationPlaces},
		{name: "other numbers keep it", run: convertedReservation},
		{name: "a bucket outlives its tokens", clock: true, run: bucketOutlives},
		{name: "leases go on beside it", clock: true, leases: true, run: leasesBeside},
		{name: "a log refuses", run: logRefusesReservations},
	}
}

// three are limits of so many tokens by the algorithms that can reserve.
func three(tokens int64) []*limit.Limit {
	var list []*limit.Limit
	for _, l := range four(tokens) {
		if l.Algorithm != limit.SlidingLog {
			list = append(list, l)
		}
	}
	return list
}

// reservation is an op on a reservation that lives for a minute.
func (s *subject) reservation(how store.How, rule string, l *limit.Limit, name byte, cost int64) store.Op {
	op := s.op(rule, l, cost)
	op.How, op.Reservation, op.TTLMS = how, store.ReservationID{name}, 60_000
	return op
}

// met makes a call on a reservation and fails unless it met that.
func (s *subject) met(what string, op store.Op, ok bool, met store.Reserved) store.Grant {
	s.Helper()
	g := s.one(op)
	want(s, op.Limit.String()+": "+what+" ok", g.OK, ok)
	want(s, op.Limit.String()+": "+what+" met", g.Reserved, met)
	return g
}

func commitSettles(s *subject) {
	for _, l := range three(100) {
		rule := l.Algorithm.String()
		g := s.met("reserve", s.reservation(store.Reserve, rule, l, 1, 30), true, store.ReservedNow)
		want(s, rule+" remaining", g.Remaining, 70)
		want(s, rule+" receipt", g.Receipt.Cost, 30)
		g = s.met("commit of less", s.reservation(store.Commit, rule, l, 1, 12), true, store.ReservedNow)
		want(s, rule+" remaining", g.Remaining, 88)
		s.met("reserve", s.reservation(store.Reserve, rule, l, 2, 8), true, store.ReservedNow)
		g = s.met("commit of more", s.reservation(store.Commit, rule, l, 2, 20), true, store.ReservedNow)
		want(s, rule+" remaining", g.Remaining, 68)
		s.met("reserve", s.reservation(store.Reserve, rule, l, 3, 8), true, store.ReservedNow)
		s.met("commit of nothing", s.reservation(store.Commit, rule, l, 3, 0), true, store.ReservedNow)
		s.wantLeft(s.op(rule, l, 0), 68)
	}
}

func cancelGivesBack(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		s.met("reserve", s.reservation(store.Reserve, rule, l, 1, 7), true, store.ReservedNow)
		g := s.met("cancel", s.reservation(store.Cancel, rule, l, 1, 0), true, store.ReservedNow)
		want(s, rule+" remaining", g.Remaining, 10)
		s.met("cancel of the unknown", s.reservation(store.Cancel, rule, l, 9, 0), true, store.ReservedUnknown)
		s.met("cancel in an unknown bucket", s.reservation(store.Cancel, rule+" unknown", l, 9, 0), true, store.ReservedUnknown)
	}
}

func reservationRepeats(s *subject) {
	for _, l := range three(20) {
		rule := l.Algorithm.String()
		for _, met := range []store.Reserved{store.ReservedNow, store.ReservedBefore, store.ReservedBefore} {
			g := s.met("reserve", s.reservation(store.Reserve, rule, l, 1, 7), true, met)
			want(s, rule+" remaining", g.Remaining, 13)
		}
		for _, other := range []int64{1, 6, 8, 20} { // what was never set aside is not allowed
			g := s.met("reserve another cost", s.reservation(store.Reserve, rule, l, 1, other), false, store.ReservedSettled)
			want(s, rule+" never", g.Never, true)
		}
		for i, met := range []store.Reserved{store.ReservedNow, store.ReservedSettled, store.ReservedSettled} {
			g := s.met("commit", s.reservation(store.Commit, rule, l, 1, 3+int64(i)), true, met)
			want(s, rule+" remaining", g.Remaining, 17)
		}
		s.met("cancel after a commit", s.reservation(store.Cancel, rule, l, 1, 0), true, store.ReservedSettled)
		s.met("reserve", s.reservation(store.Reserve, rule, l, 2, 7), true, store.ReservedNow)
		for _, met := range []store.Reserved{store.ReservedNow, store.ReservedSettled} {
			s.met("cancel", s.reservation(store.Cancel, rule, l, 2, 0), true, met)
			s.wantLeft(s.op(rule, l, 0), 17)
		}
		s.met("commit after a cancel", s.reservation(store.Commit, rule, l, 2, 5), true, store.ReservedSettled)
		s.wantLeft(s.op(rule, l, 0), 17)
	}
}

func settledIsRefused(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		s.one(s.reservation(store.Reserve, rule, l, 1, 2))
		s.one(s.reservation(store.Commit, rule, l, 1, 2))
		g := s.met("reserve", s.reservation(store.Reserve, rule, l, 1, 2), false, store.ReservedSettled)
		want(s, rule+" never", g.Never, true)
		s.wantLeft(s.op(rule, l, 0), 8)
	}
}

func commitFloors(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		s.one(s.reservation(store.Reserve, rule, l, 1, 4))
		g := s.met("commit", s.reservation(store.Commit, rule, l, 1, 19), true, store.ReservedNow)
		want(s, rule+" remaining", g.Remaining, 0)
		s.how(store.Back, s.op(rule, l, 5))
		left := int64(5) // a bucket stops at 0 left
		if l.Algorithm != limit.TokenBucket {
			left = 0 // 19 were counted
		}
		s.wantLeft(s.op(rule, l, 0), left)
	}
}

func lateCommit(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		g := s.met("commit", s.reservation(store.Commit, rule, l, 1, 4), true, store.ReservedUnknown)
		want(s, rule+" remaining", g.Remaining, 6)
		s.met("commit again", s.reservation(store.Commit, rule, l, 1, 4), true, store.ReservedSettled)
		s.wantLeft(s.op(rule, l, 0), 6)
	}
}

func deniedReserves(s *subject) {
	for _, l := range three(5) {
		rule := l.Algorithm.String()
		g := s.met("reserve", s.reservation(store.Reserve, rule, l, 1, 6), false, store.ReservedNone)
		want(s, rule+" never", g.Never, true)
		s.one(s.op(rule, l, 3))
		g = s.met("reserve", s.reservation(store.Reserve, rule, l, 1, 3), false, store.ReservedNone)
		if g.RetryMS < 1 || g.Never {
			s.Errorf("%s: retry %d, never %v; want a wait", l, g.RetryMS, g.Never)
		}
		s.wantLeft(s.op(rule, l, 0), 2)
		s.met("cancel", s.reservation(store.Cancel, rule, l, 1, 0), true, store.ReservedUnknown)
		s.met("reserve of what is there", s.reservation(store.Reserve, rule, l, 1, 2), true, store.ReservedNow)
	}
}

func reserveAllOrNone(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		op := s.reservation(store.Reserve, rule, l, 1, 4)
		empty := s.reservation(store.Reserve, "empty "+rule, slowBucket(1), 1, 2)
		grants := s.do(op, empty)
		want(s, rule+" receipt of nothing", grants[0].Receipt, store.Receipt{})
		s.wantLeft(op, 10)
		s.met("cancel", s.reservation(store.Cancel, rule, l, 1, 0), true, store.ReservedUnknown)
		taken := s.op("taken "+rule, slowBucket(1), 1)
		s.do(op, taken)
		s.wantLeft(op, 6)
		s.wantLeft(taken, 0)
		s.do(s.reservation(store.Reserve, rule, l, 2, 1), taken) // denied by the take
		s.wantLeft(op, 6)
	}
}

func shadowReserves(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		op := s.reservation(store.Reserve, rule, l, 1, 4)
		shadow := s.reservation(store.Reserve, "shadow "+rule, slowBucket(1), 1, 2)
		shadow.Shadow = true
		grants := s.do(op, shadow)
		want(s, rule+" shadow ok", grants[1].OK, false)
		s.wantLeft(op, 6)
	}
}

func undoneReservation(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		op := s.reservation(store.Reserve, rule, l, 1, 4)
		undo := op
		undo.How, undo.Receipt = store.Undo, s.one(op).Receipt
		s.one(undo)
		s.wantLeft(op, 10)
		s.one(undo)
		s.wantLeft(op, 10)
		s.met("reserve once more", op, true, store.ReservedNow)
		s.one(s.reservation(store.Commit, rule, l, 1, 4))
		s.one(undo) // of what is settled
		s.wantLeft(op, 6)
	}
}

func reservationEnds(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		op := s.reservation(store.Reserve, rule, l, 1, 9)
		s.one(op)
		s.wait(op.TTLMS - 1)
		want(s, rule+" ok before", s.one(s.op(rule, l, 2)).OK, false)
		s.wait(1)
		want(s, rule+" ok after", s.one(s.op(rule, l, 2)).OK, true)
		s.wantLeft(op, 8)
		g := s.met("commit", s.reservation(store.Commit, rule, l, 1, 3), true, store.ReservedUnknown)
		want(s, rule+" remaining", g.Remaining, 5)
	}
}

func markStays(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		s.one(s.reservation(store.Reserve, rule, l, 1, 2))
		s.wait(50_000)
		s.one(s.reservation(store.Commit, rule, l, 1, 2))
		s.wait(59_999)
		s.met("commit", s.reservation(store.Commit, rule, l, 1, 2), true, store.ReservedSettled)
		s.wait(1)
		s.met("commit", s.reservation(store.Commit, rule, l, 1, 2), true, store.ReservedUnknown)
		s.wantLeft(s.op(rule, l, 0), 6)
	}
}

func reservedInAnotherWindow(s *subject) {
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		s.align(60_000)
		l, rule := window(a, 10, 60_000), a.String()
		for name := range byte(3) {
			s.one(s.reservation(store.Reserve, rule, l, 1+name, 2))
		}
		s.wait(59_999)
		for range 2 {
			// Fixed: a new window. Sliding: the last one fades to its count.
			s.wait(1)
		}
		s.one(s.op(rule, l, 1))
		left := s.left(s.op(rule, l, 0))
		s.one(s.reservation(store.Cancel, rule, l, 1, 0))
		s.wantLeft(s.op(rule, l, 0), left)
	}
}

func endedInItsWindow(s *subject) {
	s.align(120_000)
	l := window(limit.SlidingWindow, 10, 120_000)
	s.one(s.reservation(store.Reserve, "sliding", l, 1, 10))
	s.wait(121_000) // it ended half a window ago, and nobody looked since
	s.wantLeft(s.op("sliding", l, 0), 10)
}

func reservationPlaces(s *subject) {
	for _, l := range three(1000) {
		rule := l.Algorithm.String()
		for i := range byte(store.MaxReservations) {
			op := s.reservation(store.Reserve, rule, l, 1+i, 1)
			op.TTLMS += int64(i)
			s.met("reserve", op, true, store.ReservedNow)
		}
		g := s.met("one too many", s.reservation(store.Reserve, rule, l, 100, 1), false, store.ReservedTooMany)
		want(s, rule+" retry", g.RetryMS, 60_000)
		want(s, rule+" remaining", g.Remaining, 936)
		s.met("an open one again", s.reservation(store.Reserve, rule, l, 1, 1), true, store.ReservedBefore)
		s.met("a late commit without a place", s.reservation(store.Commit, rule, l, 101, 1), true, store.ReservedUnknown)
		s.met("which so counts again", s.reservation(store.Commit, rule, l, 101, 1), true, store.ReservedUnknown)
		s.one(s.reservation(store.Commit, rule, l, 7, 1))
		s.met("with a mark among them", s.reservation(store.Reserve, rule, l, 100, 1), true, store.ReservedNow)
		s.wait(60_000)
		s.met("with one that ended", s.reservation(store.Reserve, rule, l, 102, 1), true, store.ReservedNow)
	}
}

func convertedReservation(s *subject) {
	for _, l := range three(10) {
		rule := l.Algorithm.String()
		s.one(s.reservation(store.Reserve, rule, l, 1, 4))
		for i, next := range four(20) {
			s.how(store.Stamp, s.op(rule, at(2+int64(i), next), 0))
			if next.Algorithm == limit.SlidingLog {
				break // which knows no reservation
			}
			s.met("reserve", s.reservation(store.Reserve, rule, at(2+int64(i), next), 1, 4), true, store.ReservedBefore)
		}
		s.met("commit to a log", s.reservation(store.Commit, rule, l, 1, 1), true, store.ReservedUnknown)
		s.refused("reserve in what became a log", s.reservation(store.Reserve, rule, l, 2, 1))
	}
}

func bucketOutlives(s *subject) {
	l := perSecond(10, 1, 10) // full again after 0.4 s
	s.one(s.reservation(store.Reserve, "short", l, 1, 4))
	s.wait(30_000)
	s.met("reserve", s.reservation(store.Reserve, "short", l, 1, 4), true, store.ReservedBefore)
	g := s.met("commit", s.reservation(store.Commit, "short", l, 1, 1), true, store.ReservedNow)
	want(s, "remaining", g.Remaining, 10)
}

func leasesBeside(s *subject) {
	for _, l := range three(100) {
		rule := l.Algorithm.String()
		s.one(s.reservation(store.Reserve, rule, l, 1, 40))
		op := s.op(rule, l, 1)
		op.Want = 10
		g := s.one(op)
		want(s, rule+" lease", g.Lease, 10)
		want(s, rule+" remaining", g.Remaining, 49)
		g = s.met("cancel", s.reservation(store.Cancel, rule, l, 1, 0), true, store.ReservedNow)
		want(s, rule+" remaining", g.Remaining, 89)
	}
}

func logRefusesReservations(s *subject) {
	l := window(limit.SlidingLog, 10, hundredDays)
	s.refused("reserve", s.reservation(store.Reserve, "log", l, 1, 1))
	g := s.met("commit", s.reservation(store.Commit, "log", l, 1, 3), true, store.ReservedUnknown)
	want(s, "remaining", g.Remaining, 7)
	s.met("cancel", s.reservation(store.Cancel, "log", l, 1, 0), true, store.ReservedUnknown)
	op := s.reservation(store.Reserve, "bucket", slowBucket(5), 1, 1)
	for what, change := range map[string]func(*store.Op){
		"no id":      func(op *store.Op) { op.Reservation = store.ReservationID{} },
		"ttl 999":    func(op *store.Op) { op.TTLMS = 999 },
		"ttl 1 h 1":  func(op *store.Op) { op.TTLMS = 3_600_001 },
		"cost 0":     func(op *store.Op) { op.Cost = 0 },
		"with lease": func(op *store.Op) { op.Want = 1 },
		"with queue": func(op *store.Op) { op.Queue = 1 },
	} {
		bad := op
		change(&bad)
		s.refused(what, bad)
	}
	s.wantLeft(op, 5)
}
