package envoyconfig

import (
	"fmt"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// numbers makes a rule's numbers of a limit, and says what is different about them, ""
// for nothing.
func numbers(r *rules.Rule, l *Limit, opts Options) (differs string) {
	n, unit := int64(l.RequestsPerUnit), l.Unit.Seconds()
	r.MaxCost = min(n, limit.MaxCost)
	switch opts.Algorithm {
	case limit.TokenBucket:
		rate, per := n, unit
		if unit*1_000 > limit.MaxPeriodMS || n > limit.MaxExact/(unit*1_000) {
			g := gcd(n, unit)
			rate, per = n/g, unit/g
		}
		if per*1_000 <= limit.MaxPeriodMS && n <= limit.MaxExact/(per*1_000) {
			r.Algorithm, r.Numbers = limit.TokenBucket, rules.Numbers{Rate: rate, PerS: per, Burst: n}
			return fmt.Sprintf("token_bucket: refills all the time instead of at once, so that one %s may see up to twice the limit after a pause", l.Unit)
		}
		differs = "stays a fixed_window: as a token_bucket it would pass this server's bounds (period of 31 days; burst times period of 2^53 ms)"
	case limit.SlidingWindow:
		if unit*1_000 <= limit.MaxSlidingWindowMS && n <= limit.MaxExact/(unit*1_000) {
			r.Algorithm, r.Numbers = limit.SlidingWindow, rules.Numbers{Limit: n, WindowS: unit}
			return fmt.Sprintf("sliding_window: looks back over the last %s instead of starting anew", l.Unit)
		}
		differs = "stays a fixed_window: as a sliding_window it would pass this server's bounds (183 days; limit times window of 2^53 ms)"
	case limit.FixedWindow, limit.SlidingLog, 0:
	}
	r.Algorithm = limit.FixedWindow
	r.Numbers = rules.Numbers{Limit: n, WindowS: unit}
	if !opts.CalendarWindows || differs != "" {
		return differs
	}
	switch l.Unit {
	case Week, Month:
		r.Numbers = rules.Numbers{Limit: n, Window: l.Unit.String()}
		return fmt.Sprintf("a calendar %s in UTC; there one of %d s since 1970", l.Unit, unit)
	case Year:
		return "stays 365 days: there is no calendar year"
	case Second, Minute, Hour, Day:
	}
	return ""
}

// gcd is the greatest common divisor of two numbers above 0.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
