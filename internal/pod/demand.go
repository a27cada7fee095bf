package pod

import "time"

// demandSpan is the time whose spend a lease should cover: at five leases a
// second and pod, a key that is spread over 50 pods costs the store 250 calls a
// second, and the pods hold on average about half a lease each.
const demandSpan = 250 * time.Millisecond

// slowDemand is the spend in a demandSpan below which a second is looked at: two
// tokens a second are nothing in most quarters of it, and yet a lease of one
// token saves more calls than its return costs.
const slowDemand = 4

// demand is what a pod spends on a bucket, in slots of demandSpan: here the current
// one.
type demand struct {
	slot   int32 // its number
	tokens int32
}

// earlier is the demand of the slots before, the latest first.
type earlier [3]int32

func (b *bucket) roll(now int64) {
	d := &b.demand
	slot := int32(now / int64(demandSpan))
	n := int(slot - d.slot)
	d.slot = slot
	if n <= 0 {
		return
	}
	was := b.earlier
	b.earlier = earlier{}
	if n <= len(was) {
		b.earlier[n-1] = d.tokens
		copy(b.earlier[n:], was[:])
	}
	d.tokens = 0
}

// ask counts tokens asked for.
func (b *bucket) ask(now, tokens int64) {
	b.roll(now)
	b.demand.tokens = int32(min(int64(b.demand.tokens)+tokens, mostTokens))
}

// want is the lease this demand deserves: what was spent in a demandSpan, or, of a
// slow bucket, in the part of a second that a lease surely lives.
func (b *bucket) want(now int64) int64 {
	b.roll(now)
	fast := int64(max(b.demand.tokens, b.earlier[0]))
	if fast >= slowDemand {
		return fast
	}
	second := int64(b.demand.tokens)
	for _, n := range b.earlier {
		second += int64(n)
	}
	return max(fast, second*7/10)
}
