package pod

import (
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// LeaseFigures are what became of the leased tokens of one rule:
// Granted = Spent + Returned + Expired + Out.
type LeaseFigures struct {
	// Granted is what the store gave, Spent and Returned what it was told of, and
	// Expired what ended unspent before it could be told.
	Granted, Spent, Returned, Expired int64
	// Out is what the store was not told of yet; Idle the unspent part of it.
	Out, Idle int64
}

// maxFigures bounds the rules that have figures of their own; later ones share
// those of the name "".
const maxFigures = 1000

// figures counts what no local answer needs: everything here happens once a call of
// the store, or less.
type figures struct {
	topUps atomic.Int64

	mu    sync.Mutex // guards what follows; taken after all other locks
	rules map[string]*LeaseFigures
	over  map[string]*OverFigures
}

// TopUps returns how many calls fetched leases in the background.
func (p *Pod) TopUps() int64 { return p.figures.topUps.Load() }

// Leases returns the figures of every rule that ever had a lease; the key "" is
// for those beyond a thousand. It looks at each bucket, a few at a time.
func (p *Pod) Leases() map[string]LeaseFigures {
	type held struct{ out, idle int64 }
	now := map[string]*held{}
	p.buckets.Each(func(n keyed.Name, b *bucket) {
		if b.leases.idle() {
			return
		}
		h := now[n.Rule]
		if h == nil {
			h = new(held)
			now[n.Rule] = h
		}
		l := &b.leases
		for i := range l.left {
			h.idle += int64(l.left[i]) + int64(l.back[i])
			h.out += int64(l.left[i]) + int64(l.back[i]) + int64(l.spent[i])
		}
	})
	f := &p.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make(map[string]LeaseFigures, len(f.rules))
	for rule, l := range f.rules {
		all[rule] = *l
	}
	for rule, h := range now {
		if f.rules[rule] == nil {
			rule = ""
		}
		l := all[rule]
		l.Out, l.Idle = l.Out+h.out, l.Idle+h.idle
		all[rule] = l
	}
	return all
}

// add adds to the figures of a rule.
func (f *figures) add(rule string, d LeaseFigures) {
	if d == (LeaseFigures{}) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.rules[rule]
	if l == nil {
		if len(f.rules) >= maxFigures {
			rule = ""
		}
		if l = f.rules[rule]; l == nil {
			l = new(LeaseFigures)
			f.rules[rule] = l
		}
	}
	l.Granted += d.Granted
	l.Spent += d.Spent
	l.Returned += d.Returned
	l.Expired += d.Expired
}

// report takes out of a bucket's leases what the store is to be told now.
func (p *Pod) report(now int64, rule string, b *bucket) []store.Report {
	var d LeaseFigures
	l := &b.leases
	for i, ends := range l.endsNS {
		d.Spent += int64(l.spent[i])
		if now < ends {
			d.Returned += int64(l.back[i])
		} else {
			d.Expired += int64(l.back[i]) // the store has forgotten that generation, or is about to
		}
	}
	p.figures.add(rule, d)
	b.pre.credit(b.limit, d.Returned+d.Expired)
	return b.leases.report(nil)
}

// granted counts the lease that a grant brings to a bucket, before the bucket
// learns of it: it forgets what ends first for a new generation, or the new one
// where that has ended.
func (p *Pod) granted(rule string, b *bucket, g *store.Grant, endsNS int64) {
	d, l := LeaseFigures{Granted: g.Lease}, &b.leases
	switch at := l.place(g.Generation, endsNS); {
	case at < 0:
		d.Expired = g.Lease
	case l.generation[at] != g.Generation:
		d.Spent, d.Expired = int64(l.spent[at]), int64(l.left[at])+int64(l.back[at])
	}
	p.figures.add(rule, d)
}

// settled counts the spend that a background call paid for in place of a lease:
// the lease has its tokens again, so they count as granted once more. A lease that
// is gone meanwhile has not.
func (p *Pod) settled(rule string, t trigger, lives, paid bool) {
	switch {
	case !lives:
		p.figures.add(rule, LeaseFigures{Spent: t.tokens})
	case paid:
		p.figures.add(rule, LeaseFigures{Spent: t.tokens, Granted: t.tokens})
	}
}

// settle forgets what was spent of leases that have nothing left and are about to
// end: the store takes what it is not told of for spent. Unsettled, it would keep
// the bucket in the table for good.
func (p *Pod) settle(now int64, rule string, b *bucket, all bool) {
	var d LeaseFigures
	l := &b.leases
	for i, tokens := range l.left {
		if tokens == 0 && (all || now >= l.endsNS[i]-soon) {
			d.Spent += int64(l.spent[i])
			l.spent[i] = 0
		}
	}
	p.figures.add(rule, d)
}
