package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// historyBucket is one bucket of a history: its numbers so far, and what it has
// given out.
type historyBucket struct {
	name     store.Bucket
	calendar bool // counts by a calendar, for good: no other numbers place it
	// later says that most of its ops let changed numbers wait for the next window.
	later    bool
	limits   []*limit.Limit
	receipts []receipts
	leases   []store.Report // leases given out, as all spent
	undoing  store.Receipt  // what the model is to undo
	reserved int            // names used so far
	// forgettable says that the store may have dropped it, or may any time.
	forgettable bool
}

// receipts are the two sides' receipts of one take.
type receipts struct{ store, model store.Receipt }

func (a *agreement) newBucket(key, rule int) *historyBucket {
	b := &historyBucket{
		name:     store.Bucket{Domain: "storetest", Rule: fmt.Sprint("rule-", rule), Key: fmt.Sprint(a.key, "-", key)},
		calendar: rule == rulesInHistory-1,
		later:    a.rng.IntN(2) == 0,
	}
	b.limits = []*limit.Limit{a.drawLimit(b, limit.Algorithm(1+rule%4), 2)}
	return b
}

func (b *historyBucket) newest() *limit.Limit { return b.limits[len(b.limits)-1] }

// learn keeps what an answer gave out.
func (b *historyBucket) learn(op *store.Op, got, want *store.Grant) {
	if op.How == store.Take && got.Receipt.Cost > 0 { // a reservation is undone by its name
		b.receipts = append(b.receipts, receipts{got.Receipt, want.Receipt})
	}
	if got.Lease > 0 {
		b.leases = append(b.leases, store.Report{Generation: got.Generation, Spent: got.Lease})
	}
	if op.How == store.Reset {
		b.receipts = nil // a store may give a log's numbers out again
	}
}

// draw makes an op on a bucket: most are takes.
func (a *agreement) draw(b *historyBucket) store.Op {
	op := store.Op{Bucket: b.name, Limit: a.pickLimit(b), Pods: 1 + a.rng.Int64N(3), MaxCost: 1 + a.rng.Int64N(4)}
	op.NextWindow = b.later != (a.rng.IntN(20) == 0)
	op.Cost = a.drawCost(op.Limit)
	if a.rng.IntN(5) == 0 {
		a.drawReservation(b, &op)
		return op
	}
	switch k := a.rng.IntN(100); {
	case k < 70:
		a.drawTake(b, &op)
		return op
	case k < 76:
		op.How, op.Cost = store.Add, max(1, op.Cost)
	case k < 82:
		op.How, op.Cost = store.Back, max(1, op.Cost)
	case k < 90:
		op.How = store.Peek
		return op
	case k < 96 && len(b.receipts) > 0:
		op.How, op.Cost = store.Undo, 0
		i := a.rng.IntN(len(b.receipts))
		op.Receipt, b.undoing = b.receipts[i].store, b.receipts[i].model
		b.receipts = append(b.receipts[:i], b.receipts[i+1:]...)
	case k < 98:
		op.How, op.Cost = store.Stamp, 0
	default:
		op.How, op.Cost = store.Reset, 0
	}
	a.drawReports(b, &op)
	return op
}

// drawReservation makes an op on a reservation: one of the last few names, or a new
// one. Now and then the bucket's reservations are many.
func (a *agreement) drawReservation(b *historyBucket, op *store.Op) {
	const last = 6
	few := last
	if a.rng.IntN(4) == 0 {
		few = 2 * store.MaxReservations
	}
	op.TTLMS = []int64{1000, 1000 + a.rng.Int64N(5000), 60_000, 3_600_000}[a.rng.IntN(4)]
	op.Cost = max(1, op.Cost)
	name := b.reserved - a.rng.IntN(few)
	switch k := a.rng.IntN(10); {
	case k < 5:
		op.How = store.Reserve
		op.Shadow = a.rng.IntN(8) == 0
		if a.rng.IntN(3) > 0 {
			b.reserved++
			name = b.reserved
			op.Cost = min(op.Cost, 1+a.rng.Int64N(3)) // or only few are open
		}
	case k < 8:
		op.How, op.Cost = store.Commit, op.Cost+a.rng.Int64N(4)-1
	case k < 9:
		op.How = store.Cancel
	default:
		op.How, op.Receipt = store.Undo, store.Receipt{Cost: 1}
	}
	name = max(1, name)
	op.Reservation = store.ReservationID{1, byte(name), byte(name >> 8), byte(name >> 16)}
	if op.How != store.Reserve || a.rng.IntN(2) == 0 {
		a.drawReports(b, op)
	}
}

func (a *agreement) drawTake(b *historyBucket, op *store.Op) {
	op.Shadow = a.rng.IntN(6) == 0
	op.NotFresh = a.rng.IntN(10) == 0
	if a.rng.IntN(8) == 0 && !b.everALog() {
		op.Queue = a.rng.Int64N(10)
	}
	if a.rng.IntN(3) == 0 {
		op.Want = a.rng.Int64N(60)
	}
	a.drawReports(b, op)
}

