package tallygate

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/counters"
	"github.com/tallygate/tallygate/internal/names"
	"github.com/tallygate/tallygate/internal/newcomers"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// maxNames is the number of rules, and of routes, counted by name, so that no client
// and no feed of rules can make the figures grow without end; later ones are counted
// together as [Other].
const maxNames = 1000

// noRoute is the number of [NoRoute]; that of [Other] is names.Rest.
const noRoute = 1

// routeAttribute is the attribute that names a request's route template.
const routeAttribute = "route"

// meter counts how checks end.
type meter struct {
	counters *counters.Counters
	rules    *names.Names
	routes   *names.Names
	current  atomic.Pointer[view]
	viewing  sync.Mutex // held while the view changes
}

// view is how the meter numbers the rules of a snapshot, by their ordinals.
type view struct {
	snapshot *rules.Snapshot
	numbers  []int
	since    time.Time
	// gates are what lets new keys in, by ordinal.
	gates []*newcomers.Gate
}

func newMeter(snapshot *rules.Snapshot, now func() time.Time) *meter {
	m := &meter{
		counters: counters.New(runtime.GOMAXPROCS(0)),
		rules:    names.New(maxNames, Other),
		routes:   names.New(maxNames, Other, NoRoute),
	}
	m.viewOf(snapshot, now)
	return m
}

// viewOf returns how the rules of a snapshot are numbered.
func (m *meter) viewOf(snapshot *rules.Snapshot, now func() time.Time) *view {
	if v := m.current.Load(); v != nil && v.snapshot == snapshot {
		return v
	}
	m.viewing.Lock()
	defer m.viewing.Unlock()
	last := m.current.Load()
	if last != nil && last.snapshot == snapshot {
		return last
	}
	list := snapshot.Rules()
	ids := make([]string, len(list))
	for i, r := range list {
		ids[i] = r.ID()
	}
	v := &view{snapshot: snapshot, numbers: m.rules.Add(ids...), since: now(), gates: gatesOf(last, list)}
	for i, r := range list {
		if t := r.Trial(); t != nil {
			// The candidate's buckets have a name of their own; their figures are the
			// rule's, also after the trial.
			m.rules.Alias(t.Rule.BucketRule(), v.numbers[i])
		}
	}
	// A check that began with the snapshot before must not bring it back.
	if last == nil || snapshot.Revision() >= last.snapshot.Revision() {
		m.current.Store(v)
	}
	return v
}

// number is the number of a rule: that of all others for a caller's own.
func (v *view) number(rule *rules.Compiled) int {
	if rule.Ordinal() < 0 {
		return names.Rest
	}
	return v.numbers[rule.Ordinal()]
}

// count counts a check that has ended with a verdict, or with an error.
func (m *meter) count(s *scratch, check *Check, v *Verdict, err error) {
	if err != nil {
		m.failed(s, err)
		return
	}
	route, denied := m.route(s, check), counters.Denied(!v.Allow)
	t := m.counters.Lock(s.stripe)
	t.Checks[denied][s.countEntries(t, v)]++
	t.Route(route)[denied]++
	switch v.Degraded {
	case DegradedTimeout:
		t.Timeout++
	case DegradedUnavailable:
		t.Unavailable++
	}
	t.Unlock()
}

// countEntries counts the entries of a verdict, and returns the source of the check:
// of a denial the entry's that denied, else the furthest that was asked.
func (s *scratch) countEntries(t *counters.Stripe, v *Verdict) (from int) {
	denier, furthest := none, 0
	for i := range v.Entries {
		e, asked := &v.Entries[i], &s.entries[i]
		c := t.Rule(s.view.number(asked.rule))
		source, outcome := e.Source.index(), counters.Allow
		furthest = max(furthest, source)
		if asked.raw != "" && asked.key == identity.OverflowKey {
			c.NewKeys++
		}
		switch {
		case !e.Allow && e.Shadow:
			outcome = counters.ShadowDeny
		case !e.Allow:
			outcome = counters.Deny
			if denier == none && e.Rule == v.DeniedBy {
				denier = source
				c.Denied++
			}
		case !v.Allow && !(e.Counted && s.adds(asked)):
			outcome = counters.Unspent
		case e.Counted:
			if !s.reservedBefore(asked) {
				c.Spent += asked.cost
			}
		case v.Degraded != "" && asked.op != none && !e.Shadow:
			c.FailOpen++
		}
		c.Entries[outcome][source]++
	}
	switch {
	case len(v.Entries) == 0:
		return SourceNone.index()
	case denier != none:
		return denier
	default:
		return furthest
	}
}

