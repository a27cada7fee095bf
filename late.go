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
		if t := &s.terms[i]; t.Counting != pod.Local && t.Counting != pod.Report {
			t.Counting, s.ops[i].Want = pod.Exact, 0
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
// the check's ops. Where the store does not answer this time, the verdict stands and
// these hits are not counted.
func (l *Limiter) countDenied(ctx context.Context, s *scratch, v *Verdict) {
	n := 0
	for i := range s.grants {
		op := s.ops[i]
		if s.grants[i].OK || op.Cost == 0 || op.Limit.Algorithm != limit.FixedWindow {
			continue
		}
		for j := range s.entries {
			if s.entries[j].op == i && s.entries[j].asks() {
				v.Entries[j].Remaining = 0
			}
		}
		op.How = store.Add
		s.ops[n], s.terms[n] = op, s.terms[i]
		n++
	}
	if n == 0 {
		return
	}
	var err error
	s.grants, err = l.store.AppendTake(ctx, s.grants[:0], s.ops[:n], s.terms[:n])
	if err = pod.Short(s.ops[:n], s.grants, err); err != nil {
		l.log.StoreAway(s.clock.Now(), err)
	}
}
