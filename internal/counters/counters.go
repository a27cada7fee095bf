// Package counters holds what a limiter counts of its checks, as plain numbers.
//
// One lock a check guards all it counts, in one of several copies of the counters
// (stripes), so that processors do not wait for one another; no counter is an atomic
// of its own, of which a check of two rules would need eight. Figures are sums over
// the stripes. What a counter means is the limiter's to say.
package counters

import (
	"sync"
	"sync/atomic"
)

// maxStripes bounds the copies of all counters, of which each processor adds to its
// own.
const maxStripes = 16

// Sizes of what is counted.
const (
	// Sources are the places an answer may come from.
	Sources = 10
	// Reservations are the ends that an entry of a reservation may have.
	Reservations = 5
)

// The outcomes of an entry, and how many there are.
const (
	Allow = iota
	Deny
	ShadowDeny
	Unspent
	Outcomes
)

// Denied is the place of a pair's count that a verdict belongs to: pairs are of
// allowed and denied.
func Denied(denied bool) int {
	if denied {
		return 1
	}
	return 0
}

// Figures are the counters of checks, without those by name.
type Figures struct {
	// Checks are pairs by source.
	Checks [2][Sources]int64
	// Timeout and Unavailable are the checks answered without the store.
	Timeout, Unavailable int64
	// Errors are the checks without a verdict, by code.
	Errors map[string]int64
}

// Rule are the counters of one rule.
type Rule struct {
	Entries                             [Outcomes][Sources]int64
	Spent, Denied, FailOpen, FailClosed int64
	// Trials are what the rule and its candidate said, each as [Denied].
	Trials [2][2]int64
	// NewKeys are the entries that new keys beyond the rule's bound counted together.
	NewKeys      int64
	Reservations [Reservations]int64
}

// Stripe is one copy of the counters. It is used between [Counters.Lock] and Unlock.
type Stripe struct {
	mu sync.Mutex // guards all of it
	Figures
	routes [][2]int64
	rules  []*Rule  // by number
	_      [64]byte // a neighbour's lock is in another cache line
}

// Unlock ends the use of a stripe.
func (t *Stripe) Unlock() { t.mu.Unlock() }

// Route returns the pair of the route of that number.
func (t *Stripe) Route(number int) *[2]int64 {
	t.routes = grow(t.routes, number+1)
	return &t.routes[number]
}

// Rule returns the counters of the rule of that number.
func (t *Stripe) Rule(number int) *Rule {
	if number < len(t.rules) && t.rules[number] != nil {
		return t.rules[number]
	}
	t.rules = grow(t.rules, number+1)
	t.rules[number] = new(Rule)
	return t.rules[number]
}

// Counters are counters in stripes. Create them with [New]; they are safe for
// concurrent use.
type Counters struct {
	stripes []*Stripe
	turn    atomic.Uint32
}

// New returns counters with a stripe for each of so many processors, at least one and
// at most 16.
func New(processors int) *Counters {
	n := 1 // a power of two, for the mask in Lock
	for n < maxStripes && n < processors {
		n *= 2
	}
	c := &Counters{stripes: make([]*Stripe, n)}
	for i := range c.stripes {
		c.stripes[i] = &Stripe{Figures: Figures{Errors: map[string]int64{}}}
	}
	return c
}

// Next returns the stripes in turn, to be wanted by one that counts often.
func (c *Counters) Next() uint32 { return c.turn.Add(1) }

// Lock returns a locked stripe: the wanted one, or one that nobody uses.
func (c *Counters) Lock(wanted uint32) *Stripe {
	mask := uint32(len(c.stripes) - 1)
	if t := c.stripes[wanted&mask]; t.mu.TryLock() {
		return t
	}
	return c.lockOther(wanted, mask)
}

func (c *Counters) lockOther(wanted, mask uint32) *Stripe {
	for i := range uint32(len(c.stripes)) {
		if t := c.stripes[(wanted+i)&mask]; t.mu.TryLock() {
			return t
		}
	}
	t := c.stripes[wanted&mask]
	t.mu.Lock()
	return t
}

// grow makes a list at least so long.
func grow[T any](list []T, n int) []T {
	if n > len(list) {
		list = append(list, make([]T, n-len(list))...)
	}
	return list
}
