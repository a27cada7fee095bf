package pod

import (
	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// Knows reports whether the pod has an entry for a bucket. One that it has is kept for
// a second, as if something had been spent.
func (p *Pod) Knows(now int64, name store.Bucket) bool {
	b, mask := p.lockOne(name)
	defer p.buckets.Unlock(mask)
	if b == nil {
		return false
	}
	b.roll(now)
	return true
}

// Meet makes an entry for a bucket that the pod does not know, if there is room.
func (p *Pod) Meet(now int64, op *store.Op) {
	hash := p.buckets.Hash(keyed.Name(op.Bucket))
	mask := p.buckets.Bit(hash)
	p.buckets.Lock(mask)
	defer p.buckets.Unlock(mask)
	if b := p.entry(now, hash, op); b != nil {
		b.roll(now)
	}
}

// Knows reports whether this pod has an entry for a bucket, in the table of the rules
// that it counts alone or in that of the others.
func (r *Runner) Knows(name store.Bucket, t Terms) bool {
	if t.Counting == Local {
		return r.own.Holds(name)
	}
	return r.pod.Knows(r.now(), name)
}

// Meet makes an entry for a bucket that the pod does not know, if there is room. What
// the pod counts alone makes its own.
func (r *Runner) Meet(op *store.Op, t Terms) {
	if t.Counting != Local {
		r.pod.Meet(r.now(), op)
	}
}
