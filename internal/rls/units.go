package rls

import (
	"math"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// Lengths of units in seconds. A month is 30 days and a year 365 where Envoy counts
// in them; our calendar's months are as long as they are.
const (
	minuteS = 60
	hourS   = 60 * minuteS
	dayS    = 24 * hourS
	weekS   = 7 * dayS
	monthS  = 30 * dayS
	yearS   = 365 * dayS
	// maxWindowS is the longest window that can be counted.
	maxWindowS = 366 * dayS
)

// secondsOf returns the length of a unit that a request names; 0 for one that is
// unknown.
func secondsOf(u typev3.RateLimitUnit) int64 {
	switch u {
	case typev3.RateLimitUnit_SECOND:
		return 1
	case typev3.RateLimitUnit_MINUTE:
		return minuteS
	case typev3.RateLimitUnit_HOUR:
		return hourS
	case typev3.RateLimitUnit_DAY:
		return dayS
	case typev3.RateLimitUnit_MONTH:
		return monthS
	case typev3.RateLimitUnit_YEAR:
		return yearS
	case typev3.RateLimitUnit_UNKNOWN:
	}
	return 0
}

// unitOf returns the largest unit of which windowMS is a whole number, and that
// number; UNKNOWN where there is none, as for parts of a second. A length that a
// calendar's month or year can have is one.
func unitOf(windowMS int64) (unit rlsv3.RateLimitResponse_RateLimit_Unit, times uint32) {
	if windowMS <= 0 || windowMS%1000 != 0 {
		return rlsv3.RateLimitResponse_RateLimit_UNKNOWN, 0
	}
	s := windowMS / 1000
	switch s {
	case yearS, maxWindowS:
		return rlsv3.RateLimitResponse_RateLimit_YEAR, 1
	case 28 * dayS, 29 * dayS, monthS, 31 * dayS:
		return rlsv3.RateLimitResponse_RateLimit_MONTH, 1
	}
	length := int64(1)
	switch {
	case s%weekS == 0:
		unit, length = rlsv3.RateLimitResponse_RateLimit_WEEK, weekS
	case s%dayS == 0:
		unit, length = rlsv3.RateLimitResponse_RateLimit_DAY, dayS
	case s%hourS == 0:
		unit, length = rlsv3.RateLimitResponse_RateLimit_HOUR, hourS
	case s%minuteS == 0:
		unit, length = rlsv3.RateLimitResponse_RateLimit_MINUTE, minuteS
	default:
		unit = rlsv3.RateLimitResponse_RateLimit_SECOND
	}
	return unit, clamp(s / length)
}

// clamp makes n fit the protocol's numbers: never wrapped.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
