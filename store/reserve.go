package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// The bounds of a reservation: one lives from a second to an hour, and a bucket has
// room for MaxReservations, marks of settled ones included.
const (
	MinReservationTTL = time.Second
	MaxReservationTTL = time.Hour
	MaxReservations   = algorithm.MaxReservations
)

// ReservationID names a reservation in one bucket: a digest of whatever a caller
// calls it by, all zeros for none.
type ReservationID [16]byte

// Reserved says what became of an op on a reservation.
type Reserved uint8

// What becomes of a Reserve, a Commit or a Cancel.
const (
	// ReservedNone: no such op, or a Reserve whose cost was not there.
	ReservedNone = Reserved(algorithm.HeldNone)
	// ReservedNow: the cost was set aside, or an open reservation was settled.
	ReservedNow = Reserved(algorithm.HeldNow)
	// ReservedBefore: a Reserve of what is reserved already; nothing was spent.
	ReservedBefore = Reserved(algorithm.HeldOpen)
	// ReservedSettled: it was committed or canceled before, and nothing was changed.
	// A Reserve is denied by it, as is one of a name that holds another cost.
	ReservedSettled = Reserved(algorithm.HeldDone)
	// ReservedTooMany: a Reserve found MaxReservations open ones. Grant.RetryMS is
	// until the first of them ends, or longer.
	ReservedTooMany = Reserved(algorithm.HeldFull)
	// ReservedUnknown: it ended, or never was. A Commit has added its whole cost, a
	// Cancel has done nothing.
	ReservedUnknown = Reserved(algorithm.HeldUnknown)
)

// errLogReserves says why a log has no reservations.
var errLogReserves = errors.New("sliding_log keeps no reservations: its entries are admissions at their times, of which none can be given back in part later; use token_bucket, sliding_window or fixed_window")

// aboutReservation reports whether the op is on a reservation.
func aboutReservation(op *Op) bool {
	return op.How == Reserve || op.How == Commit || op.How == Cancel
}

// checkReservation refuses an op on a reservation that no store may run.
func checkReservation(op *Op) error {
	switch {
	case op.Reservation == ReservationID{}:
		return errors.New("a reservation needs an id")
	case op.TTLMS < MinReservationTTL.Milliseconds() || op.TTLMS > MaxReservationTTL.Milliseconds():
		return fmt.Errorf("ttl_ms %d is out of bounds: %d to %d", op.TTLMS, MinReservationTTL.Milliseconds(), MaxReservationTTL.Milliseconds())
	case op.Queue != 0 || op.Want != 0:
		return errors.New("a reservation asks for no queue and no lease")
	case op.How == Reserve && op.Cost < 1:
		return errors.New("a reservation of cost 0 reserves nothing")
	case op.How == Reserve && op.Limit != nil && op.Limit.Algorithm == limit.SlidingLog:
		return errLogReserves
	}
	return nil
}

// decideReservation does what an op asks of a reservation: a Reserve to the spent end
// of its cell only, the others to both.
func (c *memoryCall) decideReservation(step *memoryStep, op *Op) {
	cell, id := step.cell, op.Reservation
	if op.How == Reserve {
		var held algorithm.Held
		if step.answer, held = cell.spent.AskReserve(c.now, op.Cost, id); held == algorithm.HeldNow {
			step.receipt = Receipt{ID: cell.spent.Reserve(c.now, op.Cost, op.TTLMS, id), Cost: op.Cost}
			cell.spentChanged = true
		}
		step.reserved = Reserved(held)
		return
	}
	settle := func(s *algorithm.State) algorithm.Held { return s.Cancel(c.now, op.TTLMS, id) }
	if op.How == Commit {
		settle = func(s *algorithm.State) algorithm.Held { return s.Commit(c.now, op.Cost, op.TTLMS, id) }
	}
	settle(&cell.kept)
	step.reserved = Reserved(settle(&cell.spent))
	late := step.reserved == ReservedUnknown && op.How == Commit && op.Cost > 0
	cell.keptChanged = cell.keptChanged || step.reserved == ReservedNow || late
	step.answer = algorithm.Answer{OK: true}
}

// unreserve undoes a Reserve as if it had not been made.
func (*memoryCall) unreserve(step *memoryStep, op *Op) (done bool) {
	cell := step.cell
	done = cell.bucket != nil && cell.kept.Unreserve(op.Reservation)
	if done {
		cell.spent.Unreserve(op.Reservation)
		cell.keptChanged = true
	}
	return done
}
