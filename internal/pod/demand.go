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

// demand is what a pod spends on a bucket, in slots of demandSpan: the current
// one and those before, the latest first.
type demand struct {
	slot   int32 // number of the current one
	tokens [4]int32
}

func (d *demand) roll(now int64) {
	slot := int32(now / int64(demandSpan))
	n := slot - d.slot
	d.slot = slot
	switch {
	case n <= 0:
	case int(n) >= len(d.tokens):
		d.tokens = [4]int32{}
	default:
		copy(d.tokens[n:], d.tokens[:])
		clear(d.tokens[:n])
	}
}

// add counts tokens asked for.
func (d *demand) add(now, tokens int64) {
	d.roll(now)
	d.tokens[0] = int32(min(int64(d.tokens[0])+tokens, mostTokens))
}

// want is the lease this demand deserves: what was spent in a demandSpan, or, of a
// slow bucket, in the part of a second that a lease surely lives.
func (d *demand) want(now int64) int64 {
	d.roll(now)
	fast := int64(max(d.tokens[0], d.tokens[1]))
	if fast >= slowDemand {
		return fast
	}
	var second int64
	for _, n := range d.tokens {
		second += int64(n)
	}
	return max(fast, second*7/10)
}
