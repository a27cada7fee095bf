package pod

import "time"

// demandSpan is the time whose spend a lease should cover: at five leases a
// second and pod, a key that is spread over 50 pods costs the store 250 calls a
// second, and the pods hold on average about half a lease each.
const demandSpan = 250 * time.Millisecond

// demand is what a pod spends on a bucket, in slots of demandSpan.
type demand struct {
	slot          int64 // number of the current one
	current, last int64 // tokens in it, and in the one before
}

func (d *demand) roll(now int64) {
	slot := now / int64(demandSpan)
	switch slot - d.slot {
	case 0:
	case 1:
		d.last, d.current = d.current, 0
	default:
		d.last, d.current = 0, 0
	}
	d.slot = slot
}

// add counts tokens asked for.
func (d *demand) add(now, tokens int64) {
	d.roll(now)
	d.current += tokens
}

// want is the lease this demand deserves.
func (d *demand) want(now int64) int64 {
	d.roll(now)
	return max(d.current, d.last)
}
