package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Model is the slow and obvious store: levels are rationals, leases are kept one
// sum a generation, a log is a time for every token, and a retry is found by
// trying when the cost would pass. It shares no arithmetic with the stores it
// judges. It forgets nothing, so it is for tests only.
type Model struct {
	now    func() time.Time
	leases bool

	mu      sync.Mutex
	buckets map[store.Bucket]*counter
	lastID  int64 // of tokens in logs
}

var _ store.Store = (*Model)(nil)

// NewModel returns an empty model that reads its time from now and grants leases
// if it is told to.
func NewModel(now func() time.Time, leases bool) *Model {
	return &Model{now: now, leases: leases, buckets: map[store.Bucket]*counter{}}
}

// Take implements [store.Store] at the time of the model's clock.
func (m *Model) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	return m.TakeAt(m.now().UnixMilli(), ops)
}

// TakeAt is Take at a given time, in ms of the UTC epoch.
func (m *Model) TakeAt(nowMS int64, ops []store.Op) ([]store.Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := checkOps(ops); err != nil {
		return nil, &store.StoreError{Kind: store.Refused, Err: err}
	}
	turns := make([]*turn, len(ops))
	denied := false
	for i := range ops {
		turns[i] = m.start(nowMS, &ops[i])
		if ops[i].How == store.Reserve && turns[i].c.l.Algorithm == limit.SlidingLog {
			return nil, &store.StoreError{Kind: store.Refused, Err: errLogReserves}
		}
		denied = denied || turns[i].denies()
	}
	grants := make([]store.Grant, len(ops))
	for i, t := range turns {
		if t.op.How == store.Take && t.ok && !denied && t.op.Cost > 0 {
			t.spend()
		}
		if t.met == store.ReservedNow && t.op.How == store.Reserve && !denied {
			t.keep()
		}
		switch {
		case t.op.How == store.Reset:
			delete(m.buckets, t.op.Bucket)
		case t.write:
			m.buckets[t.op.Bucket] = t.c
		}
		grants[i] = t.grant()
	}
	return grants, nil
}

// turn is one op of a call: a copy of its bucket, and what becomes of it.
type turn struct {
	m     *Model
	op    *store.Op
	now   int64
	c     *counter // a copy, brought to now
	known bool     // the bucket is stored
	write bool     // c is to be stored

	ok, never bool
	retry     int64
	queue     int64
	lease     lease
	receipt   store.Receipt
	met       store.Reserved
}

// lease is what a model granted.
type lease struct{ tokens, generation, ms int64 }

func (m *Model) start(now int64, op *store.Op) *turn {
	t := &turn{m: m, op: op, now: now}
	stored, known := m.buckets[op.Bucket]
	t.known = known && op.How != store.Reset
	switch {
	case t.known:
		t.c = stored.clone()
		changed := t.c.bring(op.Limit, now, op.NextWindow)
		t.write = changed && op.How != store.Peek && (op.How != store.Take || op.Cost > 0)
	case op.NotFresh && op.How != store.Reset:
		t.c = holding(op.Limit, now, min(op.Cost, op.Limit.Full()))
	default:
		t.c = holding(op.Limit, now, op.Limit.Full())
	}
	if t.known && m.leases && op.How != store.Peek {
		for _, r := range op.Reports {
			if t.c.report(r) {
				t.write = true
			}
		}
	}
	t.act()
	return t
}

// denies reports whether the op keeps all others from spending.
func (t *turn) denies() bool {
	return (t.op.How == store.Take || t.op.How == store.Reserve) && !t.op.Shadow && !t.ok
}

// act answers the op and does what does not depend on the others.
func (t *turn) act() {
	op, c := t.op, t.c
	switch op.How {
	case store.Take, store.Peek:
		t.ok = c.passes(t.now, op.Cost)
		t.never = !t.ok && c.never(t.now, op.Cost)
		if !t.ok && !t.never {
			t.retry = c.retry(t.now, op.Cost)
		}
		return
	case store.Add:
		c.add(t.now, op.Cost, t.m.nextID())
		t.write = t.write || op.Cost > 0
	case store.Back:
		c.back(op.Cost)
		t.write = t.write || t.known && op.Cost > 0
	case store.Reserve:
		t.reserve()
		return
	case store.Commit, store.Cancel:
		t.settle()
		return
	case store.Undo:
		if op.Reservation != (store.ReservationID{}) {
			t.unreserve()
			break
		}
		if t.known && op.Receipt.Cost > 0 && c.undo(op.Receipt) {
			t.write = true
		}
	case store.Stamp, store.Reset:
	}
	t.ok = true
}

// spend takes cost, queue and lease: nobody denies.
func (t *turn) spend() {
	id := t.c.spend(t.now, t.op.Cost, t.m.nextID())
	t.queue = min(t.op.Queue, t.c.left(t.now))
	t.c.spend(t.now, t.queue, id)
	t.receipt = store.Receipt{ID: id, Cost: t.op.Cost + t.queue}
	if t.m.leases && t.op.Want > 0 {
		t.lease = t.c.lend(t.now, t.op)
	}
	t.write = true
}

