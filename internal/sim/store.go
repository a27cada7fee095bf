package sim

import (
	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/store"
)

// accounts is the store: what the script keeps, decided as the script does, all
// ops of a call in one step.
type accounts struct {
	// states are all buckets, by number; a bucket nobody touched has no limit.
	states []algorithm.State
	// clock is the store's time less true time, in ms: the steps of it.
	clock int64
	// spoil plants a fault after each op, in tests of who must find it.
	spoil func(*algorithm.State)
}

// take decides ops, of the buckets of those numbers, and appends a grant each.
func (a *accounts) take(trueMS int64, ops []store.Op, numbers []int32, dst []store.Grant) []store.Grant {
	now := trueMS + a.clock
	start, denied := len(dst), false
	for i := range ops {
		op := &ops[i]
		dst = append(dst, store.Grant{NowMS: now})
		g := &dst[start+i]
		a.ask(now, op, &a.states[numbers[i]], g)
		denied = denied || op.How == store.Take && !op.Shadow && !g.OK
	}
	for i := range ops {
		op, s, g := &ops[i], &a.states[numbers[i]], &dst[start+i]
		if op.How == store.Take && g.OK && op.Cost > 0 && !denied {
			spend(now, op, s, g)
		}
		g.Remaining, g.ResetMS, g.Out, g.Limit = s.Remaining(now), s.ResetMS(now), s.Out(), s.Limit
		if a.spoil != nil {
			a.spoil(s)
		}
	}
	return dst
}

// ask brings a bucket to now, books reports, and asks for the cost or does what
// else the op says. All of this may stay when the call is then denied: reports
// count in any case, and the rest follows from the stored state and the clock.
func (a *accounts) ask(now int64, op *store.Op, s *algorithm.State, g *store.Grant) {
	switch {
	case s.Limit == nil && op.NotFresh:
		*s = algorithm.Holding(op.Limit, now, op.Cost)
	case s.Limit == nil:
		*s = algorithm.Fresh(op.Limit, now)
	default:
		s.Advance(op.Limit, now)
		for _, r := range op.Reports {
			s.Report(r.Generation, r.Spent, r.Back)
		}
	}
	g.OK = true
	switch op.How {
	case store.Take, store.Peek:
		answer := s.Ask(now, op.Cost)
		g.OK, g.Never, g.RetryMS = answer.OK, answer.Never, answer.RetryMS
	case store.Add:
		g.Receipt.ID, g.Receipt.Cost = s.Add(now, op.Cost)
	case store.Back:
		s.Back(op.Cost)
	case store.Undo:
		s.Undo(op.Receipt.ID, op.Receipt.Cost)
	case store.Reset:
		*s = algorithm.Fresh(op.Limit, now)
	case store.Stamp:
	case store.Reserve, store.Commit, store.Cancel: // no simulated check reserves
	}
}

func spend(now int64, op *store.Op, s *algorithm.State, g *store.Grant) {
	g.Receipt = store.Receipt{ID: s.Spend(now, op.Cost), Cost: op.Cost}
	g.Queue = s.Queue(now, op.Queue, g.Receipt.ID)
	g.Receipt.Cost += g.Queue
	l := s.Lease(now, algorithm.LeaseAsk{Want: op.Want, Pods: op.Pods, MaxCost: op.MaxCost})
	g.Lease, g.Generation, g.LeaseMS = l.Tokens, l.Generation, l.MS
}

// out returns the tokens of a bucket that are out on leases now. It looks at a
// copy: looking must not re-base the bucket on a clock that stepped back.
func (a *accounts) out(trueMS int64, number int32) int64 {
	s := a.states[number]
	if s.Limit == nil {
		return 0
	}
	s.Advance(s.Limit, trueMS+a.clock)
	return s.Out()
}
