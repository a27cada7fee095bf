package tallygate

import (
	"context"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// backs are the ops of a check that give back, and what the store said of them.
type backs struct {
	ops   []store.Op
	terms []pod.Terms
	given []store.Grant
}

// giveBackLater adds entry i to the op that gives back to its bucket.
func (s *scratch) giveBackLater(i int) {
	e := &s.entries[i]
	for j := range i {
		if o := &s.entries[j]; o.back > 0 && o.op != none && s.sameBucket(j, i) {
			e.op = o.op
			op := &s.backs.ops[e.op]
			op.Cost = min(op.Cost+e.back, limit.MaxCost)
			return
		}
	}
	numbers, maxCost := e.inForce.Effective(e.key, s.clock.Of(e.inForce))
	e.op = len(s.backs.ops)
	s.backs.terms = append(s.backs.terms, termsOf(e.inForce))
	s.backs.ops = append(s.backs.ops, store.Op{
		How:        store.Back,
		Bucket:     bucketOf(e.inForce, e.key),
		Limit:      numbers,
		NextWindow: e.inForce.NextWindow(),
		Shadow:     e.rule.Shadow(),
		Pods:       1,
		MaxCost:    maxCost,
		Cost:       e.back,
	})
}

// giveBack gives back what the check's sets say. It is a call of its own, as it is
// done whatever the rest is answered; a store that does not answer is no denial: the
// cost stays spent.
func (l *Limiter) giveBack(ctx context.Context, s *scratch) {
	var err error
	s.backs.given, err = l.store.GiveBack(ctx, s.backs.given[:0], s.backs.ops, s.backs.terms)
	if err = pod.Short(s.backs.ops, s.backs.given, err); err != nil {
		s.backs.given = s.backs.given[:0]
		l.log.StoreAway(s.clock.Now(), err)
	}
}

// gaveBack says what is left in the bucket that entry e gave back to.
func (s *scratch) gaveBack(e *entry, a *EntryVerdict, v *Verdict) {
	if len(s.backs.given) == 0 {
		a.Source = SourceNone
		return
	}
	g := &s.backs.given[e.op]
	a.read(g, s.backs.ops[e.op].Limit)
	a.Allow, a.Reason, a.RetryMS = true, ReasonNone, 0 // a bucket that is not there was full
	v.NowMS = max(v.NowMS, g.NowMS)
}

// forget empties what a check left, and keeps the memory.
func (b *backs) forget() {
	if len(b.ops) == 0 {
		return
	}
	clear(b.ops)
	clear(b.given)
	b.ops, b.terms, b.given = b.ops[:0], b.terms[:0], b.given[:0]
}
