package pod

import (
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// How a pod tells the store by itself what fallbacks admitted of keys that have gone
// quiet: tellAfter later, at most mostTells at a time, and fewer while it fails, so
// that a store that is away, or just back, is not flooded.
const (
	tellAfter = time.Second
	mostTells = 16
)

// quiet is the buckets with something to tell, each once, the longest waiting first.
type quiet struct {
	waiting []owing
	// most is how many may be told at a time, and out how many are being told.
	most, out int
}

// owing is a bucket whose debt is told at a time, unless a check did so before.
type owing struct {
	bucket store.Bucket
	atNS   int64
}

// add puts a bucket in line. Its key is copied: the caller may use the bytes behind
// it again.
func (q *quiet) add(now int64, b store.Bucket) {
	q.waiting = append(q.waiting, owing{bucket: b, atNS: now + int64(tellAfter)})
}

// take returns the buckets to be told now.
func (q *quiet) take(now int64) []owing {
	n := 0
	for n < len(q.waiting) && n < q.most-q.out && q.waiting[n].atNS <= now {
		n++
	}
	due := append([]owing(nil), q.waiting[:n]...)
	clear(q.waiting[:n])
	q.waiting = q.waiting[n:]
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
	return due
}

// owe puts the buckets of the ops whose bits are set in line.
func (p *Pod) owe(now int64, ops []store.Op, bits uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range ops {
		if bits&(1<<i) != 0 {
			b := ops[i].Bucket
			b.Key = strings.Clone(b.Key)
			p.quiet.add(now, b)
		}
	}
}

// tellQuiet returns the calls that tell of keys that have gone quiet.
func (p *Pod) tellQuiet(now int64) []*Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []*Call
	for _, o := range p.quiet.take(now) {
		if c := p.tellOne(now, o.bucket); c != nil {
			p.quiet.out++
			calls = append(calls, c)
		}
	}
	return calls
}

// tellOne returns the call that tells one bucket's debt, or nil: then it is told, or
// stands in line again. The caller holds mu.
func (p *Pod) tellOne(now int64, name store.Bucket) *Call {
	b, mask := p.lockOne(name)
	defer p.buckets.Unlock(mask)
	if b == nil || b.tally == nil || b.tally.fallback == nil {
		return nil
	}
	d := &b.tally.fallback.debt
	op, over, ok := d.tell(now, b.limit, name)
	op.NextWindow = b.nextWindow
	p.figures.overshot(name.Rule, OverFigures{Fallback: over})
	if ok {
		b.flights++
		return &Call{Ops: []store.Op{op}, askedNS: now, tells: true}
	}
	if d.untold > 0 || d.telling > 0 || d.looking { // a check tells it just now
		p.quiet.add(now, name)
	} else {
		d.queued = false
	}
	return nil
}

// toldQuiet ends a call that told of a quiet key, and returns the next one for it.
// The caller holds mu.
func (p *Pod) toldQuiet(now int64, c *Call, err error) *Call {
	p.quiet.out--
	name := c.Ops[0].Bucket
	if err != nil {
		p.quiet.most = max(1, p.quiet.most/2)
		p.quiet.add(now, name)
		return nil
	}
	p.quiet.most = min(2*p.quiet.most, mostTells)
	next := p.tellOne(now, name)
	if next != nil {
		p.quiet.out++
	}
	return next
}

// Tell returns a call to be made before a check asks the store for these buckets
// outside of any flight, or nil: it tells what fallbacks admitted of them.
func (p *Pod) Tell(now int64, ops []store.Op) *Call { return p.tellFirst(now, nil, ops) }

// tellFirst returns the call that tells what fallbacks admitted of these buckets, so
// that they are charged for it before they admit more; nil where all is told.
func (p *Pod) tellFirst(now int64, f *flight, ops []store.Op) *Call {
	if p.fallen.Load() == 0 {
		return nil
	}
	var hashes [store.MaxOps]uint64
	mask := p.lock(ops, hashes[:])
	defer p.buckets.Unlock(mask)
	var c *Call
	for i := range ops {
		name := ops[i].Bucket
		b := p.buckets.GetLocked(hashes[i], keyed.Name(name))
		if b == nil || b.tally == nil || b.tally.fallback == nil {
			continue
		}
		op, over, ok := b.tally.fallback.debt.tell(now, b.limit, name)
		op.NextWindow = b.nextWindow
		p.figures.overshot(name.Rule, OverFigures{Fallback: over})
		if !ok {
			continue
		}
		if c == nil {
			c = &Call{askedNS: now, flight: f, tells: true, forCheck: true}
		}
		c.Ops = append(c.Ops, op)
		b.flights++
	}
	return c
}

