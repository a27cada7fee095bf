package algorithm

import "github.com/tallygate/tallygate/limit"

// placeFixed returns the empty window that holds now: by the clock, by the
// calendar, or from now on.
func placeFixed(l *limit.Limit, now int64) Window {
	switch l.Align {
	case limit.AlignCalendar:
		start, end := l.Calendar.At(now)
		return Window{Start: start, End: end}
	case limit.AlignFirstRequest:
		return Window{Start: now, End: now + l.WindowMS}
	case limit.AlignClock:
	}
	start := floorDiv(now, l.WindowMS) * l.WindowMS
	return Window{Start: start, End: start + l.WindowMS}
}

// rollFixed moves on to the window that holds now. The stored window ends when
// it said it would, wherever windows would be placed now.
func (w *Window) rollFixed(l *limit.Limit, now int64) (rebased bool) {
	switch {
	case now >= w.End:
		*w = placeFixed(l, now)
	case w.Start-now > w.End-w.Start:
		cur := w.Cur
		*w = placeFixed(l, now)
		w.Cur = cur
		return true
	}
	return false
}

// waitFixed returns how long until cost ≤ capacity passes: now, or when the
// window has ended.
func (w *Window) waitFixed(l *limit.Limit, now, cost int64) int64 {
	if w.Cur+cost <= l.Capacity {
		return 0
	}
	return w.End - now
}
