// Package limit holds the numbers of a rule: what a bucket may hold, how it
// refills, and the revision under which these numbers came into force.
//
// A [Limit] is a plain, immutable value. Rules compile to it, algorithms
// compute with it and stores keep it beside a bucket's state; none of them has
// numbers of its own. The package has no clock, no lock and no dependency.
package limit

import "fmt"

// Algorithm says how a bucket counts. The zero value is no algorithm.
type Algorithm uint8

// The four algorithms. Their numbers are part of the store's wire format and
// never change.
const (
	// TokenBucket refills Rate tokens every PeriodMS up to Burst.
	TokenBucket Algorithm = 1
	// SlidingWindow weighs the previous aligned window by what of it is still
	// inside the last WindowMS, and adds the current one.
	SlidingWindow Algorithm = 2
	// SlidingLog remembers every admission for WindowMS.
	SlidingLog Algorithm = 3
	// FixedWindow counts from one window's start to its end.
	FixedWindow Algorithm = 4
)

// Align says where a fixed window starts.
type Align uint8

const (
	// AlignClock starts windows at whole multiples of WindowMS of the UTC epoch.
	AlignClock Align = 0
	// AlignFirstRequest starts a window at the first request after the last one.
	AlignFirstRequest Align = 1
	// AlignCalendar starts windows at local midnight, Monday or the first of the
	// month, see Calendar.
	AlignCalendar Align = 2
)

// Bounds of the numbers. Beyond them a rule is refused: every product the
// algorithms form must stay exact in 53 bits, where Lua's numbers end.
const (
	// MaxNumber bounds rate, burst and limit.
	MaxNumber int64 = 1_000_000_000_000
	// MaxCost bounds the cost of one entry.
	MaxCost int64 = 1_000_000_000
	// MaxExact is the largest whole number a double holds exactly: 2^53.
	MaxExact int64 = 1 << 53
	// MaxPeriodMS bounds per_s: 31 days.
	MaxPeriodMS int64 = 31 * DayMS
	// MaxWindowMS bounds a window and the time in which a bucket fills: 366 days.
	MaxWindowMS int64 = 366 * DayMS
	// MaxSlidingWindowMS bounds a sliding window: 183 days, since a bucket must
	// live for two of them.
	MaxSlidingWindowMS int64 = 183 * DayMS
	// MaxLogLimit bounds the limit of a sliding log, which keeps an entry for
	// every admission.
	MaxLogLimit int64 = 10_000
	// DayMS is a day of 24 hours in milliseconds.
	DayMS int64 = 86_400_000
)

// Limit is the numbers of one rule, or of an override of it for one key. It is
// immutable once in use, and shared: compare pointers first, then [Limit.Same].
type Limit struct {
	Algorithm Algorithm

	// Rate tokens come back every PeriodMS, up to Burst. Token bucket only.
	Rate, PeriodMS, Burst int64

	// Capacity is what one window may hold: the rule's limit, for a sliding
	// window floor(limit × burst_factor). Zero for a token bucket.
	Capacity int64
	// WindowMS is the window's length; 0 for a calendar window.
	WindowMS int64
	// Align and Calendar place a fixed window. Calendar is set exactly when
	// Align is AlignCalendar.
	Align    Align
	Calendar *Calendar

	// Revision orders the numbers of one bucket: 2 × the revision at which the
	// rule or its override last changed, + 1 once an override has ended by time.
	Revision int64
}

// LengthMS is the length of a window in ms; of a calendar's the usual one, of a month
// the longest. It is 0 for a token bucket.
func (l *Limit) LengthMS() int64 {
	if l.Calendar == nil {
		return l.WindowMS
	}
	switch l.Calendar.Unit() {
	case Day:
		return DayMS
	case Week:
		return 7 * DayMS
	case Month:
	}
	return 31 * DayMS
}

// Full returns what an untouched bucket holds, in tokens: Burst or Capacity.
func (l *Limit) Full() int64 {
	if l.Algorithm == TokenBucket {
		return l.Burst
	}
	return l.Capacity
}

// Same reports whether l and o count alike, whatever their revisions.
func (l *Limit) Same(o *Limit) bool {
	if l == o {
		return true
	}
	a, b := *l, *o
	a.Revision, b.Revision = 0, 0
	a.Calendar, b.Calendar = nil, nil
	return a == b && l.Calendar.ID() == o.Calendar.ID()
}

// String returns the numbers in a form for logs, such as
// "token_bucket 100 per 1000ms burst 200 @4".
func (l *Limit) String() string {
	switch l.Algorithm {
	case TokenBucket:
		return fmt.Sprintf("%s %d per %dms burst %d @%d", l.Algorithm, l.Rate, l.PeriodMS, l.Burst, l.Revision)
	case SlidingWindow, SlidingLog, FixedWindow:
		if l.Calendar != nil {
			return fmt.Sprintf("%s %d per %s @%d", l.Algorithm, l.Capacity, l.Calendar, l.Revision)
		}
		return fmt.Sprintf("%s %d per %dms @%d", l.Algorithm, l.Capacity, l.WindowMS, l.Revision)
	default:
		return l.Algorithm.String()
	}
}

// String returns the name used in rules, such as "token_bucket".
func (a Algorithm) String() string {
	switch a {
	case TokenBucket:
		return "token_bucket"
	case SlidingWindow:
		return "sliding_window"
	case SlidingLog:
		return "sliding_log"
	case FixedWindow:
		return "fixed_window"
	default:
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
}

// ParseAlgorithm returns the algorithm of that name, and whether there is one.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for _, a := range []Algorithm{TokenBucket, SlidingWindow, SlidingLog, FixedWindow} {
		if a.String() == name {
			return a, true
		}
	}
	return 0, false
}
