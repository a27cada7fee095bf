package pod

import (
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Reply takes in the store's answer to a call. It returns the checks that are
// answered now, and the call to be made next for those that still wait, or nil.
func (p *Pod) Reply(now int64, c *Call, grants []store.Grant, err error) (done []*Waiter, next *Call) {
	c.sane(grants)
	spent := err == nil && spends(c.Ops, grants)
	p.mu.Lock()
	p.learn(now, c, grants, spent, err)
	if c.flight == nil {
		if c.tells && !c.forCheck {
			next = p.toldQuiet(now, c, err)
		}
		p.mu.Unlock()
		return nil, next
	}
	f := c.flight
	var surplus []int64
	switch {
	case err != nil && (c.sync || c.tells):
		done = f.fail(unsent(err))
	case err != nil:
		done = f.fail(err)
	case c.sync || c.tells:
		done, _ = f.land(nil, func(w *Waiter) bool { return p.takeOwn(now, w) })
	case spent:
		done, surplus = f.land(grants, func(w *Waiter) bool { return p.takeOwn(now, w) })
	default:
		done = f.deny(grants)
	}
	p.keep(c, grants, surplus)
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
	var hashes [store.MaxOps]uint64
	mask := p.lock(c.Ops, hashes[:])
	defer p.buckets.Unlock(mask)
	pods := p.pods.Load()
	if err == nil && len(grants) > 0 && grants[0].NowMS > 0 {
		p.offsetNS.Store(grants[0].NowMS*ms - now)
	}
	for i := range c.Ops {
		op := &c.Ops[i]
		b := p.buckets.GetLocked(hashes[i], keyed.Name(op.Bucket))
		if err == nil {
			p.heard(now, b, op, &grants[i])
		}
		if b == nil {
			continue
		}
		if b.flights > 0 {
			b.flights--
		}
		if c.topUp {
			b.toppingUp = false
			paid := err == nil && spent
			p.settled(op.Bucket.Rule, c.triggers[i], b.leases.settleTrigger(now, c.triggers[i], paid), paid)
		}
		var told store.Grant
		if err == nil {
			told = grants[i]
		}
		if c.tells {
			p.hasTold(now, b, op, &told, err)
			continue
		}
		if op.How == store.Add {
			over := b.told(now, op, &told, err, pods)
			p.figures.overshot(op.Bucket.Rule, OverFigures{Async: over})
			// What did not arrive, or found too little there, is told again, even if the
			// key has gone quiet.
			if t := b.tally; t.pending+t.owed > 0 && !t.scheduled {
				t.scheduled = true
				p.at(now+max(t.waitsNS(), b.owedNS()), ending{bucket: op.Bucket, limit: op.Limit, sync: true})
			}
			continue
		}
		if err != nil {
			continue
		}
		if op.How == store.Undo {
			if op.Limit == b.limit {
				b.pre.credit(op.Limit, op.Receipt.Cost)
			}
			continue
		}
		if spent && grants[i].Lease > 0 {
			p.granted(op.Bucket.Rule, b, &grants[i], c.askedNS+grants[i].LeaseMS*ms)
		}
		b.learn(now, c.askedNS, op, &grants[i], spent, pods)
		if g := &grants[i]; !g.OK && !g.Never {
			g.RetryMS = max(g.RetryMS, b.pauseMS(now)) // or this pod itself would deny who waited
		}
		if spent && grants[i].Lease > 0 {
			p.at(c.askedNS+grants[i].LeaseMS*ms-int64(giveBackBefore), ending{bucket: op.Bucket, limit: op.Limit})
		}
		if spent && c.terms != nil {
			p.charge(now, b, op, c.terms[i].Before, op.Cost+grants[i].Queue+grants[i].Lease)
		}
		if spent && !c.topUp && op.Cost > 0 {
			b.ask(now, op.Cost+grants[i].Queue)
		}
	}
}

// takeOwn spends a waiter's costs from what the pod has, all or none, and answers
// it if it could.
func (p *Pod) takeOwn(now int64, w *Waiter) bool {
	var hashes [store.MaxOps]uint64
	mask := p.lock(w.Ops, hashes[:])
	defer p.buckets.Unlock(mask)
	var known [store.MaxOps]*bucket
	for i := range w.Ops {
		op := &w.Ops[i]
		b := p.buckets.GetLocked(hashes[i], keyed.Name(op.Bucket))
		if b == nil || op.Limit != b.limit || op.Cost == 0 {
			return false
		}
		if op.Want > 0 && b.leases.tokens(now) < op.Cost || op.Want == 0 && (b.tally == nil || b.tally.everyNS == 0 || !b.tally.may(now, op.Cost)) {
			return false
		}
		known[i] = b
	}
	w.Grants = w.Grants[:0]
	for i := range w.Ops {
		op, b, from := &w.Ops[i], known[i], store.FromLease
		if op.Want > 0 {
			b.leases.spend(now, op.Cost)
			b.ask(now, op.Cost)
		} else {
			from = store.FromAsync
			if b.tally.admit(op.Cost) {
				p.at(now+b.tally.everyNS, ending{bucket: op.Bucket, limit: op.Limit, sync: true})
			}
		}
		b.view.remaining -= op.Cost
		w.Grants = append(w.Grants, store.Grant{})
		p.yes(&w.Grants[i], now, b, from)
	}
	return true
}

// keep remembers queue tokens that nobody took, since who asked for them has
// left: they go back with a call of their own, by receipt, so that a window of
// another time is not credited. Where that could admit too much they stay spent.
func (p *Pod) keep(c *Call, grants []store.Grant, surplus []int64) {
	for i, n := range surplus {
		if op := c.Ops[i]; n > 0 && returnable(op.Limit) {
			back := store.Receipt{ID: grants[i].Receipt.ID, Cost: n}
			p.surplus = append(p.surplus, store.Op{Bucket: op.Bucket, Limit: op.Limit, How: store.Undo, NextWindow: op.NextWindow, Receipt: back})
		}
	}
}

// slowToFill is how long a token bucket must take to fill for surplus to go back.
const slowToFill = 2 * time.Second

// returnable reports whether tokens that were granted and not used may go back
// later. A log cannot give back part of an entry. Until they are back they are
// neither in a bucket nor out on a lease: one that fills meanwhile would hold them
// twice.
func returnable(l *limit.Limit) bool {
	switch l.Algorithm {
	case limit.SlidingLog:
		return false
	case limit.TokenBucket:
		return l.Burst*l.PeriodMS/l.Rate > slowToFill.Milliseconds()
	case limit.SlidingWindow, limit.FixedWindow:
	}
	return true
}
