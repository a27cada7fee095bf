package redisstore

import (
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Flags of an op on the wire, see script/1-clock.lua.
const (
	flagShadow   = 1
	flagNotFresh = 2
	flagLease    = 4
	flagEdges    = 8
	flagReports  = 16
	flagReceipt  = 32
	flagNext     = 64
	flagReserve  = 128

	flagsAt = 2 // where an op's flags stand in its argument
)

// appendUint appends the low bytes of v, least significant first.
func appendUint(dst []byte, v int64, bytes int) []byte {
	for range bytes {
		dst = append(dst, byte(v))
		v >>= 8
	}
	return dst
}

// numbers are a limit's three numbers as the script knows them.
func numbers(l *limit.Limit) (n1, n2, n3 int64) {
	if l.Algorithm == limit.TokenBucket {
		return l.Burst, l.PeriodMS, l.Rate
	}
	return l.Capacity, l.WindowMS, int64(l.Align) + 4*int64(l.Calendar.ID())
}

// isWindow reports whether the script keeps l's counts in windows.
func isWindow(l *limit.Limit) bool {
	return l.Algorithm == limit.SlidingWindow || l.Algorithm == limit.FixedWindow
}

// limitOf is the reverse of numbers. A calendar itself is not on the wire.
func limitOf(alg limit.Algorithm, revision, n1, n2, n3 int64) *limit.Limit {
	if alg == limit.TokenBucket {
		return &limit.Limit{Algorithm: alg, Revision: revision, Burst: n1, PeriodMS: n2, Rate: n3}
	}
	return &limit.Limit{Algorithm: alg, Revision: revision, Capacity: n1, WindowMS: n2, Align: limit.Align(n3 % 4)}
}

// appendOp appends the op's argument. nowMS is the store's clock as far as it is
// known: it chooses the three calendar windows the script may pick from.
func appendOp(dst []byte, op *store.Op, nowMS int64) []byte {
	l := op.Limit
	flags := flagsOf(op)
	cost := op.Cost
	if op.How == store.Undo {
		cost = op.Receipt.Cost
	}
	n1, n2, n3 := numbers(l)
	dst = append(dst, byte(l.Algorithm), byte(op.How), flags)
	dst = appendUint(dst, cost, 5)
	dst = appendUint(dst, l.Revision, 6)
	dst = appendUint(dst, n1, 6)
	dst = appendUint(dst, n2, 5)
	dst = appendUint(dst, n3, 5)
	if flags&flagLease != 0 {
		dst = appendUint(dst, op.Queue, 6)
		dst = appendUint(dst, op.Want, 5)
		dst = appendUint(dst, max(1, op.Pods), 4)
		dst = appendUint(dst, op.MaxCost, 5)
	}
	if flags&flagEdges != 0 {
		for _, edge := range l.Calendar.Around(nowMS) {
			dst = appendUint(dst, edge, 6)
		}
	}
	if flags&flagReports != 0 {
		dst = append(dst, byte(len(op.Reports)))
		for _, r := range op.Reports {
			dst = appendUint(dst, r.Generation, 6)
			dst = appendUint(dst, r.Spent, 5)
			dst = appendUint(dst, r.Back, 5)
		}
	}
	if flags&flagReceipt != 0 {
		dst = appendUint(dst, op.Receipt.ID, 7)
	}
	if flags&flagReserve != 0 {
		dst = append(dst, op.Reservation[:]...)
		dst = appendUint(dst, op.TTLMS, 4)
	}
	return dst
}

func flagsOf(op *store.Op) byte {
	var flags byte
	if op.Shadow {
		flags |= flagShadow
	}
	if op.NotFresh {
		flags |= flagNotFresh
	}
	if op.Queue > 0 || op.Want > 0 || len(op.Reports) > 0 {
		flags |= flagLease
	}
	if op.Limit.Calendar != nil {
		flags |= flagEdges
	}
	if len(op.Reports) > 0 {
		flags |= flagReports
	}
	if op.How == store.Undo {
		flags |= flagReceipt
	}
	if op.How >= store.Reserve || op.How == store.Undo && op.Reservation != (store.ReservationID{}) {
		flags |= flagReserve
	}
	if op.NextWindow && isWindow(op.Limit) { // a token bucket's would only leave the script's shortest way
		flags |= flagNext
	}
	return flags
}

// Wire returns the call Take would make of ops, all of one key: the script's
// name, its keys and its arguments. It is for measuring what Redis alone does.
func (s *Store) Wire(ops []store.Op) (sha string, keys, args []string) {
	c := s.newCall(ops, 0, nil)
	return s.script.sha, c.keys, c.args
}
