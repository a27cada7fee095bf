package pod

import (
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// DefaultSync is how long counts wait to be told where a rule does not say.
const DefaultSync = 50 * time.Millisecond

// tally is what a pod has counted and not yet told the store.
type tally struct {
	pending int64 // tokens admitted since the last sync
	telling int64 // tokens of syncs under way
	budget  int64 // tokens that may be admitted before the next
	// owed is what the store could not take since the bucket was empty: it is told
	// again, and nothing is admitted on an estimate until it is paid.
	owed      int64
	scheduled bool  // a sync is due
	everyNS   int64 // how long counts wait; 0 for a rule that makes no estimates
	untilNS   int64 // how long the budget is good for
	// retelling is the part of what is being told that was told before, and could
	// not be taken.
	retelling int64
	// fallback is what the pod admits by itself while the store does not answer; nil
	// as long as it has always answered. It is here since it is as rare.
	fallback *fallback
}

// allowance is what a pod may admit until the next sync: what the rate brings in
// that time, or its part of half of what is left. An empty bucket allows nothing:
// then the store is asked, and the count is exact.
func allowance(l *limit.Limit, everyNS, remaining, pods int64) int64 {
	if remaining <= 0 {
		return 0
	}
	brings := int64(1)
	switch {
	case l.Algorithm == limit.TokenBucket:
		brings = ceil(l.Rate*(everyNS/ms), l.PeriodMS)
	case l.WindowMS > 0:
		brings = ceil(l.Capacity*(everyNS/ms), l.WindowMS)
	}
	return max(brings, remaining/(2*pods))
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// unpaid is what was admitted and the store was not yet charged.
func (t *tally) unpaid() int64 { return t.pending + t.telling + t.owed }

// counts returns the bucket's tally, made at its first use.
func (b *bucket) counts() *tally {
	if b.tally == nil {
		b.tally = new(tally)
	}
	return b.tally
}

// waitsNS is how long counts wait to be told.
func (t *tally) waitsNS() int64 {
	if t.everyNS == 0 {
		return int64(DefaultSync) // a rule that only reports
	}
	return t.everyNS
}

// may reports whether cost may be admitted on the estimate.
func (t *tally) may(now, cost int64) bool { return t.budget >= cost && now < t.untilNS }

// admit counts cost and reports whether a sync must be scheduled for it.
func (t *tally) admit(cost int64) (sync bool) {
	t.budget -= cost
	t.pending += cost
	sync, t.scheduled = !t.scheduled, true
	return sync
}

// takeBack undoes an admit.
func (t *tally) takeBack(cost int64) {
	t.pending -= min(cost, t.pending)
	t.budget += cost
}

// schedule remembers to tell the counts of the ops whose bits are set.
func (p *Pod) schedule(now int64, ops []store.Op, terms []Terms, bits uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ops {
		if bits&(1<<i) == 0 {
			continue
		}
		every := DefaultSync
		if terms != nil {
			every = terms[i].sync()
		}
		p.at(now+int64(every), ending{bucket: ops[i].Bucket, limit: ops[i].Limit, sync: true})
	}
}

// tells is the op that tells the store what was counted, if anything was.
func (p *Pod) tells(e *ending) (store.Op, bool) {
	b, mask := p.lockOne(e.bucket)
	defer p.buckets.Unlock(mask)
	if b == nil {
		return store.Op{}, false
	}
	b.counts().scheduled = false
	return b.tells(e.bucket)
}

// tells takes out what the store should know of the counts.
func (b *bucket) tells(name store.Bucket) (store.Op, bool) {
	t := b.counts()
	cost := min(t.pending+t.owed, limit.MaxCost)
	if cost == 0 {
		return store.Op{}, false
	}
	t.retelling += t.owed
	t.pending, t.owed, t.telling = t.pending+t.owed-cost, 0, t.telling+cost
	return store.Op{Bucket: name, Limit: b.limit, How: store.Add, NextWindow: b.nextWindow, Cost: cost}, true
}

// syncFirst returns the call that tells what was admitted on an estimate, where
// that is used up: only then is the store's answer exact. nil where all is told.
func (p *Pod) syncFirst(now int64, f *flight, head *Waiter) *Call {
	var hashes [store.MaxOps]uint64
	mask := p.lock(head.Ops, hashes[:])
	defer p.buckets.Unlock(mask)
	var c *Call
	for i := range head.Ops {
		b := p.buckets.GetLocked(hashes[i], keyed.Name(head.Ops[i].Bucket))
		if b == nil || b.tally == nil || b.tally.everyNS == 0 || b.tally.pending == 0 {
			continue // what is owed is told in its time: the bucket is empty now
		}
		if op, ok := b.tells(head.Ops[i].Bucket); ok {
			if c == nil {
				c = &Call{askedNS: now, flight: f, sync: true}
			}
			c.Ops = append(c.Ops, op)
			b.flights++
		}
	}
	return c
}

// told takes in the answer to what tells said. What surely did not arrive is told
// again; what may have arrived is not. over is what the bucket could not take, and
// was not told of before.
func (b *bucket) told(now int64, op *store.Op, g *store.Grant, err error, pods int64) (over int64) {
	t := b.counts()
	again := min(op.Cost, t.retelling)
	t.telling -= min(op.Cost, t.telling)
	t.retelling -= again
	if err != nil {
		if !mayHaveRun(err) {
			t.pending += op.Cost - again
			t.owed += again
		}
		return 0
	}
	b.see(now, op, g, 0)
	if t.everyNS == 0 {
		return 0
	}
	lacking := op.Cost - min(op.Cost, g.Receipt.Cost)
	t.owed += lacking
	b.renew(now, g.Remaining, pods)
	return max(0, lacking-again)
}

// owedNS is how long to wait until what is owed has refilled: told sooner, it would
// be owed again. At most a second, since others spend too.
func (b *bucket) owedNS() int64 {
	l := b.limit
	if b.tally.owed == 0 || l.Algorithm != limit.TokenBucket {
		return 0
	}
	return min(int64(time.Second), ceil(min(b.tally.owed, l.Burst)*l.PeriodMS, l.Rate)*ms)
}

// renew sets what may be admitted on an estimate, now that the store said what is
// left: less what it does not know yet, so that what is admitted and not paid for
// is at no time more than one allowance.
func (b *bucket) renew(now, remaining, pods int64) {
	t := b.tally
	t.untilNS = now + t.everyNS
	unpaid := t.unpaid()
	t.budget = allowance(b.numbers(now), t.everyNS, remaining-unpaid, pods) - unpaid
}
