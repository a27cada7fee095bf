package algorithm

import (
	"math/bits"

	"github.com/tallygate/tallygate/limit"
)

// convert brings the state to now and to new numbers. Nothing refills: tokens
// stay, capped by the new burst; counts stay, carried into the current window of
// another length; another algorithm starts with what was left.
func (s *State) convert(l *limit.Limit, now int64) {
	old := s.Limit
	if old.Algorithm == limit.TokenBucket && l.Algorithm == limit.TokenBucket {
		s.Bucket.convert(old, l, now)
		s.Limit = l
		s.release(now)
		return
	}
	s.roll(now)
	switch {
	case old.Algorithm != l.Algorithm:
		// Leases of the old numbers are forgotten: they count as spent.
		reserved := s.Reservations
		*s = Holding(l, now, s.Remaining(now))
		if l.Algorithm != limit.SlidingLog {
			s.Reservations = reserved // counted in what is left
		}
	case l.Algorithm == limit.SlidingLog:
		// What had left the old window stays out, whatever the new one's length.
		s.Log.trim(l, now)
	case l.Algorithm == limit.SlidingWindow && l.WindowMS != old.WindowMS:
		used := s.Window.usedSliding(old, now)
		s.Window = placeSliding(l, now)
		s.Window.Cur = min(used, s.Window.most(l))
	case l.Algorithm == limit.FixedWindow && !samePlace(old, l):
		used := s.Window.Cur
		s.Window = placeFixed(l, now)
		s.Window.Cur = min(used, s.Window.most(l))
	}
	s.Limit = l
}

// samePlace reports whether two fixed windows start and end alike.
func samePlace(a, b *limit.Limit) bool {
	return a.WindowMS == b.WindowMS && a.Align == b.Align && a.Calendar.ID() == b.Calendar.ID()
}

// convert refills up to now at the slower of the two rates, then keeps whole
// tokens, and the fraction rounded down, up to the new burst beside what is out.
//
// Where the new rate is the slower one the level changes its unit first: only in
// the unit of its own period is a rate a whole number.
func (b *Bucket) convert(old, l *limit.Limit, now int64) {
	b.TS = min(b.TS, now)
	if slower(l, old) {
		b.rescale(old, l)
		b.refill(l, old.Burst, now)
	} else {
		b.refill(old, old.Burst, now)
		b.rescale(old, l)
	}
	b.rotate(now)
	b.Level = min(b.Level, max(0, l.Burst-b.out())*l.PeriodMS)
}

// rescale changes the unit of the level from 1/P0 to 1/P tokens.
func (b *Bucket) rescale(old, l *limit.Limit) {
	whole, fraction := b.Level/old.PeriodMS, b.Level%old.PeriodMS
	if whole >= l.Burst {
		b.Level = l.Burst * l.PeriodMS
		return
	}
	if old.PeriodMS*l.PeriodMS > limit.MaxExact {
		fraction = 0 // its product would not be exact in the Redis script
	}
	b.Level = whole*l.PeriodMS + fraction*l.PeriodMS/old.PeriodMS
}

// slower reports whether a's rate is below b's, exactly: the products need more
// than 64 bits.
func slower(a, b *limit.Limit) bool {
	hiA, loA := bits.Mul64(uint64(a.Rate), uint64(b.PeriodMS))
	hiB, loB := bits.Mul64(uint64(b.Rate), uint64(a.PeriodMS))
	return hiA < hiB || hiA == hiB && loA < loB
}
