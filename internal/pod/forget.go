package pod

import (
	"github.com/tallygate/tallygate/store"
)

// Forget drops what the pod knows of a bucket that was reset in the store: leases,
// which are not given back, denials, estimates and counts that were not told, and what
// the fallback has admitted. Calls under way are not undone.
func (p *Pod) Forget(name store.Bucket) {
	b, mask := p.lockOne(name)
	defer p.buckets.Unlock(mask)
	if b == nil {
		return
	}
	var d LeaseFigures
	l := &b.leases
	for i := range l.left {
		d.Spent += int64(l.spent[i])
		d.Expired += int64(l.left[i]) + int64(l.back[i])
		l.left[i], l.spent[i], l.back[i] = 0, 0, 0
	}
	p.figures.add(name.Rule, d)
	b.denial, b.view, b.known, b.pauseNS, b.denials, b.size = denial{}, view{}, false, 0, 0, 0
	b.pre = pre{}
	if t := b.tally; t != nil {
		t.pending, t.owed, t.budget = 0, 0, 0
		if f := t.fallback; f != nil {
			f.level, f.part, f.debt.untold = f.n.most, 0, 0
		}
	}
}

// Forget drops what the pod knows of a bucket that was reset in the store.
func (r *Runner) Forget(name store.Bucket) { r.pod.Forget(name) }

// Own returns the counts of rules that this pod counts alone.
func (r *Runner) Own() *store.MemoryStore { return r.own }
