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
func apart(ops []store.Op, terms []pod.Terms) {
	for i := range ops {
		ops[i].Shadow = true
		if t := &terms[i]; t.Counting != pod.Local && t.Counting != pod.Report {
			t.Counting, ops[i].Want = pod.Exact, 0
		}
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
		if e := &s.entries[i]; e.asks() && !s.grants[e.op].OK && s.ops[e.op].Limit.Algorithm == limit.FixedWindow {
			v.Entries[i].Remaining = 0
		}
	}
	l.addDenied(ctx, s, s.ops, s.terms, s.grants)
	l.addDenied(ctx, s, s.others, s.otherTerms, s.otherGrants)
}

// addDenied adds what was denied, in place of what was asked. Where the store does not
// answer this time, the verdict stands and these hits are not counted.
func (l *Limiter) addDenied(ctx context.Context, s *scratch, ops []store.Op, terms []pod.Terms, grants []store.Grant) {
	n := 0
	for i := range grants {
		if !grants[i].OK && ops[i].Cost > 0 && ops[i].Limit.Algorithm == limit.FixedWindow {
			ops[n], terms[n] = ops[i], terms[i]
			ops[n].How = store.Add
			n++
		}
	}
	if n == 0 {
		return
	}
	added, err := l.store.AppendTake(ctx, grants[:0], ops[:n], terms[:n])
	if err = pod.Short(ops[:n], added, err); err != nil {
		l.log.StoreAway(s.clock.Now(), err)
	}
}
