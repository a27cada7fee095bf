package store

import (
	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/internal/keyed"
)

// decide answers one op and does what it asks to the two ends of its cell:
// takes to the spent one only, all else to both.
func (c *memoryCall) decide(step *memoryStep, op *Op) {
	cell, done := step.cell, true
	switch op.How {
	case Take:
		step.answer = cell.spent.Ask(c.now, op.Cost)
		if step.answer.OK && op.Cost > 0 {
			step.receipt = Receipt{ID: cell.spent.Spend(c.now, op.Cost), Cost: op.Cost}
			cell.spentChanged = true
		}
		return
	case Peek:
		step.answer = cell.spent.Ask(c.now, op.Cost)
		return
	case Add:
		cell.kept.Add(c.now, op.Cost)
		step.receipt.ID, step.receipt.Cost = cell.spent.Add(c.now, op.Cost)
		cell.keptChanged = cell.keptChanged || op.Cost > 0
	case Back:
		cell.kept.Back(op.Cost)
		cell.spent.Back(op.Cost)
		cell.keptChanged = cell.keptChanged || op.Cost > 0
		done = cell.bucket != nil
	case Reserve, Commit, Cancel:
		c.decideReservation(step, op)
		return
	case Undo:
		if op.Reservation != (ReservationID{}) {
			done = c.unreserve(step, op)
			break
		}
		// What is not stored is full: there is nothing to undo.
		done = cell.bucket != nil && op.Receipt.Cost > 0 && cell.kept.Undo(op.Receipt.ID, op.Receipt.Cost)
		if done {
			cell.spent.Undo(op.Receipt.ID, op.Receipt.Cost)
			cell.keptChanged = true
		}
	case Reset:
		cell.kept = algorithm.Fresh(op.Limit, c.now)
		cell.spent = cell.kept
		cell.reset = true
	case Stamp: // find has converted
		done = cell.bucket != nil
	}
	step.answer = algorithm.Answer{OK: done}
}

// queue grants what further waiting checks ask, once nobody denies.
func (c *memoryCall) queue(step *memoryStep, op *Op) {
	if op.How != Take || !step.answer.OK || op.Cost == 0 || op.Queue == 0 {
		return
	}
	step.queue = step.cell.spent.Queue(c.now, op.Queue, step.receipt.ID)
	step.receipt.Cost += step.queue
}

// write stores how the op's bucket ended and says so in g.
func (c *memoryCall) write(g *Grant, step *memoryStep, op *Op, denied bool) {
	cell := step.cell
	end, changed := &cell.spent, cell.keptChanged || cell.spentChanged
	if denied {
		end, changed = &cell.kept, cell.keptChanged
		if op.How == Take || op.How == Reserve {
			step.receipt = Receipt{}
		}
	}
	switch {
	case cell.bucket == nil:
	case cell.reset:
		c.store.buckets.DeleteLocked(step.hash, keyed.Name(op.Bucket))
	case changed:
		cell.bucket.save(end)
	}
	*g = Grant{
		OK:        step.answer.OK,
		Never:     step.answer.Never,
		Queue:     step.queue,
		Remaining: end.Remaining(c.now),
		RetryMS:   step.answer.RetryMS,
		ResetMS:   end.ResetMS(c.now),
		NowMS:     c.now,
		Limit:     end.Limit,
		Receipt:   step.receipt,
		Reserved:  step.reserved,
	}
}
