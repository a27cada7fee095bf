package pod

import (
	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// Reply takes in the store's answer to a call. It returns the checks that are
// answered now, and the call to be made next for those that still wait, or nil.
func (p *Pod) Reply(now int64, c *Call, grants []store.Grant, err error) (done []*Waiter, next *Call) {
	spent := err == nil && spends(c.Ops, grants)
	p.mu.Lock()
	p.learn(now, c, grants, spent, err)
	if c.flight == nil {
		p.mu.Unlock()
		return nil, nil
	}
	f := c.flight
	var surplus []int64
	switch {
	case err != nil:
		done = f.fail(err)
	case spent:
		done, surplus = f.land(grants, func(w *Waiter) bool { return p.takeLeases(now, w) })
	default:
		done = f.deny(grants)
	}
	p.keep(c, surplus)
	speaksFor := f.depart()
	if len(speaksFor) == 0 {
		delete(p.flights, f.name)
	}
	p.mu.Unlock()
	if len(speaksFor) > 0 {
		next = p.call(now, f, speaksFor)
	}
	return done, next
}

// spends reports whether a call's takes were spent: all enforced ones were OK.
func spends(ops []store.Op, grants []store.Grant) bool {
	for i := range grants {
		if !ops[i].Shadow && !grants[i].OK {
			return false
		}
	}
	return true
}

// learn updates the buckets a call asked for.
func (p *Pod) learn(now int64, c *Call, grants []store.Grant, spent bool, err error) {
	mask, hashes := p.lock(c.Ops)
	defer p.buckets.Unlock(mask)
	for i := range c.Ops {
		op := &c.Ops[i]
		b := p.buckets.GetLocked(hashes[i], keyed.Name(op.Bucket))
		if b == nil {
			continue
		}
		if b.flights > 0 {
			b.flights--
		}
		if c.topUp {
			b.toppingUp = false
			b.leases.settleTrigger(now, c.triggers[i], err == nil && spent)
		}
		if err != nil {
			continue
		}
		b.learn(now, c.askedNS, op, &grants[i], spent)
		if spent && grants[i].Lease > 0 {
			p.watch(op, c.askedNS+grants[i].LeaseMS*ms-int64(giveBackBefore))
		}
		if spent && !c.topUp && op.Cost > 0 {
			b.demand.add(now, op.Cost+grants[i].Queue)
		}
	}
}

// takeLeases spends a waiter's costs from the leases, all or none.
func (p *Pod) takeLeases(now int64, w *Waiter) bool {
	mask, hashes := p.lock(w.Ops)
	defer p.buckets.Unlock(mask)
	var known [store.MaxOps]*bucket
	for i := range w.Ops {
		b := p.buckets.GetLocked(hashes[i], keyed.Name(w.Ops[i].Bucket))
		if b == nil || w.Ops[i].Limit != b.limit || w.Ops[i].Cost == 0 || b.leases.tokens(now) < w.Ops[i].Cost {
			return false
		}
		known[i] = b
	}
	for i := range w.Ops {
		known[i].leases.spend(now, w.Ops[i].Cost)
		known[i].demand.add(now, w.Ops[i].Cost)
		known[i].view.spent += w.Ops[i].Cost
	}
	return true
}

// keep remembers queue tokens that nobody took, since who asked for them has
// left: they go back with a call of their own.
func (p *Pod) keep(c *Call, surplus []int64) {
	for i, n := range surplus {
		if n > 0 {
			op := c.Ops[i]
			p.surplus = append(p.surplus, store.Op{Bucket: op.Bucket, Limit: op.Limit, How: store.Back, Cost: n})
		}
	}
}
