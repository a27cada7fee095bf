package rulestore

import (
	"sync"
	"time"
)

const (
	// clockAnswers is how many answers are compared, clockAge how old one may be: two
	// clocks drift apart by some milliseconds an hour.
	clockAnswers = 16
	clockAge     = 15 * time.Minute
)

// Clock tells how far ahead the store's clock is, by answers that told its time. Its zero
// value has heard none. It is safe for concurrent use.
type Clock struct {
	mu      sync.Mutex
	answers []clockAnswer // guarded by mu; the newest last
}

// clockAnswer is one comparison: the store read its clock at some time between two of
// ours, so that the middle is wrong by half of took at most.
type clockAnswer struct {
	at          time.Time
	took, ahead time.Duration
}

// Heard takes an answer that told the store's time; a zero one tells none.
func (c *Clock) Heard(asked, answered, store time.Time) {
	if store.IsZero() {
		return
	}
	took := answered.Sub(asked)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) == clockAnswers {
		c.answers = append(c.answers[:0], c.answers[1:]...)
	}
	c.answers = append(c.answers, clockAnswer{answered, took, store.Sub(asked.Add(took / 2))})
}

// Offset returns by how much the store's clock is ahead of ours, as the quickest recent
// answer told it; 0 before the first one.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) == 0 {
		return 0
	}
	newest := c.answers[len(c.answers)-1]
	best := newest
	for _, a := range c.answers {
		if stepped(a, newest) {
			continue // a clock was set since
		}
		if a.took < best.took && newest.at.Sub(a.at) <= clockAge {
			best = a
		}
	}
	return best.ahead
}

// clockDrift is by how much two clocks that nobody set may move apart over clockAge.
const clockDrift = 100 * time.Millisecond

// stepped reports whether two answers cannot both be true of clocks that run on.
func stepped(a, b clockAnswer) bool {
	return (a.ahead - b.ahead).Abs() > (a.took+b.took)/2+clockDrift
}