// everALog reports whether the bucket may be a log now.
func (b *historyBucket) everALog() bool {
	for _, l := range b.limits {
		if l.Algorithm == limit.SlidingLog {
			return true
		}
	}
	return false
}

// drawReports tells what became of some leases: the truth, or more than that.
func (a *agreement) drawReports(b *historyBucket, op *store.Op) {
	for len(b.leases) > 0 && len(op.Reports) < store.MaxReports && a.rng.IntN(3) == 0 {
		r := b.leases[0]
		b.leases = b.leases[1:]
		if a.rng.IntN(4) == 0 {
			continue // never told
		}
		r.Back = a.rng.Int64N(r.Spent + 1)
		r.Spent -= r.Back
		if a.rng.IntN(20) == 0 {
			r.Spent, r.Back = r.Spent+a.rng.Int64N(30), r.Back+a.rng.Int64N(30)
		}
		op.Reports = append(op.Reports, r)
	}
}

func (a *agreement) drawCost(l *limit.Limit) int64 {
	switch a.rng.IntN(10) {
	case 0:
		return 0
	case 1:
		return 1 + a.rng.Int64N(l.Full()+1)
	default:
		return 1 + a.rng.Int64N(4)
	}
}

// pickLimit picks the numbers of an op: mostly the newest known; sometimes newer
// ones, older ones, or others of the same revision, as two pods may have them.
func (a *agreement) pickLimit(b *historyBucket) *limit.Limit {
	l := b.newest()
	switch k := a.rng.IntN(100); {
	case k < 3:
		l = a.changed(b, l)
		b.limits = append(b.limits, l)
	case k < 4: // the same numbers anew
		l = at(l.Revision+1+a.rng.Int64N(2), l)
		b.limits = append(b.limits, l)
	case k < 9 && !b.calendar:
		return b.limits[a.rng.IntN(len(b.limits))]
	case k < 11 && !b.calendar:
		return at(l.Revision, a.changed(b, l))
	}
	return l
}

// changed draws newer numbers: other amounts, another length, or another
// algorithm altogether.
func (a *agreement) changed(b *historyBucket, l *limit.Limit) *limit.Limit {
	revision := l.Revision + 1 + a.rng.Int64N(2)
	fresh := a.drawLimit(b, l.Algorithm, revision)
	switch a.rng.IntN(4) {
	case 0:
		if !b.calendar {
			return a.drawLimit(b, limit.Algorithm(1+a.rng.IntN(4)), revision)
		}
	case 1: // as before, but for the amount
		fresh.Rate, fresh.PeriodMS, fresh.WindowMS, fresh.Align = l.Rate, l.PeriodMS, l.WindowMS, l.Align
	}
	if l.Algorithm == limit.TokenBucket {
		fresh.Burst = min(fresh.Burst, limit.MaxWindowMS/fresh.PeriodMS*fresh.Rate) // full in 366 days
	}
	return fresh
}

// drawLimit draws numbers of one algorithm, small enough to meet their edges.
func (a *agreement) drawLimit(b *historyBucket, algorithm limit.Algorithm, revision int64) *limit.Limit {
	pick := func(from ...int64) int64 { return from[a.rng.IntN(len(from))] }
	l := &limit.Limit{Algorithm: algorithm, Revision: revision}
	switch {
	case b.calendar:
		l.Algorithm, l.Align, l.Calendar = limit.FixedWindow, limit.AlignCalendar, limit.NewCalendar(limit.Day, time.UTC)
		l.Capacity = 5 + a.rng.Int64N(100)
	case algorithm == limit.TokenBucket:
		l.Rate = 1 + a.rng.Int64N(pick(40, 40, 2000))
		l.PeriodMS = pick(1000, 1000, 1000, 7000, 60_000, 3_600_000, limit.DayMS, 30*limit.DayMS)
		l.Burst = min(1+drawSize(a.rng), limit.MaxWindowMS/l.PeriodMS*l.Rate) // full in 366 days
	default:
		l.Capacity = 1 + drawSize(a.rng)*pick(1, 1, 20)
		l.WindowMS = pick(1000, 5000, 10_000, 60_000, 61_001)
		if algorithm == limit.SlidingLog {
			l.Capacity = 1 + l.Capacity%20
		}
		if algorithm == limit.FixedWindow && a.rng.IntN(3) == 0 {
			l.Align = limit.AlignFirstRequest
		}
	}
	return l
}

// drawSize draws mostly small amounts.
func drawSize(rng *rand.Rand) int64 {
	if rng.IntN(3) == 0 {
		return rng.Int64N(200)
	}
	return rng.Int64N(15)
}
