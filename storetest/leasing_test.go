package storetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
	"github.com/tallygate/tallygate/storetest"
)

// leasing is the smallest store with leases: a map of internal/algorithm's
// states under one lock. It stands in for the Redis script, which keeps the same
// accounts, where no server is at hand.
type leasing struct {
	now    func() time.Time
	mu     sync.Mutex
	states map[store.Bucket]algorithm.State
}

// ends are the two ways in which a bucket may leave a call.
type ends struct {
	kept, spent   algorithm.State
	known, change bool // known before; kept must be stored
	answer        algorithm.Answer
	held          algorithm.Held
}

func (s *leasing) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(ops); err != nil {
		return nil, &store.StoreError{Kind: store.Refused, Err: err}
	}
	now := s.now().UnixMilli()
	all, denied := make([]ends, len(ops)), false
	for i := range ops {
		s.decide(&all[i], &ops[i], now)
		if ops[i].How == store.Reserve && all[i].kept.Limit.Algorithm == limit.SlidingLog {
			return nil, &store.StoreError{Kind: store.Refused, Err: errors.New("a log")}
		}
		denied = denied || (ops[i].How == store.Take || ops[i].How == store.Reserve) && !ops[i].Shadow && !all[i].answer.OK
	}
	grants := make([]store.Grant, len(ops))
	for i := range ops {
		grants[i] = s.end(&all[i], &ops[i], now, denied)
	}
	return grants, nil
}

func (s *leasing) check(ops []store.Op) error {
	seen := map[store.Bucket]bool{}
	for _, op := range ops {
		amounts := min(op.Cost, op.Queue, op.Want, op.Pods, op.MaxCost, op.Receipt.Cost)
		for _, r := range op.Reports {
			amounts = min(amounts, r.Spent, r.Back)
		}
		if seen[op.Bucket] || amounts < 0 || op.Cost > 1_000_000_000 || op.How > store.Cancel ||
			len(op.Reports) > store.MaxReports || len(ops) > store.MaxOps {
			return errors.New("out of bounds")
		}
		seen[op.Bucket] = true
		if err := algorithm.Check(op.Limit); err != nil {
			return err
		}
		if op.How >= store.Reserve {
			// The bounds of these are the store's package to check.
			if err := store.CheckOps([]store.Op{op}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *leasing) decide(e *ends, op *store.Op, now int64) {
	looks := op.How == store.Peek || op.How == store.Take && op.Cost == 0
	e.kept, e.known = s.states[op.Bucket]
	switch {
	case e.known && op.How != store.Reset:
		advance := e.kept.Advance
		if op.NextWindow {
			advance = e.kept.AdvanceNextWindow
		}
		e.change = advance(op.Limit, now) && !looks
		for _, r := range op.Reports {
			if op.How != store.Peek && e.kept.Report(r.Generation, r.Spent, r.Back) {
				e.change = true
			}
		}
	case op.NotFresh:
		e.kept = algorithm.Holding(op.Limit, now, op.Cost)
	default:
		e.kept = algorithm.Fresh(op.Limit, now)
	}
	e.answer.OK = true
	switch op.How {
	case store.Take, store.Peek:
		e.answer = e.kept.Ask(now, op.Cost)
	case store.Add:
		e.kept.Add(now, op.Cost)
		e.change = true
	case store.Back:
		e.kept.Back(op.Cost)
		e.change = e.known
	case store.Reserve:
		e.answer, e.held = e.kept.AskReserve(now, op.Cost, op.Reservation)
	case store.Commit:
		e.held = e.kept.Commit(now, op.Cost, op.TTLMS, op.Reservation)
		e.change = e.change || e.held == algorithm.HeldNow || e.held == algorithm.HeldUnknown && op.Cost > 0
	case store.Cancel:
		e.held = e.kept.Cancel(now, op.TTLMS, op.Reservation)
		e.change = e.change || e.held == algorithm.HeldNow
	case store.Undo:
		if op.Reservation != (store.ReservationID{}) {
			e.change = e.kept.Unreserve(op.Reservation) || e.change
			break
		}
		e.change = e.known && op.Receipt.Cost > 0 && e.kept.Undo(op.Receipt.ID, op.Receipt.Cost) || e.change
	case store.Reset, store.Stamp:
	}
	e.spent = e.kept
}

func (s *leasing) end(e *ends, op *store.Op, now int64, denied bool) store.Grant {
	g := store.Grant{OK: e.answer.OK, Never: e.answer.Never, RetryMS: e.answer.RetryMS, NowMS: now, Reserved: store.Reserved(e.held)}
	end := &e.kept
	if op.How == store.Reserve && e.held == algorithm.HeldNow && !denied {
		end, e.change = &e.spent, true
		g.Receipt = store.Receipt{ID: end.Reserve(now, op.Cost, op.TTLMS, op.Reservation), Cost: op.Cost}
	}
	if op.How == store.Take && e.answer.OK && op.Cost > 0 && !denied {
		end, e.change = &e.spent, true
		g.Receipt = store.Receipt{ID: end.Spend(now, op.Cost), Cost: op.Cost}
		g.Queue = end.Queue(now, op.Queue, g.Receipt.ID)
		g.Receipt.Cost += g.Queue
		l := end.Lease(now, algorithm.LeaseAsk{Want: op.Want, Pods: op.Pods, MaxCost: op.MaxCost})
		g.Lease, g.Generation, g.LeaseMS = l.Tokens, l.Generation, l.MS
	}
	switch {
	case op.How == store.Reset:
		delete(s.states, op.Bucket)
	case e.change:
		s.states[op.Bucket] = *end
	}
	g.Remaining, g.ResetMS, g.Out, g.Limit = end.Remaining(now), end.ResetMS(now), end.Out(), end.Limit
	return g
}

func openLeasing() storetest.Harness {
	c := newClock()
	s := &leasing{now: c.Now, states: map[store.Bucket]algorithm.State{}}
	return storetest.Harness{Store: s, Advance: c.Advance, Leases: true}
}

func TestLeasing_suite(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness { return openLeasing() })
}

// TestLeasing_agreesWithTheModel holds the arithmetic of leases to the model.
func TestLeasing_agreesWithTheModel(t *testing.T) {
	ops, seeds := 25_000, uint64(6)
	if testing.Short() {
		ops, seeds = 5_000, 2
	}
	for seed := range seeds {
		storetest.Agree(t, openLeasing(), ops, seed)
	}
}
