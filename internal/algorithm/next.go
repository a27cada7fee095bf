package algorithm

import "github.com/tallygate/tallygate/limit"

// AdvanceNextWindow is [State.Advance] for numbers that apply from the next window
// on: as long as the stored window, fixed or sliding, has not ended, newer numbers
// of the same algorithm wait in Next and nothing is converted. The first call after
// its end converts as Advance does. Whatever else the state is, it is Advance.
func (s *State) AdvanceNextWindow(l *limit.Limit, now int64) (dirty bool) {
	if !s.holds(l, now) {
		return s.Advance(l, now)
	}
	s.Next = l
	return s.roll(now)
}

// holds reports whether the stored window keeps the numbers l waiting.
func (s *State) holds(l *limit.Limit, now int64) bool {
	old := s.Limit
	windows := old.Algorithm == limit.FixedWindow || old.Algorithm == limit.SlidingWindow
	return windows && l.Algorithm == old.Algorithm && l.Revision > old.Revision && now < s.Window.End && !l.Same(old)
}

// askNext is Ask while other numbers wait: what does not pass before the window
// ends must pass by those.
func (s *State) askNext(now, cost int64) Answer {
	left := s.Window.End - now
	if cost <= s.Limit.Full() {
		held := *s
		held.Next = nil
		if a := held.Ask(now, cost); a.RetryMS < left {
			return a
		}
	}
	if cost > s.Next.Full() {
		return Answer{Never: true}
	}
	if s.Limit.Algorithm == limit.FixedWindow {
		return Answer{RetryMS: left}
	}
	// Until something is spent the next window fades by its old length: it is
	// converted when it is asked, and what counts then is carried.
	next := *s.Next
	next.WindowMS = s.Limit.WindowMS
	then := Window{Start: s.Window.End, End: s.Window.End + next.WindowMS, Prev: s.Window.Cur}
	return Answer{RetryMS: left + then.waitSliding(&next, then.Start, cost)}
}
