package storetest

import (
	"math/big"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// generationMS is the length of a lease generation. A lease of generation g is
// out until (g + 2) × generationMS.
const generationMS = 500

// outSum returns the tokens out on leases.
func (c *counter) outSum() (sum int64) {
	for _, n := range c.out {
		sum += n
	}
	return sum
}

// tokensIn returns what comes back in ms.
func tokensIn(l *limit.Limit, ms int64) *big.Rat {
	return new(big.Rat).Mul(big.NewRat(l.Rate, l.PeriodMS), whole(ms))
}

// msFor returns how long it takes for that many tokens to come back.
func (c *counter) msFor(tokens *big.Rat) int64 {
	if tokens.Sign() <= 0 {
		return 0
	}
	return ceilRat(new(big.Rat).Mul(tokens, big.NewRat(c.l.PeriodMS, c.l.Rate)))
}

// rollBucket refills up to now and turns the generation.
func (c *counter) rollBucket(now int64) (changed bool) {
	if now < c.ts {
		c.ts, changed = now, true
	}
	c.refill(c.l, now)
	c.turn(now)
	return changed
}

// refill counts the time up to now at l's rate, below the burst in force less
// what is out in each stretch of it.
func (c *counter) refill(l *limit.Limit, now int64) {
	for c.ts < now {
		next, room := now, c.l.Burst
		for g, n := range c.out {
			if end := (g + 2) * generationMS; c.ts < end {
				room -= n
				next = min(next, end)
			}
		}
		filled := new(big.Rat).Add(c.level, tokensIn(l, next-c.ts))
		c.level = maxRat(c.level, minRat(whole(room), filled))
		c.ts = next
	}
}

// turn forgets leases that have ended. The generation never goes back.
func (c *counter) turn(now int64) {
	c.gen = max(c.gen, floorDiv(now, generationMS))
	for g := range c.out {
		if g < c.gen-1 {
			delete(c.out, g)
		}
	}
}

// convertBucket brings the bucket to now and to the numbers l: time before the
// change refills at the slower rate, and nothing is won.
func (c *counter) convertBucket(l *limit.Limit, now int64) {
	c.ts = min(c.ts, now)
	if big.NewRat(l.Rate, l.PeriodMS).Cmp(big.NewRat(c.l.Rate, c.l.PeriodMS)) < 0 {
		c.round(l)
		c.refill(l, now)
	} else {
		c.refill(c.l, now)
		c.round(l)
	}
	c.turn(now)
	c.level = minRat(c.level, whole(max(0, l.Burst-c.outSum())))
}

// round rounds the fraction of a token down to a multiple of 1/P of l, to
// nothing where P × the old P is above 2^53.
func (c *counter) round(l *limit.Limit) {
	tokens := floorRat(c.level)
	fraction := new(big.Rat).Sub(c.level, whole(tokens))
	parts := floorRat(fraction.Mul(fraction, whole(l.PeriodMS)))
	if c.l.PeriodMS*l.PeriodMS > limit.MaxExact {
		parts = 0
	}
	c.level = new(big.Rat).Add(whole(tokens), big.NewRat(parts, l.PeriodMS))
}

// raise gives tokens back, as far as there is room beside what is out.
func (c *counter) raise(cost int64) {
	raised := minRat(whole(c.l.Burst-c.outSum()), new(big.Rat).Add(c.level, whole(cost)))
	c.level = maxRat(c.level, raised)
}

// report books what became of leases: first what comes back, then what was
// spent. It reports whether that changed anything.
func (c *counter) report(r store.Report) (changed bool) {
	switch c.l.Algorithm {
	case limit.TokenBucket:
		back := min(r.Back, c.out[r.Generation])
		c.out[r.Generation] -= back
		c.raise(back)
		spent := min(r.Spent, c.out[r.Generation])
		c.out[r.Generation] -= spent
		return back > 0 || spent > 0
	case limit.SlidingLog:
		return false
	default:
		before := c.cur
		if r.Generation == c.start {
			c.cur = max(0, c.cur-r.Back)
		}
		return c.cur != before
	}
}

// lend grants a lease by the formulas of the contract, term by term.
func (c *counter) lend(now int64, op *store.Op) lease {
	left, pods := c.left(now), max(1, op.Pods)
	switch c.l.Algorithm {
	case limit.TokenBucket:
		out := c.outSum()
		room := c.l.Burst - out - op.MaxCost
		spare := new(big.Rat).Sub(c.level, whole(out)) // level − out
		half := int64(-1)
		if spare.Sign() >= 0 {
			half = floorRat(spare.Quo(spare, whole(2)))
		}
		share := min(op.Want, left/(2*pods), half, room)
		near := min(op.Want, left, c.l.Rate*20/(c.l.PeriodMS*pods), room)
		n := max(0, share, near)
		if n == 0 {
			return lease{}
		}
		c.level = new(big.Rat).Sub(c.level, whole(n))
		c.out[c.gen] += n
		return lease{n, c.gen, min((c.gen+2)*generationMS-now, 2*generationMS) - 1}
	case limit.SlidingLog:
		return lease{}
	default:
		ms := min(c.end-now, 1000) - 1
		near := min(op.Want, left, c.l.Capacity*20/((c.end-c.start)*pods))
		n := max(min(op.Want, left/(2*pods)), near)
		if n <= 0 || ms <= 0 || now < c.start {
			return lease{}
		}
		c.cur += n
		return lease{n, c.start, ms}
	}
}
