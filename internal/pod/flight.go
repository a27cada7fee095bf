package pod

import (
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Waiter is one check that the store must answer, and what
// it is told. The fields are the caller's until Join and again when it is handed
// back; Leave takes it out before.
type Waiter struct {
	// Ops are what the check asks of the store, with its own costs.
	Ops []store.Op
	// Terms are those of the ops' rules; nil means that all lease.
	Terms []Terms
	// Grants and Err are the answer, one grant an op.
	Grants []store.Grant
	Err    error
	// Sent says that the answer under way includes this check: leaving now, it does
	// not know whether it was spent.
	Sent bool
	// Signal is the caller's own, to be woken by.
	Signal chan struct{}

	background bool // fetches a lease; nobody waits for it
	gone       bool
}

// flight is one call under way for a set of buckets, and who waits for the next:
// a pod asks at most once at a time for the same set.
type flight struct {
	name    string
	waiting []*Waiter
	sent    int // how many of them the call under way speaks for
}

// cost returns what a waiter asks of bucket i.
func (w *Waiter) cost(i int) int64 { return w.Ops[i].Cost }

// depart marks who the next call speaks for: the first that still waits, and all
// behind it as queue. It returns nil when nobody waits.
func (f *flight) depart() []*Waiter {
	kept := f.waiting[:0]
	for _, w := range f.waiting {
		if !w.gone {
			kept = append(kept, w)
		}
	}
	clear(f.waiting[len(kept):])
	f.waiting, f.sent = kept, len(kept)
	for _, w := range kept {
		w.Sent = true
	}
	return kept
}

// fail hands everyone the call spoke for its error. Who came later has not asked.
func (f *flight) fail(err error) (done []*Waiter) {
	done = append(done, f.waiting[:f.sent]...)
	f.waiting = append(f.waiting[:0], f.waiting[f.sent:]...)
	for _, w := range done {
		w.Err = err
	}
	return withoutBackground(done)
}

// land hands out a grant: the head its own, then first come, first served from
// the queue that was granted and then from the leases, without overtaking. take
// spends a waiter's costs from the leases and reports whether it could. The first
// that does not fit heads the next flight. Whoever the call spoke for behind it,
// and asks no less, has its answer where that emptied a token bucket: no. Or the
// line would grow for as long as more is asked than refills.
//
// Without grants everyone, the head too, is served from what the pod has.
func (f *flight) land(grants []store.Grant, take func(w *Waiter) bool) (done []*Waiter, surplus []int64) {
	queue := make([]int64, len(grants))
	for i := range grants {
		queue[i] = grants[i].Queue
	}
	for i, w := range f.waiting {
		switch {
		case w.background || w.gone && i > 0:
			continue
		case i == 0 && len(grants) > 0:
		case len(grants) > 0 && f.fits(w, grants, queue):
			for b := range queue {
				queue[b] -= w.cost(b)
			}
		case take(w):
			done = append(done, w)
			continue
		default:
			return append(done, f.rest(i, grants)...), queue
		}
		w.answer(grants)
		done = append(done, w)
	}
	f.waiting = f.waiting[:0]
	return done, queue
}

// rest keeps the waiters from i on for the next flight, but for those whose answer
// is known to be no.
func (f *flight) rest(i int, grants []store.Grant) (denied []*Waiter) {
	first := f.waiting[i]
	kept := append(f.waiting[:0], first)
	for j, w := range f.waiting[i+1:] {
		if i+1+j < f.sent && w.asksAtLeast(first) && w.refuse(grants) {
			denied = append(denied, w)
			continue
		}
		kept = append(kept, w)
	}
	f.waiting = kept
	return denied
}

// refuse answers no where a token bucket was emptied, and reports whether one was.
func (w *Waiter) refuse(grants []store.Grant) bool {
	empty := false
	w.answer(grants)
	for i := range w.Grants {
		g := &w.Grants[i]
		if l := g.Limit; g.Remaining == 0 && l != nil && l.Algorithm == limit.TokenBucket && w.cost(i) > 0 && !w.Ops[i].Shadow {
			empty = true
			g.OK, g.RetryMS = false, ceil(w.cost(i)*l.PeriodMS, l.Rate)
		}
	}
	return empty
}

// withoutBackground leaves out the call that nobody waits for.
func withoutBackground(done []*Waiter) []*Waiter {
	if len(done) > 0 && done[0].background {
		return done[1:]
	}
	return done
}

// fits reports whether what is left of the queue covers a waiter. Of a bucket in
// shadow that denied the head it needs nothing: it has the same answer.
func (f *flight) fits(w *Waiter, grants []store.Grant, queue []int64) bool {
	head := f.waiting[0]
	for b := range queue {
		if w.Ops[b].Shadow && !grants[b].OK && w.cost(b) >= head.cost(b) {
			continue
		}
		if w.cost(b) > queue[b] {
			return false
		}
	}
	return true
}

// deny hands out a denial: to the head, and to everyone who asks no less of every
// bucket. The rest ask once more, the smallest first.
func (f *flight) deny(grants []store.Grant) (done []*Waiter) {
	head := f.waiting[0]
	kept := f.waiting[:0]
	for i, w := range f.waiting {
		if i > 0 && !w.gone && !w.asksAtLeast(head) {
			kept = append(kept, w)
			continue
		}
		w.answer(grants)
		for j := range w.Grants {
			if g := &w.Grants[j]; !g.OK && !g.Never && g.Limit != nil {
				g.RetryMS += dearer(g.Limit, w.cost(j), head.cost(j))
				g.Never = w.cost(j) > g.Limit.Full() && !(waits(&w.Ops[j], g) && w.cost(j) <= w.Ops[j].Limit.Full())
			}
		}
		done = append(done, w)
	}
	done = withoutBackground(done)
	smallest := 0
	for i, w := range kept {
		if !w.asksAtLeast(kept[smallest]) {
			smallest = i
		}
	}
	if smallest > 0 {
		w := kept[smallest]
		copy(kept[1:smallest+1], kept[:smallest])
		kept[0] = w
	}
	f.waiting = kept
	return done
}

// asksAtLeast reports whether w costs no less than o in all buckets.
func (w *Waiter) asksAtLeast(o *Waiter) bool {
	for i := range w.Ops {
		if w.cost(i) < o.cost(i) {
			return false
		}
	}
	return true
}

// answer gives a waiter its copy of the grants: what the store said to the head.
func (w *Waiter) answer(grants []store.Grant) {
	w.Grants = append(w.Grants[:0], grants...)
	for i := range w.Grants {
		w.Grants[i].Queue, w.Grants[i].Lease = 0, 0
	}
}
