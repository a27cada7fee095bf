package algorithm

import "github.com/tallygate/tallygate/limit"

// Grace periods after which a store may forget a fixed window: the clock may
// step back into it.
const (
	hourMS = 3_600_000
	// longDayMS is grace for windows of a day and longer: a day of 25 hours.
	longDayMS = 25 * hourMS
)

// Full reports whether forgetting the state at now gives nobody anything: an
// untouched bucket in its place would hold no more. The state need not be at
// now.
func (s *State) Full(now int64) bool {
	l, at := s.Limit, *s
	if now < s.lastReservation() {
		return false // a reservation would be forgotten with it
	}
	switch l.Algorithm {
	case limit.TokenBucket:
		if now < s.Bucket.TS {
			return false // the clock stepped back: it may fill slower than it seems
		}
		at.roll(now)
		return at.Bucket.out() == 0 && at.Bucket.Level >= l.Burst*l.PeriodMS
	case limit.SlidingWindow:
		return now >= s.Window.End+l.WindowMS || s.Window.Prev|s.Window.Cur == 0
	case limit.FixedWindow:
		w := s.Window
		return now >= w.End+min(w.End-w.Start, hourMS) || w.Cur == 0
	case limit.SlidingLog:
		at.roll(now)
		return at.Log.Used == 0
	}
	return false
}

// TTLMS returns how long a store must keep the state from now on, always above
// 0 and at most 366 days: until a token bucket is full and no lease is out,
// until nothing of a window or a log counts any more, and until the last reservation
// has ended.
func (s *State) TTLMS(now int64) int64 {
	var ttl int64
	switch l := s.Limit; l.Algorithm {
	case limit.TokenBucket:
		ttl = s.Bucket.toFull(l) + 1
		if s.Bucket.out() > 0 {
			ttl += (s.Bucket.Gen+2)*GenerationMS - now
		}
	case limit.SlidingWindow:
		ttl = s.Window.End + l.WindowMS - now
	case limit.FixedWindow:
		grace := int64(hourMS)
		if s.Window.End-s.Window.Start >= limit.DayMS {
			grace = longDayMS
		}
		ttl = s.Window.End + grace - now
	case limit.SlidingLog:
		ttl = s.Log.toEmpty(l, now)
	}
	ttl = max(ttl, s.lastReservation()-now)
	return min(max(1, ttl), limit.MaxWindowMS)
}