func (t *turn) grant() store.Grant {
	return store.Grant{
		OK: t.ok, Never: t.never, Queue: t.queue,
		Lease: t.lease.tokens, Generation: t.lease.generation, LeaseMS: t.lease.ms,
		Remaining: t.c.left(t.now), RetryMS: t.retry, ResetMS: t.c.reset(t.now),
		Out: t.c.outSum(), NowMS: t.now, Limit: t.c.l, Receipt: t.receipt, Reserved: t.met,
	}
}

func (m *Model) nextID() int64 {
	m.lastID++
	return m.lastID
}

// mayBeForgotten reports whether a store may have dropped the bucket at now: a
// full one is as good as one nobody has touched.
func (m *Model) mayBeForgotten(now int64, b store.Bucket) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, known := m.buckets[b]
	if !known {
		return false
	}
	c := stored.clone()
	c.bring(c.l, now, false)
	if len(c.held) > 0 {
		return false
	}
	switch c.l.Algorithm {
	case limit.TokenBucket:
		return c.level.Cmp(whole(c.l.Burst)) >= 0 && c.outSum() == 0
	case limit.SlidingLog:
		return len(c.tokens) == 0
	default:
		return c.prev == 0 && c.cur == 0
	}
}

// checkOps refuses what no store may run.
func checkOps(ops []store.Op) error {
	if len(ops) > store.MaxOps {
		return fmt.Errorf("%d ops", len(ops))
	}
	seen := map[store.Bucket]bool{}
	for i := range ops {
		op := &ops[i]
		if seen[op.Bucket] {
			return fmt.Errorf("bucket %+v named twice", op.Bucket)
		}
		seen[op.Bucket] = true
		if op.How > store.Cancel || op.Cost < 0 || op.Cost > limit.MaxCost || len(op.Reports) > store.MaxReports ||
			min(op.Queue, op.Want, op.Pods, op.MaxCost, op.Receipt.Cost) < 0 {
			return fmt.Errorf("op %d is out of bounds", i)
		}
		for _, r := range op.Reports {
			if min(r.Spent, r.Back) < 0 {
				return fmt.Errorf("op %d: a report is out of bounds", i)
			}
		}
		about := op.How >= store.Reserve
		if about && (op.Reservation == store.ReservationID{} || op.TTLMS < 1000 || op.TTLMS > 3_600_000 || op.Queue|op.Want != 0 || op.How == store.Reserve && op.Cost < 1) {
			return fmt.Errorf("op %d: a reservation out of bounds", i)
		}
		if err := checkLimit(op.Limit); err != nil {
			return err
		}
		if op.How == store.Reserve && op.Limit.Algorithm == limit.SlidingLog {
			return errLogReserves
		}
	}
	return nil
}

var (
	errNumbers     = errors.New("numbers out of bounds")
	errLogReserves = errors.New("a log keeps no reservations")
)

func checkLimit(l *limit.Limit) error {
	switch {
	case l == nil, l.Revision < 0:
		return errNumbers
	case l.Algorithm == limit.TokenBucket:
		if l.Rate < 1 || l.Rate > limit.MaxNumber || l.PeriodMS < 1 || l.PeriodMS > limit.MaxPeriodMS ||
			l.Burst < 1 || l.Burst > min(limit.MaxNumber, limit.MaxExact/l.PeriodMS) || (l.Burst*l.PeriodMS-1)/l.Rate >= limit.MaxWindowMS {
			return errNumbers
		}
		return nil
	case l.Capacity < 1, l.Capacity > limit.MaxNumber, l.Calendar == nil && (l.WindowMS < 1 || l.WindowMS > limit.MaxWindowMS),
		l.Algorithm == limit.SlidingWindow && l.Capacity > limit.MaxExact/l.WindowMS, (l.Align == limit.AlignCalendar) != (l.Calendar != nil):
		return errNumbers
	case l.Algorithm == limit.SlidingWindow && l.WindowMS > limit.MaxSlidingWindowMS,
		l.Algorithm == limit.SlidingLog && l.Capacity > limit.MaxLogLimit:
		return errNumbers
	case l.Algorithm != limit.SlidingWindow && l.Algorithm != limit.SlidingLog && l.Algorithm != limit.FixedWindow:
		return errNumbers
	}
	return nil
}

// whole returns n as a rational.
func whole(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

// floorRat returns ⌊r⌋ for r ≥ 0.
func floorRat(r *big.Rat) int64 { return new(big.Int).Quo(r.Num(), r.Denom()).Int64() }

// ceilRat returns ⌈r⌉ for r ≥ 0.
func ceilRat(r *big.Rat) int64 {
	n := floorRat(r)
	if whole(n).Cmp(r) < 0 {
		n++
	}
	return n
}
