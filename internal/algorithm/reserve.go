package algorithm

import (
	"slices"

	"github.com/tallygate/tallygate/limit"
)

// MaxReservations bounds the reservations of one bucket, marks included: they are
// read and written with it, so that they are part of what every op on it costs.
const MaxReservations = 64

// Reservation is a cost that was set aside under a name until what it came to is
// known, or the mark of one that was settled.
type Reservation struct {
	ID [16]byte
	// EndMS is when it ends: what is still open is then given back, a mark dropped.
	EndMS int64
	// Cost is what is set aside, 1 or more; 0 of a mark.
	Cost int64
	// Window is the start of the window it was spent in, the only one it can be
	// given back in; 0 of a token bucket.
	Window int64
}

// open reports whether the reservation still waits to be settled.
func (r *Reservation) open() bool { return r.Cost > 0 }

// Held says what became of an op on a reservation.
type Held uint8

// The outcomes. Their numbers are part of the store's wire format.
const (
	// HeldNone: not an op on a reservation, or denied for its cost.
	HeldNone Held = 0
	// HeldNow: reserved, or an open one was settled.
	HeldNow Held = 1
	// HeldOpen: reserved before and still open; nothing was spent.
	HeldOpen Held = 2
	// HeldDone: settled before, or the name of another cost; nothing was changed.
	HeldDone Held = 3
	// HeldFull: all places of the bucket are taken by open reservations.
	HeldFull Held = 4
	// HeldUnknown: there is no such reservation, any more or at all.
	HeldUnknown Held = 5
)

// find returns the place of a reservation, or -1.
func (s *State) find(id [16]byte) int {
	return slices.IndexFunc(s.Reservations, func(r Reservation) bool { return r.ID == id })
}

// AskReserve says whether a reservation can be made: like Ask, with a place for it.
func (s *State) AskReserve(now, cost int64, id [16]byte) (Answer, Held) {
	if i := s.find(id); i >= 0 {
		// A name that was used for another cost is taken: to allow it would be to allow what
		// was never set aside.
		if r := &s.Reservations[i]; r.open() && r.Cost == cost {
			return Answer{OK: true}, HeldOpen
		}
		return Answer{Never: true}, HeldDone
	}
	a := s.Ask(now, cost)
	if wait := s.waitForPlace(now); wait > 0 {
		a.OK = false
		if !a.Never {
			a.RetryMS = max(a.RetryMS, wait)
		}
		return a, HeldFull
	}
	if !a.OK {
		return a, HeldNone
	}
	return a, HeldNow
}

// waitForPlace returns how long until there is room for one more reservation.
func (s *State) waitForPlace(now int64) int64 {
	if len(s.Reservations) < MaxReservations {
		return 0
	}
	first := s.Reservations[0].EndMS
	for i := range s.Reservations {
		if !s.Reservations[i].open() {
			return 0 // a mark makes room
		}
		first = min(first, s.Reservations[i].EndMS)
	}
	return first - now
}

// Reserve spends cost under a name for ttl ms. AskReserve has said HeldNow.
func (s *State) Reserve(now, cost, ttl int64, id [16]byte) (receipt int64) {
	receipt = s.Spend(now, cost)
	s.enter(Reservation{ID: id, EndMS: now + ttl, Cost: cost, Window: s.window()})
	return receipt
}

// window is the start of the window that counts now, 0 for a token bucket.
func (s *State) window() int64 {
	if s.Limit.Algorithm == limit.TokenBucket {
		return 0
	}
	return s.Window.Start
}

// enter adds a reservation. In a full list it takes the place of the mark that ends
// first: a repeat that this mark would have met then counts once more, which admits
// less, never more.
func (s *State) enter(r Reservation) {
	list := slices.Clone(s.Reservations)
	if len(list) >= MaxReservations {
		oldest := -1
		for i := range list {
			if !list[i].open() && (oldest < 0 || list[i].EndMS < list[oldest].EndMS) {
				oldest = i
			}
		}
		if oldest < 0 {
			return
		}
		list = slices.Delete(list, oldest, oldest+1)
	}
	s.Reservations = append(list, r)
}

// mark makes the reservation at i a mark that stays for ttl ms at least.
func (s *State) mark(now, ttl int64, i int) {
	list := slices.Clone(s.Reservations)
	list[i] = Reservation{ID: list[i].ID, EndMS: max(list[i].EndMS, now+ttl)}
	s.Reservations = list
}

// Commit settles a reservation with what the request really cost: the difference is
// added, there or not, or given back. Of one that is not known the whole cost is
// added, since what was set aside has been given back.
func (s *State) Commit(now, cost, ttl int64, id [16]byte) Held {
	i := s.find(id)
	switch {
	case i < 0 && cost == 0:
		return HeldUnknown
	case i < 0:
		s.Add(now, cost)
		if s.Limit.Algorithm != limit.SlidingLog {
			s.enter(Reservation{ID: id, EndMS: now + ttl})
		}
		return HeldUnknown
	case !s.Reservations[i].open():
		return HeldDone
	}
	r := s.Reservations[i]
	if more := cost - r.Cost; more > 0 {
		s.Add(now, more)
	} else if s.returns(&r) {
		s.Back(-more)
	}
	s.mark(now, ttl, i)
	return HeldNow
}

// Cancel gives an open reservation back.
func (s *State) Cancel(now, ttl int64, id [16]byte) Held {
	i := s.find(id)
	switch {
	case i < 0:
		return HeldUnknown
	case !s.Reservations[i].open():
		return HeldDone
	}
	if r := s.Reservations[i]; s.returns(&r) {
		s.Back(r.Cost)
	}
	s.mark(now, ttl, i)
	return HeldNow
}

// Unreserve takes an open reservation back as if it had not been made: without a
// mark, so that its name can be used again. It reports whether there was one.
func (s *State) Unreserve(id [16]byte) bool {
	i := s.find(id)
	if i < 0 || !s.Reservations[i].open() {
		return false
	}
	if r := s.Reservations[i]; s.returns(&r) {
		s.Back(r.Cost)
	}
	s.Reservations = slices.Delete(slices.Clone(s.Reservations), i, i+1)
	return true
}

// returns reports whether what r holds can be given back: always to a token bucket,
// to a window only while it is the one that r counts in.
func (s *State) returns(r *Reservation) bool {
	return s.Limit.Algorithm == limit.TokenBucket || r.Window == s.Window.Start
}

// release gives back what has ended open by now, and drops it with the marks that
// have. A window that ended before a reservation did keeps it counted. It follows
// from the stored state and the clock, so that nothing need be stored for it.
func (s *State) release(now int64) {
	if len(s.Reservations) == 0 || !slices.ContainsFunc(s.Reservations, func(r Reservation) bool { return r.EndMS <= now }) {
		return
	}
	var kept []Reservation
	for _, r := range s.Reservations {
		switch {
		case r.EndMS > now:
			kept = append(kept, r)
		case !r.open():
		case s.Limit.Algorithm == limit.TokenBucket, s.returns(&r) && r.EndMS < s.Window.End:
			s.Back(r.Cost)
		}
	}
	s.Reservations = kept
}

// lastReservation returns when the last reservation or mark ends, 0 without one.
func (s *State) lastReservation() (endMS int64) {
	for i := range s.Reservations {
		endMS = max(endMS, s.Reservations[i].EndMS)
	}
	return endMS
}
