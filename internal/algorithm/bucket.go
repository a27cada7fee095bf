package algorithm

import "github.com/tallygate/tallygate/limit"

// Bucket is the state of a token bucket: what is left, and what is out on
// leases, see lease.go.
//
// Level is in 1/P tokens and rises by Rate a millisecond up to the cap; TS is
// the time up to which that has been counted. While tokens are out they count
// as if they were still here, so that level + out never exceeds the burst.
type Bucket struct {
	Level, TS int64
	// Gen is the current generation of leases; Out0 tokens are out on leases of
	// it, Out1 on those of the one before.
	Gen, Out0, Out1 int64
}

// out returns the tokens out on leases.
func (b *Bucket) out() int64 { return b.Out0 + b.Out1 }

// advance refills up to now and turns the generation. Rebased says that the
// clock was behind TS: TS follows it, and that must be stored even when nothing
// is spent, or nothing would come back until the clock had caught up.
func (b *Bucket) advance(l *limit.Limit, now int64) (rebased bool) {
	if now < b.TS {
		b.TS, rebased = now, true
	}
	// Before turning: time in which tokens were out must not refill as if they
	// had been back.
	b.refill(l, l.Burst, now)
	b.rotate(now)
	return rebased
}

// refill counts the time from TS to now at the rate of l, stretch by stretch
// with the tokens that were out in it. full is the burst in that time.
func (b *Bucket) refill(l *limit.Limit, full, now int64) {
	// The clip keeps products within bounds where full belongs to other numbers;
	// a level above l.Burst is capped in any case.
	room := func(out int64) int64 { return max(0, min(full-out, l.Burst)) * l.PeriodMS }
	if b.out() > 0 {
		turn := (b.Gen + 1) * GenerationMS
		b.refillUntil(l.Rate, room(b.out()), min(now, turn))
		b.refillUntil(l.Rate, room(b.Out0), min(now, turn+GenerationMS))
	}
	b.refillUntil(l.Rate, room(0), now)
}

// refillUntil counts one stretch. A level above its cap stays: a cap only stops
// refill. The time is cut to what fills the bucket before it is multiplied, so
// that no pause is too long.
func (b *Bucket) refillUntil(rate, most, until int64) {
	if until <= b.TS {
		return
	}
	if need := most - b.Level; need > 0 {
		elapsed := min(until-b.TS, ceilDiv(need, rate))
		b.Level = min(most, b.Level+elapsed*rate)
	}
	b.TS = until
}

// wait returns how long until cost ≤ burst is there.
func (b *Bucket) wait(l *limit.Limit, cost int64) int64 {
	if need := cost*l.PeriodMS - b.Level; need > 0 {
		return ceilDiv(need, l.Rate)
	}
	return 0
}

// back raises the level by cost, as far as there is room beside what is out.
func (b *Bucket) back(l *limit.Limit, cost int64) {
	most := max(0, l.Burst-b.out()) * l.PeriodMS
	b.Level = max(b.Level, min(most, b.Level+min(cost, l.Burst)*l.PeriodMS))
}

// toFull returns the time until the bucket is full if nothing is spent.
func (b *Bucket) toFull(l *limit.Limit) int64 {
	return ceilDiv(max(0, l.Burst*l.PeriodMS-b.Level), l.Rate)
}

// ceilDiv returns ⌈a/b⌉ for a ≥ 0, b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if q*b < a {
		q++
	}
	return q
}

// floorDiv returns ⌊a/b⌋ for b > 0 and any a: clocks before 1970 are legal.
func floorDiv(a, b int64) int64 {
	q := a / b
	if q*b > a {
		q--
	}
	return q
}
