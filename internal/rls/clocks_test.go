package rls_test

import (
	"testing"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// The figures of docs/envoy.md on pods whose clocks are apart. There is no switch for
// windows by each pod's clock, and this is why.
const (
	lengthMS = 60_000
	capacity = 10
)

// most is what envoyproxy/ratelimit admits at most in a span of one window's length, to
// a client that asks two pods whose clocks are skewMS apart: each counter that either
// names in the span can be emptied in it.
func most(skewMS, fromMS int64) int64 {
	counters := map[int64]bool{}
	for t := fromMS; t < fromMS+lengthMS; t++ {
		counters[t/lengthMS], counters[(t+skewMS)/lengthMS] = true, true
	}
	return int64(len(counters)) * capacity
}

func TestPodClocksThere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name           string
		skewMS         int64
		window, anyFor int64 // times the limit: in a window of the true clock, in any span of its length
	}{
		{"one clock", 0, 1, 2},
		{"two milliseconds apart", 2, 2, 3},
		{"a second apart", 1_000, 2, 3},
		{"a window apart", lengthMS, 2, 3},
		{"more than a window apart", lengthMS + 2, 3, 4},
	} {
		if got := most(test.skewMS, 5*lengthMS); got != test.window*capacity {
			t.Errorf("%s: a window admits %d, want %d times the limit", test.name, got, test.window)
		}
		worst := int64(0)
		for from := int64(5 * lengthMS); from < 6*lengthMS; from += 997 {
			worst = max(worst, most(test.skewMS, from))
		}
		worst = max(worst, most(test.skewMS, 6*lengthMS-1)) // just before a boundary
		if worst != test.anyFor*capacity {
			t.Errorf("%s: a span of a window's length admits %d, want %d times the limit", test.name, worst, test.anyFor)
		}
	}
}

// One bucket that two pods move by their own clocks has a new window each time the pod
// in front asks after the other, once they are more than a window apart.
func TestPodClocksOnOneBucketMint(t *testing.T) {
	t.Parallel()
	l := &limit.Limit{Revision: 1, Algorithm: limit.FixedWindow, Capacity: capacity, WindowMS: lengthMS}
	admitted := func(skewMS int64) (n int64) {
		const now = 5*lengthMS + 1
		state := algorithm.Fresh(l, now)
		for range 100 { // all at one moment
			for _, clock := range []int64{now, now + skewMS} {
				state.Advance(l, clock)
				for state.Ask(clock, 1).OK {
					state.Spend(clock, 1)
					n++
				}
			}
		}
		return n
	}
	for skewMS, want := range map[int64]int64{0: capacity, 1_000: capacity, 2*lengthMS + 1: 101 * capacity} {
		if got := admitted(skewMS); got != want {
			t.Errorf("%d ms apart: %d were admitted at one moment, want %d", skewMS, got, want)
		}
	}
}
