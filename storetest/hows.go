package storetest

import (
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// howCases are promises about ops that do something else than take.
func howCases() []testCase {
	return []testCase{
		{name: "add spends what is not there", run: addSpends},
		{name: "add passes when another op denies", run: addPassesDenials},
		{name: "back gives back, never above full", run: backGivesBack},
		{name: "API-02 peek changes nothing", run: peekChangesNothing},
		{name: "stamp converts and spends nothing", run: stampConverts},
		{name: "undo takes back one take", run: undoTakesBack},
		{name: "undo of another window does nothing", clock: true, run: undoOfAnotherWindow},
		{name: "reset makes full", run: resetMakesFull},
	}
}

func addSpends(s *subject) {
	for _, l := range four(10) {
		op := s.op(l.Algorithm.String(), l, 4)
		g := s.how(store.Add, op)
		want(s, l.String()+" ok", g.OK, true)
		want(s, l.String()+" remaining", g.Remaining, 6)
		g = s.how(store.Add, s.op(l.Algorithm.String(), l, 15))
		want(s, l.String()+" ok above what is left", g.OK, true)
		want(s, l.String()+" remaining", g.Remaining, 0)
		s.how(store.Back, s.op(l.Algorithm.String(), l, 5))
		left := int64(5) // a bucket and a log stop at 0 left
		if l.Algorithm == limit.SlidingWindow || l.Algorithm == limit.FixedWindow {
			left = 0 // 19 were counted
		}
		s.wantLeft(op, left)
	}
}

func addPassesDenials(s *subject) {
	for _, l := range four(10) {
		add := s.op(l.Algorithm.String(), l, 4)
		add.How = store.Add
		s.do(add, s.op("empty", slowBucket(1), 2))
		s.wantLeft(add, 6)
	}
}

func backGivesBack(s *subject) {
	for _, l := range four(10) {
		op := s.op(l.Algorithm.String(), l, 3)
		s.how(store.Back, op) // of an unknown bucket: it is full
		s.wantLeft(op, 10)
		s.one(op)
		s.one(op)
		g := s.how(store.Back, s.op(l.Algorithm.String(), l, 4))
		want(s, l.String()+" remaining", g.Remaining, 8)
		s.how(store.Back, s.op(l.Algorithm.String(), l, 1000))
		s.wantLeft(op, 10)
		op.Cost = 11
		want(s, l.String()+" ok above full", s.one(op).OK, false)
	}
}

func peekChangesNothing(s *subject) {
	for _, l := range four(5) {
		op := s.op(l.Algorithm.String(), l, 3)
		for range 5 {
			g := s.how(store.Peek, op)
			want(s, l.String()+" ok", g.OK, true)
			want(s, l.String()+" remaining", g.Remaining, 5)
		}
		s.one(op)
		for range 5 {
			g := s.how(store.Peek, op)
			want(s, l.String()+" ok", g.OK, false)
			want(s, l.String()+" remaining", g.Remaining, 2)
			if g.RetryMS < 1 {
				s.Errorf("%s: retry %d, want what a take would be told", l, g.RetryMS)
			}
		}
		denied := s.op("peeks do not deny "+l.Algorithm.String(), slowBucket(5), 1)
		op.How = store.Peek
		s.do(op, denied)
		s.wantLeft(denied, 4)
	}
}

func stampConverts(s *subject) {
	for _, l := range four(10) {
		smaller := at(2, l)
		smaller.Burst, smaller.Capacity = min(l.Burst, 6), min(l.Capacity, 6)
		op := s.op(l.Algorithm.String(), l, 5)
		s.one(op)
		stamp := s.op(l.Algorithm.String(), smaller, 0)
		g := s.how(store.Stamp, stamp)
		left := int64(1) // 6 - 5 counted
		if l.Algorithm == limit.TokenBucket {
			left = 5
		}
		want(s, l.String()+" remaining", g.Remaining, left)
		// From now on an older revision is decided by the stamped numbers.
		want(s, l.String()+" allowed", s.checks(s.op(l.Algorithm.String(), l, 1), 10), int(left))
	}
	// What is above full goes. A store may then forget the bucket, numbers and all.
	s.one(s.op("capped", slowBucket(10), 3))
	want(s, "capped", s.how(store.Stamp, s.op("capped", at(2, slowBucket(6)), 0)).Remaining, 6)
	unknown := s.op("unknown", at(9, slowBucket(1)), 0)
	s.how(store.Stamp, unknown)
	want(s, "allowed of a bucket nobody had", s.checks(s.op("unknown", slowBucket(5), 1), 6), 5)
}

func undoTakesBack(s *subject) {
	for _, l := range four(10) {
		op := s.op(l.Algorithm.String(), l, 4)
		first := s.one(op).Receipt
		op.Cost = 3
		second := s.one(op).Receipt
		undo := s.op(l.Algorithm.String(), l, 0)
		s.how(store.Undo, undo) // the zero receipt undoes nothing
		s.wantLeft(op, 3)
		undo.Receipt = first
		s.how(store.Undo, undo)
		s.wantLeft(op, 7)
		undo.Receipt = second
		s.how(store.Undo, undo)
		s.wantLeft(op, 10)
		s.how(store.Undo, undo)
		s.wantLeft(op, 10)
	}
}

func undoOfAnotherWindow(s *subject) {
	s.align(60_000)
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		op := s.op(a.String(), window(a, 10, 60_000), 4)
		receipt := s.one(op).Receipt
		s.wait(3 * 60_000)
		s.one(op)
		undo := op
		undo.Receipt = receipt
		s.how(store.Undo, undo)
		s.wantLeft(op, 6)
	}
}

func resetMakesFull(s *subject) {
	for _, l := range four(5) {
		op := s.op(l.Algorithm.String(), l, 1)
		s.checks(op, 5)
		g := s.how(store.Reset, op)
		want(s, l.String()+" remaining", g.Remaining, 5)
		want(s, l.String()+" allowed", s.checks(op, 6), 5)
		s.how(store.Reset, s.op("unknown "+l.Algorithm.String(), l, 0))
	}
}
