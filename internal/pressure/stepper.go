package pressure

import (
	"cmp"
	"slices"
	"time"
)

// The numbers of back-pressure.
const (
	// Whole is the factor, in thousandths, of a priority that is not cut.
	Whole = 1_000

	// An upstream is overloaded when a twentieth of its answers say so, or a twentieth
	// is slower than the target (the 95th percentile is above it); fewer answers than
	// leastAnswers in the window prove nothing.
	answerSlots  = 5
	leastAnswers = 20
	overloadOne  = 20 // one of so many

	// A cut takes a fifth, a step back gives a twentieth of the whole.
	cutEvery    = 5 * time.Second
	cutMilli    = 800
	regainEvery = 10 * time.Second
	regainMilli = 50

	// passedSlots is how long a rule looks back for what usually passes: ten seconds,
	// and the part of one that is under way.
	passedSlots = 11
)

// Rule is what a [Stepper] has to know of a rule.
type Rule struct {
	ID string
	// Priority says who is cut first: the lowest.
	Priority int
	// Floor is the part of the rule's requests that is never cut, in thousandths:
	// 1 to 1,000.
	Floor int64
}

// Factor is what a priority admits, in thousandths of what passed before it was cut.
type Factor struct {
	Priority int
	Milli    int64
}

// answers are the upstream's, of one slot.
type answers struct{ all, refused, slow int64 }

// level is one priority.
type level struct {
	priority int
	// floor is the lowest of its rules'.
	floor int64
	milli int64
}

// Stepper knows whether an upstream is overloaded and what each rule may admit. The
// zero value is not usable: see [New]. Times are on any clock that does not go back,
// from its zero on.
type Stepper struct {
	target  time.Duration
	answers window[answers]
	levels  []level // ascending by priority
	rules   map[string]*gate
	// cut is when a level was cut last, changed when one was given back or the upstream
	// was overloaded.
	cut, changed time.Duration
	pressed      bool
	shed         int64
}

// New returns a Stepper without rules. target is the latency that the 95th percentile
// may not exceed; 0 means that latency does not matter.
func New(target time.Duration) *Stepper {
	return &Stepper{
		target: target, answers: newWindow[answers](answerSlots), rules: map[string]*gate{},
		cut: -cutEvery, changed: -regainEvery,
	}
}

// SetRules replaces the rules that may be cut; those with a floor of the whole are
// left out. Rules that stay keep their counts, priorities their factor. A new rule has
// let nothing pass yet of which it could admit a part: it is cut at the next step.
func (s *Stepper) SetRules(now time.Duration, list []Rule) {
	old := s.levels
	s.levels = nil
	gates := make(map[string]*gate, len(list))
	for _, r := range list {
		if r.Floor >= Whole {
			continue
		}
		g := s.rules[r.ID]
		stays := g != nil
		if !stays {
			g = newGate(now)
		}
		g.floor = max(r.Floor, 1)
		gates[r.ID] = g
		i, found := slices.BinarySearchFunc(s.levels, r.Priority, byPriority)
		if !found {
			s.levels = slices.Insert(s.levels, i, level{priority: r.Priority, floor: g.floor, milli: milliOf(old, r.Priority)})
		}
		s.levels[i].floor = min(s.levels[i].floor, g.floor)
		g.priority = r.Priority
		if stays {
			g.set(now, max(g.floor, s.levels[i].milli))
		}
	}
	s.rules = gates
	for i := range s.levels {
		s.levels[i].milli = max(s.levels[i].milli, s.levels[i].floor)
	}
}

func byPriority(l level, priority int) int { return cmp.Compare(l.priority, priority) }

// milliOf returns the factor of a priority, the whole where it is not there.
func milliOf(levels []level, priority int) int64 {
	if i, found := slices.BinarySearchFunc(levels, priority, byPriority); found {
		return levels[i].milli
	}
	return Whole
}

// Answered counts an answer of the upstream: whether it says that it is overloaded
// (503 or 429), and how long it took.
func (s *Stepper) Answered(now time.Duration, refused bool, took time.Duration) {
	a := s.answers.at(now)
	a.all++
	if refused {
		a.refused++
	}
	if s.target > 0 && took > s.target {
		a.slow++
	}
	s.step(now)
}

// overloaded reports what the window of answers says.
func (s *Stepper) overloaded(now time.Duration) bool {
	s.answers.at(now)
	var sum answers
	for _, a := range s.answers.slots {
		sum.all += a.all
		sum.refused += a.refused
		sum.slow += a.slow
	}
	return sum.all >= leastAnswers && (sum.refused*overloadOne >= sum.all || sum.slow*overloadOne > sum.all)
}

// step cuts or gives back, at most as often as it may.
func (s *Stepper) step(now time.Duration) {
	if s.pressed = s.overloaded(now); s.pressed {
		s.changed = now // the way back begins when the overload ends
		if now-s.cut >= cutEvery && s.lower() {
			s.cut = now
			s.spread(now)
		}
		return
	}
	for now-s.changed >= regainEvery {
		if !s.raise() {
			return
		}
		// After a quiet hour there are many steps to make up for; raise ends them.
		s.changed += regainEvery
		s.spread(now)
	}
}

// lower cuts the lowest priority that is above its floor.
func (s *Stepper) lower() bool {
	for i := range s.levels {
		if l := &s.levels[i]; l.milli > l.floor {
			l.milli = max(l.floor, l.milli*cutMilli/Whole)
			return true
		}
	}
	return false
}

// raise gives back to the highest priority that is cut.
func (s *Stepper) raise() bool {
	for i := range slices.Backward(s.levels) {
		if l := &s.levels[i]; l.milli < Whole {
			l.milli = min(Whole, l.milli+regainMilli)
			return true
		}
	}
	return false
}

// spread tells the rules the factors of their priorities.
func (s *Stepper) spread(now time.Duration) {
	for _, g := range s.rules {
		g.set(now, max(g.floor, milliOf(s.levels, g.priority)))
	}
}

// Active reports whether any rule may be cut at all.
func (s *Stepper) Active() bool { return len(s.rules) > 0 }

// Pressed reports whether the upstream was overloaded when last looked at.
func (s *Stepper) Pressed() bool { return s.pressed }

// Shed returns how many requests were not admitted.
func (s *Stepper) Shed() int64 { return s.shed }

// Factors returns the factor of each priority that may be cut, the lowest first.
func (s *Stepper) Factors(now time.Duration) []Factor {
	s.step(now)
	out := make([]Factor, len(s.levels))
	for i, l := range s.levels {
		out[i] = Factor{Priority: l.priority, Milli: l.milli}
	}
	return out
}
