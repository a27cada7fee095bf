package storetest

import (
	"slices"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// heldCost is a reservation of the model: cost 0 once it is settled.
type heldCost struct {
	id        store.ReservationID
	end, cost int64
	window    int64 // where it counts; 0 of a token bucket
}

// isBucket reports whether c is a token bucket now.
func (c *counter) isBucket() bool { return c.l.Algorithm == limit.TokenBucket }

// giveHeld gives so much of what h holds back, unless its window is another.
func (c *counter) giveHeld(h heldCost, cost int64) {
	if c.isBucket() || h.window == c.start {
		c.back(cost)
	}
}

// endHeld ends the reservations whose time has come. In a window those that end
// before it does are given back, whenever that is found out.
func (c *counter) endHeld(now int64) {
	c.held = slices.DeleteFunc(slices.Clone(c.held), func(h heldCost) bool {
		if now < h.end {
			return false
		}
		if h.cost > 0 && (c.isBucket() || h.end < c.end) {
			c.giveHeld(h, h.cost)
		}
		return true
	})
}

// hold adds a reservation or a mark; beyond 64 the earliest-ending mark goes.
func (c *counter) hold(h heldCost) {
	if len(c.held) == store.MaxReservations {
		goes := -1
		for i, o := range c.held {
			if o.cost == 0 && (goes < 0 || o.end < c.held[goes].end) {
				goes = i
			}
		}
		if goes < 0 {
			return
		}
		c.held = slices.Delete(c.held, goes, goes+1)
	}
	c.held = append(c.held, h)
}

func (c *counter) findHeld(id store.ReservationID) int {
	return slices.IndexFunc(c.held, func(h heldCost) bool { return h.id == id })
}

// reserve answers a Reserve; what it spends is spent in spend.
func (t *turn) reserve() {
	op, c := t.op, t.c
	t.ok, t.met = c.passes(t.now, op.Cost), store.ReservedNow
	t.never = !t.ok && c.never(t.now, op.Cost)
	if !t.ok {
		t.met = store.ReservedNone
		if !t.never {
			t.retry = c.retry(t.now, op.Cost)
		}
	}
	if i := c.findHeld(op.Reservation); i >= 0 {
		t.ok, t.met = c.held[i].cost > 0 && c.held[i].cost == op.Cost, store.ReservedBefore // for another cost the name is taken
		t.never, t.retry = !t.ok, 0
		if !t.ok {
			t.met = store.ReservedSettled
		}
		return
	}
	if len(c.held) < store.MaxReservations || slices.ContainsFunc(c.held, func(h heldCost) bool { return h.cost == 0 }) {
		return
	}
	first := slices.MinFunc(c.held, func(a, b heldCost) int { return int(a.end - b.end) })
	t.ok, t.met = false, store.ReservedTooMany
	if !t.never {
		t.retry = max(t.retry, first.end-t.now)
	}
}

// keep sets the cost of a Reserve aside.
func (t *turn) keep() {
	id := t.c.spend(t.now, t.op.Cost, t.m.nextID())
	h := heldCost{id: t.op.Reservation, end: t.now + t.op.TTLMS, cost: t.op.Cost}
	if !t.c.isBucket() {
		h.window = t.c.start
	}
	t.c.hold(h)
	t.receipt = store.Receipt{ID: id, Cost: t.op.Cost}
	t.write = true
}

// settle commits or cancels.
func (t *turn) settle() {
	op, c := t.op, t.c
	t.ok = true
	i := c.findHeld(op.Reservation)
	switch {
	case i < 0:
		t.met = store.ReservedUnknown
		if op.How == store.Commit && op.Cost > 0 {
			c.add(t.now, op.Cost, t.m.nextID())
			t.write = true
			if c.l.Algorithm != limit.SlidingLog {
				c.hold(heldCost{id: op.Reservation, end: t.now + op.TTLMS})
			}
		}
		return
	case c.held[i].cost == 0:
		t.met = store.ReservedSettled
		return
	}
	h, cost := c.held[i], int64(0)
	if op.How == store.Commit {
		cost = op.Cost
	}
	if cost > h.cost {
		c.add(t.now, cost-h.cost, t.m.nextID())
	} else {
		c.giveHeld(h, h.cost-cost)
	}
	c.held[i] = heldCost{id: h.id, end: max(h.end, t.now+op.TTLMS)}
	t.met, t.write = store.ReservedNow, true
}

// unreserve undoes a Reserve.
func (t *turn) unreserve() {
	c := t.c
	if i := c.findHeld(t.op.Reservation); i >= 0 && c.held[i].cost > 0 {
		c.giveHeld(c.held[i], c.held[i].cost)
		c.held = slices.Delete(c.held, i, i+1)
		t.write = true
	}
}