// reservedBefore reports whether an entry of a reservation spent nothing: it had before,
// or its rule only shows what it would have said.
func (s *scratch) reservedBefore(e *entry) bool {
	if !e.asks() {
		return false
	}
	return s.ops[e.op].How == store.Peek || e.op < len(s.grants) && s.grants[e.op].Reserved == store.ReservedBefore
}

// adds reports whether an entry is counted whatever the check's verdict.
func (s *scratch) adds(e *entry) bool {
	return e.op != none && (e.back > 0 || s.anyway || s.ops[e.op].How == store.Add)
}

// failed counts a check without a verdict.
func (m *meter) failed(s *scratch, err error) {
	code, rule := Code(""), ""
	if e, ok := errors.AsType[*Error](err); ok {
		code, rule = e.Code, e.Rule
	}
	t := m.counters.Lock(s.stripe)
	defer t.Unlock()
	t.Errors[string(code)]++
	if code != CodeStoreTimeout && code != CodeStoreUnavailable {
		return
	}
	for i := range s.entries {
		if r := s.entries[i].rule; r.ID() == rule {
			t.Rule(s.view.number(r)).FailClosed++
			return
		}
	}
}

// countTrial counts what a rule and its candidate said of one check.
func (m *meter) countTrial(s *scratch, rule *rules.Compiled, liveDenied, candidateDenied bool) {
	t := m.counters.Lock(s.stripe)
	t.Rule(s.view.number(rule)).Trials[counters.Denied(liveDenied)][counters.Denied(candidateDenied)]++
	t.Unlock()
}

// countReserved counts the entries of a check that reserved.
func (m *meter) countReserved(s *scratch, v *Verdict) {
	t := m.counters.Lock(s.stripe)
	defer t.Unlock()
	for i := range v.Entries {
		e := &s.entries[i]
		if !e.asks() || s.ops[e.op].How != store.Reserve {
			continue
		}
		c := &t.Rule(s.view.number(e.rule)).Reservations
		switch {
		case !v.Entries[i].Allow:
			c[reservation.OutcomeDenied]++
		case v.Allow && !s.reservedBefore(e):
			c[reservation.OutcomeReserved]++
		}
	}
}

// countSettled counts what became of reservations.
func (m *meter) countSettled(view *view, settling *reservation.Settling, grants []store.Grant) {
	t := m.counters.Lock(m.counters.Next())
	defer t.Unlock()
	for i := range grants {
		if o, counted := settling.Met(i, &grants[i]).Outcome(); counted {
			t.Rule(view.number(settling.Rules[i])).Reservations[o]++
		}
	}
}

// cachedRoute is the last route a scratch has seen, in the meter's own copy: the
// caller may use the bytes behind its string again.
type cachedRoute struct {
	name   string
	number int
}

// route numbers the route template of a check.
func (m *meter) route(s *scratch, check *Check) int {
	name := check.routeOf()
	switch name {
	case "":
		return noRoute
	case s.route.name:
		return s.route.number
	}
	number, own := m.routes.Number(name)
	if number != names.Rest {
		s.route = cachedRoute{own, number}
	}
	return number
}

// routeOf is the route template that a check names, "" for none.
func (c *Check) routeOf() string {
	for i := range c.Sets {
		if name := c.Sets[i].Attributes[routeAttribute]; name != "" {
			return name
		}
	}
	return c.Attributes[routeAttribute]
}
