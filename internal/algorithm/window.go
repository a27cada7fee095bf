package algorithm

import "github.com/tallygate/tallygate/limit"

// Window is the state of a sliding or a fixed window: [Start, End) and the count
// in it; a sliding window also keeps the count of the window before.
//
// A clock that steps back by no more than one window holds the stored window:
// time stands still at Start until it has caught up, and only waits are measured
// from the real now. A longer step re-bases the window on the clock and keeps
// the counts: neither may be a way to a fresh window.
type Window struct {
	Start, End, Prev, Cur int64
}

// maxFixedCount is the largest count of a fixed window, which only has to fit
// its field in a store.
const maxFixedCount = 100 * limit.MaxNumber

// most is the largest count of the window: a sliding one still multiplies
// exactly with its length.
func (w *Window) most(l *limit.Limit) int64 {
	if l.Algorithm == limit.FixedWindow {
		return maxFixedCount
	}
	return limit.MaxExact / (w.End - w.Start)
}

// placeSliding returns the empty aligned window that holds now.
func placeSliding(l *limit.Limit, now int64) Window {
	start := floorDiv(now, l.WindowMS) * l.WindowMS
	return Window{Start: start, End: start + l.WindowMS}
}

// rollSliding moves on to the window that holds now.
func (w *Window) rollSliding(l *limit.Limit, now int64) (rebased bool) {
	switch d := now - w.Start; {
	case d < -l.WindowMS:
		prev, cur := w.Prev, w.Cur
		*w = placeSliding(l, now)
		w.Prev, w.Cur = prev, cur
		return true
	case d < l.WindowMS: // in it, or held
	case d < 2*l.WindowMS:
		w.Start, w.End = w.Start+l.WindowMS, w.End+l.WindowMS
		w.Prev, w.Cur = w.Cur, 0
	default:
		*w = placeSliding(l, now)
	}
	return false
}

// weighed returns what of the previous window still counts, times the window's
// length: p·(W−e).
func (w *Window) weighed(now int64) int64 {
	return w.Prev * (w.End - max(now, w.Start))
}

// usedSliding returns the estimate, rounded up to whole tokens.
func (w *Window) usedSliding(l *limit.Limit, now int64) int64 {
	return w.Cur + ceilDiv(w.weighed(now), l.WindowMS)
}

// waitSliding returns how long until cost ≤ capacity passes: within this window
// while the previous one fades, else in the next, where this one fades.
func (w *Window) waitSliding(l *limit.Limit, now, cost int64) int64 {
	length := l.WindowMS
	eff := max(now, w.Start)
	held, e := eff-now, eff-w.Start
	// Counts are compared before they are multiplied: Cur may be far above.
	if free := l.Capacity - w.Cur - cost; free >= 0 {
		if w.weighed(now) <= free*length {
			return 0
		}
		return held + length - free*length/w.Prev - e
	}
	return held + length - e + max(0, length-(l.Capacity-cost)*length/w.Cur)
}
