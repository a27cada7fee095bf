package storetest

import (
	"math/big"

	"github.com/tallygate/tallygate/limit"
)

// place puts an empty window of l's where now is.
func (c *counter) place(l *limit.Limit, now int64) {
	c.prev, c.cur = 0, 0
	switch {
	case l.Calendar != nil:
		c.start, c.end = l.Calendar.At(now)
		return
	case l.Align == limit.AlignFirstRequest:
		c.start = now
	default:
		c.start = floorDiv(now, l.WindowMS) * l.WindowMS
	}
	c.end = c.start + l.WindowMS
}

// rollWindow moves on to the window that holds now. A clock behind it by at most
// a window waits; behind by more it takes the counts along.
func (c *counter) rollWindow(now int64) (changed bool) {
	old := *c
	switch {
	case now >= c.end:
		c.place(c.l, now)
		if c.l.Algorithm == limit.SlidingWindow && c.start == old.end {
			c.prev = old.cur
		}
	case now < c.start-(c.end-c.start):
		c.place(c.l, now)
		c.prev, c.cur = old.prev, old.cur
		return true
	}
	return false
}

// estimate returns what counts at now: this window's count, and of the previous
// one's what of it still lies within a window's length.
func (c *counter) estimate(now int64) *big.Rat {
	sum := whole(c.cur)
	if c.prev > 0 {
		weight := big.NewRat(c.end-max(now, c.start), c.end-c.start)
		sum.Add(sum, weight.Mul(weight, whole(c.prev)))
	}
	return sum
}

// convertWindow carries the counts over to numbers of the same algorithm. The
// window must be at now.
func (c *counter) convertWindow(l *limit.Limit, now int64) {
	if l.WindowMS == c.l.WindowMS && l.Align == c.l.Align && l.Calendar.ID() == c.l.Calendar.ID() {
		return
	}
	used := ceilRat(c.estimate(now))
	c.place(l, now)
	c.cur = min(used, most(l, c.end-c.start))
}

// most is the largest count of a window: a sliding one's times its length is at
// most 2^53, a fixed one's is 100 of the largest limits.
func most(l *limit.Limit, length int64) int64 {
	if l.Algorithm == limit.FixedWindow {
		return 100 * limit.MaxNumber
	}
	return limit.MaxExact / length
}
