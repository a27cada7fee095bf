package tallygate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// apart has the store decide each op by itself, as it does those of shadow rules. What
// a pod has paid for or remembers would answer hits that nobody counts.
func (s *scratch) apart() {
	for i := range s.ops {
		s.ops[i].Shadow = true
		direct(&s.ops[i], &s.terms[i])
	}
}

// direct has the store asked for an op, unless this pod alone counts it or it is added
// whatever it would say.
func direct(op *store.Op, t *pod.Terms) {
	if t.Counting != pod.Local && t.Counting != pod.Report {
		t.Counting, op.Want = pod.Exact, 0
	}
}

// together undoes what apart did to the ops: without the store rules that fail closed
// have their say, and what this pod has is spent for all or none.
func (s *scratch) together() {
	for i := range s.entries {
		if e := &s.entries[i]; e.asks() {
			s.ops[e.op].Shadow = e.rule.Shadow()
		}
	}
}

// countMost counts an entry that is denied since it asks more than any op may: as much
// as one may.
func (s *scratch) countMost(i int, numbers *limit.Limit, maxCost int64, now time.Time) {
	e := &s.entries[i]
	e.op = len(s.ops)
	s.ops = append(s.ops, e.ask(store.Add, numbers, maxCost, now))
	s.ops[e.op].Cost = limit.MaxCost
	s.terms = append(s.terms, termsOf(e.inForce))
}

// countDenied adds what fixed windows denied to their counts, once nothing else needs
// the check's ops; of a rule on trial, to those of both versions.
func (l *Limiter) countDenied(ctx context.Context, s *scratch, v *Verdict) {
	for i := range s.entries {
		if e := &s.entries[i]; e.asks() && late(&s.ops[e.op], &s.grants[e.op]) {
			v.Entries[i].Remaining = 0
		}
	}
	s.grants = l.addDenied(ctx, s, s.ops, s.terms, s.grants)
	s.otherGrants = l.addDenied(ctx, s, s.others, s.otherTerms, s.otherGrants)
}

// late reports whether the hits of an op are to be added although they were denied.
func late(op *store.Op, g *store.Grant) bool {
	return !g.OK && op.Cost > 0 && op.Limit.Algorithm == limit.FixedWindow
}

// addDenied adds what fixed windows denied. Where the store does not answer this time,
// the verdict stands and these hits are not counted.
func (l *Limiter) addDenied(ctx context.Context, s *scratch, ops []store.Op, terms []pod.Terms, grants []store.Grant) []store.Grant {
	n := 0
	for i := range grants {
		if op := ops[i]; late(&op, &grants[i]) {
			op.How = store.Add
			ops[n], terms[n] = op, terms[i]
			n++
		}
	}
	if n == 0 {
		return grants
	}
	grants, err := l.store.AppendTake(ctx, grants[:0], ops[:n], terms[:n])
	if err = pod.Short(ops[:n], grants, err); err != nil {
		l.log.StoreAway(s.clock.Now(), err)
	}
	return grants
}
