package algorithm

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/limit"
)

// ErrNoLimit says that an op carries no numbers.
var ErrNoLimit = errors.New("no limit")

// Check refuses numbers with which the arithmetic would not be exact. Rules are
// checked when they are written, with better messages; stores check again,
// since one bad op must not spoil a bucket.
func Check(l *limit.Limit) error {
	if l == nil {
		return ErrNoLimit
	}
	if l.Revision < 0 || l.Revision > limit.MaxExact {
		return outside("revision", l.Revision)
	}
	if l.Algorithm == limit.TokenBucket {
		return checkBucket(l)
	}
	return checkWindow(l)
}

func checkBucket(l *limit.Limit) error {
	switch {
	case l.Rate < 1 || l.Rate > limit.MaxNumber:
		return outside("rate", l.Rate)
	case l.PeriodMS < 1 || l.PeriodMS > limit.MaxPeriodMS:
		return outside("period_ms", l.PeriodMS)
	case l.Burst < 1 || l.Burst > limit.MaxExact/l.PeriodMS || l.Burst > limit.MaxNumber:
		return outside("burst", l.Burst)
	case ceilDiv(l.Burst*l.PeriodMS, l.Rate) > limit.MaxWindowMS:
		return outside("time to full", ceilDiv(l.Burst*l.PeriodMS, l.Rate))
	}
	return nil
}

func checkWindow(l *limit.Limit) error {
	most, longest := limit.MaxNumber, limit.MaxWindowMS
	switch l.Algorithm {
	case limit.SlidingWindow:
		longest = limit.MaxSlidingWindowMS
	case limit.SlidingLog:
		most = limit.MaxLogLimit
	case limit.FixedWindow:
		if (l.Align == limit.AlignCalendar) != (l.Calendar != nil) || l.Align > limit.AlignCalendar {
			return outside("align", int64(l.Align))
		}
	case limit.TokenBucket:
		return nil
	default:
		return outside("algorithm", int64(l.Algorithm))
	}
	length := l.WindowMS
	if l.Calendar != nil {
		if length != 0 {
			return outside("window_ms", length)
		}
		length = limit.DayMS
	}
	if l.Algorithm == limit.SlidingWindow {
		most = min(most, limit.MaxExact/max(1, length)) // its counts are multiplied by its length
	}
	switch {
	case length < 1 || length > longest:
		return outside("window_ms", length)
	case l.Capacity < 1 || l.Capacity > most:
		return outside("capacity", l.Capacity)
	}
	return nil
}

func outside(field string, value int64) error {
	return fmt.Errorf("%s %d is out of bounds", field, value)
}