// Answered takes in what the store answered to a check outside of any flight.
func (p *Pod) Answered(now int64, ops []store.Op, grants []store.Grant) {
	if p.fallen.Load() == 0 && p.overflow.len() == 0 {
		return
	}
	var hashes [store.MaxOps]uint64
	mask := p.lock(ops, hashes[:])
	defer p.buckets.Unlock(mask)
	for i := range ops {
		p.heard(now, p.buckets.GetLocked(hashes[i], keyed.Name(ops[i].Bucket)), &ops[i], &grants[i])
	}
}

// heard ends the outage of a bucket that the store answered for. A fallback that has
// all and owes nothing is forgotten.
func (p *Pod) heard(now int64, b *bucket, op *store.Op, g *store.Grant) {
	switch {
	case g.Skipped:
	case b == nil:
		p.overflow.answered(now, op.Bucket.Rule)
	case b.tally == nil || b.tally.fallback == nil:
	default:
		f := b.tally.fallback
		f.answered(now)
		f.debt.hear(g)
		if f.level == f.n.most && !f.debt.any() {
			b.tally.fallback = nil
			p.fallen.Add(-1)
		}
	}
}

// hasTold takes in the answer to an op of a call that tells.
func (p *Pod) hasTold(now int64, b *bucket, op *store.Op, g *store.Grant, err error) {
	if b.tally == nil || b.tally.fallback == nil {
		return
	}
	f := b.tally.fallback
	over := f.debt.told(now, b.numbers(now), op, g, err)
	p.figures.overshot(op.Bucket.Rule, OverFigures{Fallback: over})
	if err == nil {
		f.answered(now)
	}
}

// holder returns the bucket's entry whatever numbers it counts by, made if there is
// room.
func (p *Pod) holder(now int64, hash uint64, op *store.Op) *bucket {
	if b := p.buckets.GetLocked(hash, keyed.Name(op.Bucket)); b != nil {
		b.bind(op)
		return b
	}
	return p.entry(now, hash, op)
}

// forgettable reports whether the bucket may make room for another, and if so counts
// that its fallback goes with it.
func (p *Pod) forgettable(now int64, b *bucket) bool {
	if !b.droppable(now) {
		return false
	}
	if b.tally != nil && b.tally.fallback != nil {
		p.fallen.Add(-1)
	}
	return true
}

// OverFigures are tokens that a rule admitted and its bucket had not: what the store
// could not charge when it was told of them.
type OverFigures struct {
	// Async were admitted on an estimate, and are told again until they are charged;
	// Fallback while the store did not answer, and are not.
	Async, Fallback int64
}

// overshot adds to what a rule admitted over its limit.
func (f *figures) overshot(rule string, d OverFigures) {
	if d == (OverFigures{}) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.over[rule]
	if o == nil {
		if len(f.over) >= maxFigures {
			rule = ""
		}
		if o = f.over[rule]; o == nil {
			o = new(OverFigures)
			f.over[rule] = o
		}
	}
	o.Async += d.Async
	o.Fallback += d.Fallback
}

// Over returns what each rule admitted over its limit; the key "" is for rules beyond
// a thousand.
func (p *Pod) Over() map[string]OverFigures {
	f := &p.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]OverFigures, len(f.over))
	for rule, o := range f.over {
		all[rule] = *o
	}
	return all
}

// Fallbacks returns how many buckets have a fallback that is not full or has
// something to tell, those shared by many keys included, and how many draws there
// were on the latter.
func (p *Pod) Fallbacks() (buckets int, overflowed int64) {
	return int(p.fallen.Load()) + p.overflow.len(), p.overflowed.Load()
}
