package storetest

import (
	"maps"
	"math/big"
	"slices"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// counter is one bucket of the model. Only the fields of its algorithm are used.
type counter struct {
	l *limit.Limit
	// next are newer numbers that wait for the window's end, in one call only.
	next *limit.Limit

	// Token bucket: tokens, the time they were counted up to, the generation, and
	// what is out by generation of its lease.
	level   *big.Rat
	ts, gen int64
	out     map[int64]int64

	// Windows: [start, end), the counts of the one before and of this one.
	start, end, prev, cur int64

	// Log: every token, oldest first.
	tokens []token

	// Reservations and marks, oldest first.
	held []heldCost
}

// token is one token of a log, spent at a time under the id of its take.
type token struct{ at, id int64 }

func (c *counter) clone() *counter {
	d := *c
	d.out, d.tokens = maps.Clone(c.out), slices.Clone(c.tokens)
	d.held = slices.Clone(c.held)
	return &d
}

// holding returns a bucket with so many tokens left at now; the rest counts as
// spent now.
func holding(l *limit.Limit, now, left int64) *counter {
	c := &counter{l: l, level: whole(left), ts: now, gen: floorDiv(now, generationMS), out: map[int64]int64{}}
	switch l.Algorithm {
	case limit.TokenBucket:
	case limit.SlidingLog:
		for range l.Capacity - left {
			c.tokens = append(c.tokens, token{now, -1}) // of no take: no receipt undoes them
		}
	default:
		c.place(l, now)
		c.cur = l.Capacity - left
	}
	return c
}

// bring brings the bucket to now, and to the numbers l if they are newer; with
// later, only if its window has ended. It reports whether that must be stored.
func (c *counter) bring(l *limit.Limit, now int64, later bool) (changed bool) {
	old := c.l
	newer := l.Revision > old.Revision
	c.next = nil
	if later && newer && !l.Same(old) && l.Algorithm == old.Algorithm && old.Algorithm != limit.TokenBucket && old.Algorithm != limit.SlidingLog && now < c.end {
		changed = c.roll(now)
		c.next = l
		return changed
	}
	if !newer || l.Same(old) {
		changed = c.roll(now)
		if newer {
			c.l = l
		}
		return changed || newer
	}
	switch {
	case old.Algorithm == limit.TokenBucket && l.Algorithm == limit.TokenBucket:
		c.convertBucket(l, now)
		c.l = l
		c.endHeld(now)
	case old.Algorithm != l.Algorithm:
		c.roll(now)
		held := c.held
		*c = *holding(l, now, min(l.Full(), c.left(now)))
		if l.Algorithm != limit.SlidingLog {
			c.held = held
		}
	case l.Algorithm == limit.SlidingLog:
		c.roll(now)
		c.l = l
		c.roll(now)
	default:
		c.roll(now)
		c.convertWindow(l, now)
	}
	c.l = l
	return true
}

func (c *counter) roll(now int64) (changed bool) {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		changed = c.rollBucket(now)
		c.endHeld(now)
		return changed
	case limit.SlidingLog:
		at := c.logNow(now)
		c.tokens = slices.DeleteFunc(c.tokens, func(t token) bool { return at-t.at >= c.l.WindowMS })
		return false
	default:
		c.endHeld(now)
		return c.rollWindow(now)
	}
}

// passes reports whether cost is there.
func (c *counter) passes(now, cost int64) bool {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		return c.level.Cmp(whole(cost)) >= 0
	case limit.SlidingLog:
		return int64(len(c.tokens))+cost <= c.l.Capacity
	default:
		return c.estimate(now).Cmp(whole(c.l.Capacity-cost)) <= 0
	}
}

// left returns the whole tokens left.
func (c *counter) left(now int64) int64 {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		return floorRat(c.level)
	case limit.SlidingLog:
		return max(0, c.l.Capacity-int64(len(c.tokens)))
	default:
		return max(0, c.l.Capacity-ceilRat(c.estimate(now)))
	}
}

// retry returns how long until cost passes: by the rate for a token bucket, for
// the others by trying.
func (c *counter) retry(now, cost int64) int64 {
	if c.l.Algorithm == limit.TokenBucket {
		return c.msFor(new(big.Rat).Sub(whole(cost), c.level))
	}
	low, high := int64(0), int64(1)
	if c.next != nil {
		// Where the window ends other numbers begin, by which less may pass.
		if last := c.end - 1 - now; c.passesAfter(now, last, cost) {
			high = last
		} else {
			low, high = last, last+1
		}
	}
	for !c.passesAfter(now, high, cost) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; c.passesAfter(now, mid, cost) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// passesAfter reports whether cost passes so many ms after now if nothing else
// happens.
func (c *counter) passesAfter(now, ms, cost int64) bool {
	then := c.clone()
	then.held = nil // what comes back by then is nothing to rely on
	if c.next != nil {
		then.bring(c.next, now+ms, true)
	} else {
		then.roll(now + ms)
	}
	return then.passes(now+ms, cost)
}

// never reports whether no waiting helps.
func (c *counter) never(now, cost int64) bool {
	if c.next == nil {
		return cost > c.l.Full()
	}
	return cost > c.next.Full() && !c.passesAfter(now, c.end-1-now, cost)
}

// reset returns the time until a token bucket is full, a window ends, or a log
// is empty.
func (c *counter) reset(now int64) int64 {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		return c.msFor(new(big.Rat).Sub(whole(c.l.Burst), c.level))
	case limit.SlidingLog:
		if n := len(c.tokens); n > 0 {
			return c.tokens[n-1].at + c.l.WindowMS - now
		}
		return 0
	default:
		return c.end - now
	}
}

// spend takes what is there, under an id, and returns the receipt's.
func (c *counter) spend(now, cost, id int64) int64 {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		c.level = new(big.Rat).Sub(c.level, whole(cost))
		return 0
	case limit.SlidingLog:
		at := c.logNow(now)
		for range cost {
			c.tokens = append(c.tokens, token{at, id})
		}
		return id
	default:
		c.cur += cost
		return c.start
	}
}

// add takes cost whether it is there or not.
func (c *counter) add(now, cost, id int64) {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		c.level = maxRat(new(big.Rat), new(big.Rat).Sub(c.level, whole(cost)))
	case limit.SlidingLog:
		c.spend(now, min(cost, c.left(now)), id)
	default:
		c.cur = min(c.cur+cost, most(c.l, c.end-c.start))
	}
}

// back gives cost back.
func (c *counter) back(cost int64) {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		c.raise(cost)
	case limit.SlidingLog:
		c.tokens = c.tokens[:max(0, int64(len(c.tokens))-cost)]
	default:
		c.cur = max(0, c.cur-cost)
	}
}

// undo gives back what a receipt says, and reports whether it could.
func (c *counter) undo(r store.Receipt) bool {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		c.raise(r.Cost)
		return true
	case limit.SlidingLog:
		before := len(c.tokens)
		c.tokens = slices.DeleteFunc(c.tokens, func(t token) bool { return t.id == r.ID })
		return len(c.tokens) < before
	default:
		if c.start != r.ID {
			return false
		}
		c.cur = max(0, c.cur-r.Cost)
		return true
	}
}

// logNow is the time in a log: never before its newest token.
func (c *counter) logNow(now int64) int64 {
	if n := len(c.tokens); n > 0 {
		return max(now, c.tokens[n-1].at)
	}
	return now
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func maxRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) <= 0 {
		return a
	}
	return b
}
