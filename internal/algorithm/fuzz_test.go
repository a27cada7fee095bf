package algorithm_test

import (
	"encoding/binary"
	"testing"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// numbers reads whole numbers from fuzz input, 0 past its end.
type numbers struct{ data []byte }

func (n *numbers) next(below int64) int64 {
	var b [8]byte
	n.data = n.data[copy(b[:], n.data):]
	return int64(binary.LittleEndian.Uint64(b[:]) % uint64(below))
}

// limit reads any numbers that pass Check, or nil.
func (n *numbers) limit() *limit.Limit {
	l := &limit.Limit{Algorithm: limit.Algorithm(1 + n.next(4)), Revision: n.next(4)}
	if l.Algorithm == limit.TokenBucket {
		l.Rate, l.PeriodMS, l.Burst = n.next(limit.MaxNumber+1), n.next(limit.MaxPeriodMS+1), n.next(limit.MaxNumber+1)
	} else {
		l.Capacity, l.WindowMS, l.Align = n.next(limit.MaxNumber+1), n.next(limit.MaxWindowMS+1), limit.Align(n.next(2))
	}
	if algorithm.Check(l) != nil {
		return nil
	}
	return l
}

// FuzzState runs any history over any numbers that pass Check: no product may
// overflow, nothing may come out negative, every denial's retry is true.
func FuzzState(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00"))
	seed := []byte{}
	for _, v := range []uint64{0, 1, 1_000_000, 1000, 500, 0, 1, 2, 3, 900, 7, 400} {
		seed = binary.LittleEndian.AppendUint64(seed, v)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		n := &numbers{data}
		l := n.limit()
		if l == nil {
			return
		}
		now := n.next(1 << 42)
		s := algorithm.Fresh(l, now)
		for len(n.data) > 0 {
			if next := n.limit(); n.next(8) == 0 && next != nil {
				l = next
			}
			now = max(0, now+n.next(1<<36)-n.next(1<<35))
			s.Advance(l, now)
			fuzzOp(t, n, &s, now)
			checkState(t, &s, now)
		}
	})
}

func fuzzOp(t *testing.T, n *numbers, s *algorithm.State, now int64) {
	t.Helper()
	cost := n.next(limit.MaxCost + 1)
	switch n.next(6) {
	case 0:
		s.Add(now, cost)
	case 1:
		s.Back(cost)
	case 2:
		s.Undo(n.next(1<<42), cost)
	case 3:
		s.Report(now/algorithm.GenerationMS-n.next(3), n.next(limit.MaxNumber+1), n.next(limit.MaxNumber+1))
	default:
		a := s.Ask(now, cost)
		(&rig{stored: s}).checkRetry(t, s.Limit, now, cost, a)
		if a.OK {
			id := s.Spend(now, cost)
			s.Queue(now, n.next(limit.MaxNumber+1), id)
			s.Lease(now, algorithm.LeaseAsk{Want: n.next(limit.MaxNumber + 1), Pods: n.next(1_000_001), MaxCost: cost})
		}
	}
}

func checkState(t *testing.T, s *algorithm.State, now int64) {
	t.Helper()
	left, reset, ttl := s.Remaining(now), s.ResetMS(now), s.TTLMS(now)
	if left < 0 || left > s.Limit.Full() || reset < 0 || ttl < 1 || ttl > limit.MaxWindowMS || s.Out() < 0 {
		t.Fatalf("%s at %d: left %d, reset %d, ttl %d, out %d", s.Limit, now, left, reset, ttl, s.Out())
	}
	if s.Bucket.Level < 0 || s.Window.Cur < 0 || s.Window.Prev < 0 || s.Log.Used < 0 {
		t.Fatalf("%s at %d: %+v", s.Limit, now, *s)
	}
}
