package algorithm

import "github.com/tallygate/tallygate/limit"

// State is one bucket as a store keeps it: the numbers it counts by, with their
// revision, and the counts. Only the part of Limit.Algorithm is in use; the
// others are zero.
type State struct {
	Limit *limit.Limit
	// Next is newer numbers of a window that wait for its end, see
	// [State.AdvanceNextWindow]; nil for none. It is of one call: no store keeps it.
	Next   *limit.Limit
	Bucket Bucket
	Window Window
	Log    Log
	// Reservations are costs set aside, oldest first, and marks of settled ones; a log
	// has none. Copies of a State share them: they are replaced, never changed in place.
	Reservations []Reservation
}

// Answer says whether a cost is there.
type Answer struct {
	OK bool
	// Never says that the cost is above what a full bucket holds: no waiting
	// helps, and RetryMS is 0.
	Never bool
	// RetryMS is the shortest wait after which the cost passes if nothing else
	// happens; 0 when it passes now.
	RetryMS int64
}

// Fresh returns the state of a bucket nobody has touched: full.
func Fresh(l *limit.Limit, now int64) State { return Holding(l, now, l.Full()) }

// Holding returns a state with that many tokens left at now, at most a full
// bucket; the rest counts as spent now. It is how a bucket starts of which a
// store lost count, and what is kept across a change of algorithm.
func Holding(l *limit.Limit, now, left int64) State {
	left = min(left, l.Full())
	s := State{Limit: l}
	switch l.Algorithm {
	case limit.TokenBucket:
		s.Bucket = Bucket{Level: left * l.PeriodMS, TS: now, Gen: floorDiv(now, GenerationMS)}
	case limit.SlidingWindow:
		s.Window = placeSliding(l, now)
		s.Window.Cur = l.Capacity - left
	case limit.FixedWindow:
		s.Window = placeFixed(l, now)
		s.Window.Cur = l.Capacity - left
	case limit.SlidingLog:
		s.Log.add(now, l.Capacity-left)
	}
	return s
}

// Advance brings a stored state to now, and to the numbers l if they are newer
// than its own; older ones, or others of the same revision, leave it as it is.
// Dirty says that the result must be stored even if nothing is spent: the
// numbers changed, or the clock stepped back so far that the state was
// re-based on it.
func (s *State) Advance(l *limit.Limit, now int64) (dirty bool) {
	s.Next = nil
	if l == s.Limit || l.Revision <= s.Limit.Revision {
		return s.roll(now)
	}
	if l.Same(s.Limit) {
		s.Limit = l
		s.roll(now)
		return true
	}
	s.convert(l, now)
	return true
}

// roll brings the state to now under its own numbers.
func (s *State) roll(now int64) (rebased bool) {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		rebased = s.Bucket.advance(s.Limit, now)
		s.release(now)
		return rebased
	case limit.SlidingWindow:
		s.release(now) // what ended in a window counts as given back in it, whenever it is seen
		return s.Window.rollSliding(s.Limit, now)
	case limit.FixedWindow:
		s.release(now)
		return s.Window.rollFixed(s.Limit, now)
	case limit.SlidingLog:
		s.Log.trim(s.Limit, now)
	}
	return false
}

// Ask says whether cost is there. The state must be at now.
func (s *State) Ask(now, cost int64) Answer {
	if s.Next != nil {
		return s.askNext(now, cost)
	}
	if cost > s.Limit.Full() {
		return Answer{Never: true}
	}
	var wait int64
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		wait = s.Bucket.wait(s.Limit, cost)
	case limit.SlidingWindow:
		wait = s.Window.waitSliding(s.Limit, now, cost)
	case limit.FixedWindow:
		wait = s.Window.waitFixed(s.Limit, now, cost)
	case limit.SlidingLog:
		wait = s.Log.wait(s.Limit, now, cost)
	}
	return Answer{OK: wait == 0, RetryMS: wait}
}

// Spend takes cost, which Ask said is there, and returns the receipt's id: the
// log entry's number, the window's start, or 0 for a token bucket.
func (s *State) Spend(now, cost int64) (id int64) {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		s.Bucket.Level -= cost * s.Limit.PeriodMS
	case limit.SlidingWindow, limit.FixedWindow:
		s.Window.Cur += cost
		return s.Window.Start
	case limit.SlidingLog:
		return s.Log.add(now, cost)
	}
	return 0
}

// Queue takes what is left up to want, for the checks that wait behind the one
// that got receipt id, and returns how much that was.
func (s *State) Queue(now, want, id int64) int64 {
	n := min(want, s.Remaining(now))
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		s.Bucket.Level -= n * s.Limit.PeriodMS
	case limit.SlidingWindow, limit.FixedWindow:
		s.Window.Cur += n
	case limit.SlidingLog:
		s.Log.grow(id, n)
	}
	return n
}

// Add takes cost whether it is there or not and returns a receipt for what can
// be given back: a token bucket and a log stop at 0 left, a window's count goes
// past its capacity, up to where products with its length stop being exact.
func (s *State) Add(now, cost int64) (id, spent int64) {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		// Rounded down: an undo must never give back more than was taken.
		spent = min(cost, s.Bucket.Level/s.Limit.PeriodMS)
		cost = min(cost, s.Limit.Burst)
		s.Bucket.Level = max(0, s.Bucket.Level-cost*s.Limit.PeriodMS)
		return 0, spent
	case limit.SlidingWindow, limit.FixedWindow:
		before := s.Window.Cur
		s.Window.Cur = min(before+cost, s.Window.most(s.Limit))
		return s.Window.Start, max(0, s.Window.Cur-before)
	case limit.SlidingLog:
		spent = min(cost, s.Log.left(s.Limit))
		return s.Log.add(now, spent), spent
	}
	return 0, 0
}

// Back gives cost tokens back, never above full.
func (s *State) Back(cost int64) {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		s.Bucket.back(s.Limit, cost)
	case limit.SlidingWindow, limit.FixedWindow:
		s.Window.Cur = max(0, s.Window.Cur-cost)
	case limit.SlidingLog:
		s.Log.back(cost)
	}
}

// Undo gives back what a receipt says was spent: a log forgets that entry, a
// window only counts down if it is still the one of the receipt. It reports
// whether it could.
func (s *State) Undo(id, cost int64) bool {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		s.Bucket.back(s.Limit, cost)
		return true
	case limit.SlidingWindow, limit.FixedWindow:
		if id != s.Window.Start {
			return false
		}
		s.Window.Cur = max(0, s.Window.Cur-cost)
		return true
	case limit.SlidingLog:
		return s.Log.undo(id)
	}
	return false
}

// Remaining returns the whole tokens left, never negative.
func (s *State) Remaining(now int64) int64 {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		return s.Bucket.Level / s.Limit.PeriodMS
	case limit.SlidingWindow:
		return max(0, s.Limit.Capacity-s.Window.usedSliding(s.Limit, now))
	case limit.FixedWindow:
		return max(0, s.Limit.Capacity-s.Window.Cur)
	case limit.SlidingLog:
		return s.Log.left(s.Limit)
	}
	return 0
}

// ResetMS returns the time until a token bucket is full, a window ends, or a log
// is empty.
func (s *State) ResetMS(now int64) int64 {
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		return s.Bucket.toFull(s.Limit)
	case limit.SlidingWindow, limit.FixedWindow:
		return s.Window.End - now
	case limit.SlidingLog:
		return s.Log.toEmpty(s.Limit, now)
	}
	return 0
}
