package pressure

import "time"

// gate is the local admission in front of one rule.
type gate struct {
	priority int
	floor    int64
	// passed counts what passed, second by second, since the rule is known.
	passed window[int64]
	since  time.Duration

	// milli is the factor; below the whole the next four hold.
	milli int64
	// base are the requests that passed in the overMS before the first cut.
	base, overMS int64
	// level is a bucket, in units of 1/(1000·overMS) of a request: base × milli of
	// them come back every millisecond, exactly.
	level int64
	// filled is when level was right, in ms.
	filled int64
}

// leastEveryMS is the least that a cut rule is taken to have passed: a request a second.
// A rule that just began would be shut otherwise.
const leastEveryMS = 1_000

// maxBase bounds what a rule is taken to have passed: beyond it the arithmetic would
// not fit, and no proxy gets there (10^8 in ten seconds).
const maxBase = 100_000_000

// maxFillMS is the longest time that is made up for: the bucket of one request a second
// at a floor of a thousandth would take longer to fill, and is as good as full.
const maxFillMS = 1_000_000

func newGate(now time.Duration) *gate {
	return &gate{passed: newWindow[int64](passedSlots), since: now, milli: Whole}
}

// set changes the factor. The first cut fixes what it is a factor of.
func (g *gate) set(now time.Duration, milli int64) {
	if milli == g.milli {
		return
	}
	if g.milli < Whole {
		g.fill(now)
	}
	first := g.milli == Whole
	g.milli = milli
	if first {
		g.passed.at(now)
		g.base = 0
		for _, n := range g.passed.slots {
			g.base += n
		}
		held := (passedSlots-1)*slot + now%slot // the newest slot is not full yet
		g.overMS = min(max(now-g.since, slot), held).Milliseconds()
		g.base = min(max(g.base, g.overMS/leastEveryMS), maxBase)
		g.filled = now.Milliseconds()
		g.level = g.full()
	}
	g.level = min(g.level, g.full())
}

// one is a request in the units of level.
func (g *gate) one() int64 { return Whole * g.overMS }

// full is what the bucket holds: what comes back in a second, at least one request.
func (g *gate) full() int64 { return max(g.one(), g.base*g.milli*slot.Milliseconds()) }

// fill adds what has come back.
func (g *gate) fill(now time.Duration) {
	ms := now.Milliseconds()
	if passed := min(ms-g.filled, maxFillMS); passed > 0 {
		g.level = min(g.full(), g.level+passed*g.base*g.milli)
		g.filled = ms
	}
}

// open reports whether another request may pass.
func (g *gate) open(now time.Duration) bool {
	if g.milli == Whole {
		return true
	}
	g.fill(now)
	return g.level >= g.one()
}

// Admit reports whether a request that meets these rules may pass, and takes its place
// at each of them, or at none. Rules that are not the Stepper's are passed over.
func (s *Stepper) Admit(now time.Duration, ids []string) bool {
	s.step(now)
	for _, id := range ids {
		if g := s.rules[id]; g != nil && !g.open(now) {
			s.shed++
			return false
		}
	}
	for _, id := range ids {
		if g := s.rules[id]; g != nil && g.milli < Whole {
			g.level -= g.one()
		}
	}
	return true
}

// Passed counts a request that was admitted and went on to the upstream.
func (s *Stepper) Passed(now time.Duration, ids []string) {
	for _, id := range ids {
		if g := s.rules[id]; g != nil {
			*g.passed.at(now)++
		}
	}
}

// Return gives back the place of a request that was admitted and then went nowhere,
// since its limit denied it: it is no load on the upstream.
func (s *Stepper) Return(ids []string) {
	for _, id := range ids {
		if g := s.rules[id]; g != nil && g.milli < Whole {
			g.level = min(g.full(), g.level+g.one())
		}
	}
}
