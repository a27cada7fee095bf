package pod

import (
	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// Outcome is what a pod can say by itself.
type Outcome uint8

const (
	// Ask means that the store must be asked for the ops in Lacking; for the others
	// tokens are set aside, to be kept by Settle or refunded by Refund.
	Ask Outcome = iota
	// Allowed means that leases paid for all of it.
	Allowed
	// Denied means that a denial of the store still holds. Nothing was spent.
	Denied
)

// Decision is a pod's own answer to a check.
type Decision struct {
	Outcome Outcome
	// Lacking has a bit for each op that the store must be asked for.
	Lacking uint32
	// TopUp is a call to be made in the background, or nil: the leases this check
	// spent from are low.
	TopUp *Call
}

// Local answers takes as far as the pod can, and appends a grant an op to dst:
// for an Ask, those of ops not Lacking.
func (p *Pod) Local(now int64, dst []store.Grant, ops []store.Op) ([]store.Grant, Decision) {
	mask, hashes := p.lock(ops)
	var known [store.MaxOps]*bucket
	for i := range ops {
		if b := p.buckets.GetLocked(hashes[i], keyed.Name(ops[i].Bucket)); b != nil && b.bind(ops[i].Limit) {
			known[i] = b
		}
	}
	start := len(dst)
	for range ops {
		dst = append(dst, store.Grant{})
	}
	d, low := p.decide(now, dst[start:], ops, &known)
	p.buckets.Unlock(mask)
	if low != 0 {
		d.TopUp = p.topUp(now, ops, low)
	}
	return dst, d
}

// decide answers the ops of a check whose buckets are locked. low has a bit for
// each whose leases should be topped up.
func (p *Pod) decide(now int64, grants []store.Grant, ops []store.Op, known *[store.MaxOps]*bucket) (d Decision, low uint32) {
	for i := range ops {
		op, b := &ops[i], known[i]
		if b == nil || op.Want == 0 || op.Cost == 0 {
			d.Lacking |= 1 << i
			continue
		}
		denied := b.denial.covers(now, op.Cost)
		switch {
		case denied && op.Shadow:
			grants[i] = b.no(now)
		case denied:
			d.Outcome = Denied
		case b.leases.tokens(now) >= op.Cost:
			grants[i].OK = true
		case now < b.pauseNS && !op.Shadow:
			d.Outcome = Denied
		default:
			d.Lacking |= 1 << i
		}
	}
	if d.Outcome == Denied {
		d.Lacking = 0
		for i := range ops {
			p.refuse(now, &grants[i], &ops[i], known[i])
		}
		return d, 0
	}
	if d.Lacking == 0 {
		d.Outcome = Allowed
	}
	low = p.spendLocal(now, grants, ops, known)
	if d.Outcome != Allowed {
		low = 0 // a call is about to be made anyway
	}
	return d, low
}

// spendLocal spends the ops whose grants are OK from their leases, and says which
// of these are low then.
func (p *Pod) spendLocal(now int64, grants []store.Grant, ops []store.Op, known *[store.MaxOps]*bucket) (low uint32) {
	for i := range ops {
		b, cost := known[i], ops[i].Cost
		if !grants[i].OK {
			continue
		}
		b.leases.spend(now, cost)
		b.demand.add(now, cost)
		b.view.spent += cost
		grants[i] = store.Grant{OK: true, Source: store.FromLease, Limit: b.limit, Remaining: b.left(now), ResetMS: b.resetMS(now)}
		if !ops[i].Shadow && b.low(now) {
			low |= 1 << i
		}
	}
	return low
}

// refuse answers an op of a check that is denied locally.
func (p *Pod) refuse(now int64, g *store.Grant, op *store.Op, b *bucket) {
	switch {
	case b != nil && (b.denial.covers(now, op.Cost) || now < b.pauseNS && b.leases.tokens(now) < op.Cost) && op.Cost > 0 && op.Want > 0:
		*g = b.no(now)
	case b != nil && b.view.known:
		*g = store.Grant{OK: true, Source: store.FromLease, Limit: b.limit, Remaining: b.left(now), ResetMS: b.resetMS(now)}
	default:
		*g = store.Grant{Skipped: true, Limit: op.Limit}
	}
}

// no is a denial from memory.
func (b *bucket) no(now int64) store.Grant {
	g := store.Grant{Source: store.FromDenyCache, Limit: b.limit, ResetMS: b.resetMS(now), Never: b.denial.never && now < b.denial.untilNS}
	switch {
	case g.Never:
	case now < b.denial.untilNS:
		g.RetryMS = b.denial.retryMS(now)
	default:
		g.RetryMS = max(1, (b.pauseNS-now+ms-1)/ms)
	}
	if b.view.known {
		g.Remaining = b.left(now)
	}
	return g
}

// Refund gives back what Local set aside for a check that was then denied, or
// whose answer is not known to have allowed it.
func (p *Pod) Refund(now int64, ops []store.Op, lacking uint32) {
	mask, hashes := p.lock(ops)
	defer p.buckets.Unlock(mask)
	for i := range ops {
		if lacking&(1<<i) != 0 {
			continue
		}
		b := p.buckets.GetLocked(hashes[i], keyed.Name(ops[i].Bucket))
		if b == nil {
			continue
		}
		b.leases.refund(now, ops[i].Cost)
		b.view.spent = max(0, b.view.spent-ops[i].Cost)
	}
}
