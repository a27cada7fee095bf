package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/pressure"
	"github.com/tallygate/tallygate/rules"
)

// guard is back-pressure for many requests at once.
type guard struct {
	rules Rules
	// seen is the snapshot that stepper works from, active whether a rule of it may be
	// held back at all: where none is, requests take no lock.
	seen   atomic.Pointer[rules.Snapshot]
	active atomic.Bool

	mu      sync.Mutex
	stepper *pressure.Stepper
}

func newGuard(r Rules, target time.Duration) *guard {
	return &guard{rules: r, stepper: pressure.New(target)}
}

// admit reports whether a request may go on to the limiter.
func (g *guard) admit(now time.Duration, check *tallygate.Check, x *exchange) bool {
	snapshot := g.rules.Snapshot()
	if g.seen.Load() != snapshot {
		g.follow(now, snapshot)
	}
	if !g.active.Load() {
		return true
	}
	domain := snapshot.Domain(check.Domain)
	if domain == nil {
		return true
	}
	x.matched = domain.Match(check.Attributes, x.matched[:0])
	for _, rule := range x.matched {
		if rule.ShedFloor() < pressure.Whole {
			x.ids = append(x.ids, rule.ID())
		}
	}
	if len(x.ids) == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stepper.Admit(now, x.ids)
}

// follow takes over the rules of another snapshot.
func (g *guard) follow(now time.Duration, snapshot *rules.Snapshot) {
	var list []pressure.Rule
	for _, rule := range snapshot.Rules() {
		if floor := rule.ShedFloor(); floor < pressure.Whole {
			list = append(list, pressure.Rule{ID: rule.ID(), Priority: rule.Priority(), Floor: floor})
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen.Load() == snapshot {
		return
	}
	g.stepper.SetRules(now, list)
	g.active.Store(g.stepper.Active())
	g.seen.Store(snapshot)
}

// settle counts an admitted request that passed the limiter, or frees its place.
func (g *guard) settle(now time.Duration, x *exchange, passed bool) {
	if len(x.ids) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if passed {
		g.stepper.Passed(now, x.ids)
	} else {
		g.stepper.Return(x.ids)
	}
}

// answered counts an answer of the upstream.
func (g *guard) answered(now time.Duration, refused bool, took time.Duration) {
	if !g.active.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stepper.Answered(now, refused, took)
}

// look returns what the guard does now.
func (g *guard) look(now time.Duration) Pressure {
	if snapshot := g.rules.Snapshot(); g.seen.Load() != snapshot {
		g.follow(now, snapshot)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	factors := g.stepper.Factors(now)
	return Pressure{Overloaded: g.stepper.Pressed(), Factors: factors, Shed: g.stepper.Shed()}
}
