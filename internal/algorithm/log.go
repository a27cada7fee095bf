package algorithm

import (
	"slices"

	"github.com/tallygate/tallygate/limit"
)

// Entry is one admission in a log: so many tokens at a time, under a number by
// which it can be taken out again.
type Entry struct {
	AtMS, Count, ID int64
}

// Log is the state of a sliding log: admissions in the order of time. An entry
// of time t counts until t + W. Equal times are distinct entries.
//
// Time never runs backwards in a log: a clock behind the newest entry counts as
// being at it, and only waits are measured from the real now.
type Log struct {
	// Entries are shared between copies of a Log; functions below replace them
	// rather than change them, except for what they append.
	Entries []Entry
	// Used is the sum of the entries' counts.
	Used int64
	// LastID is the highest number given to an entry.
	LastID int64
}

// now returns the time in the log: at least that of the newest entry.
func (g *Log) now(now int64) int64 {
	if n := len(g.Entries); n > 0 {
		return max(now, g.Entries[n-1].AtMS)
	}
	return now
}

// trim drops the entries that have left the window.
func (g *Log) trim(l *limit.Limit, now int64) {
	now = g.now(now)
	n := 0
	for n < len(g.Entries) && g.Entries[n].AtMS+l.WindowMS <= now {
		g.Used -= g.Entries[n].Count
		n++
	}
	g.Entries = g.Entries[n:]
}

// left returns the tokens that may still be entered.
func (g *Log) left(l *limit.Limit) int64 { return max(0, l.Capacity-g.Used) }

// add enters count tokens at now and returns the entry's number, 0 for none.
func (g *Log) add(now, count int64) int64 {
	if count <= 0 {
		return 0
	}
	now = g.now(now)
	// Numbers grow with time, so that a log which was forgotten and began anew
	// does not give one out twice.
	g.LastID = max(g.LastID+1, now<<10)
	g.Entries = append(g.Entries, Entry{AtMS: now, Count: count, ID: g.LastID})
	g.Used += count
	return g.LastID
}

// grow adds n tokens to the entry id, which add has just made.
func (g *Log) grow(id, n int64) {
	if i := g.find(id); i >= 0 {
		g.Entries[i].Count += n
		g.Used += n
	}
}

// find returns the index of the entry id, or -1.
func (g *Log) find(id int64) int {
	for i, v := range slices.Backward(g.Entries) {
		if v.ID == id {
			return i
		}
	}
	return -1
}

// wait returns how long until cost ≤ limit passes: until enough of the oldest
// have left.
func (g *Log) wait(l *limit.Limit, now, cost int64) int64 {
	need := g.Used + cost - l.Capacity
	if need <= 0 {
		return 0
	}
	for _, e := range g.Entries {
		if need -= e.Count; need <= 0 {
			return e.AtMS + l.WindowMS - now
		}
	}
	panic("algorithm: a log's sum is above its entries")
}

// toEmpty returns the time until the newest entry has left.
func (g *Log) toEmpty(l *limit.Limit, now int64) int64 {
	if n := len(g.Entries); n > 0 {
		return g.Entries[n-1].AtMS + l.WindowMS - now
	}
	return 0
}

// back takes out the newest count tokens.
func (g *Log) back(count int64) {
	entries := append([]Entry(nil), g.Entries...)
	for n := len(entries); n > 0 && count > 0; n = len(entries) {
		last := &entries[n-1]
		gone := min(count, last.Count)
		count -= gone
		g.Used -= gone
		if last.Count -= gone; last.Count == 0 {
			entries = entries[:n-1]
		}
	}
	g.Entries = entries
}

// undo takes out the entry id, if it is there.
func (g *Log) undo(id int64) bool {
	i := g.find(id)
	if i < 0 {
		return false
	}
	g.Used -= g.Entries[i].Count
	entries := append([]Entry(nil), g.Entries[:i]...)
	g.Entries = append(entries, g.Entries[i+1:]...)
	return true
}
