package tallygate

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Bounds of what is counted by name, so that no client and no feed of rules can
// make the figures grow without end.
const (
	// maxNames is the number of rules, and of routes, counted by name; later ones
	// are counted together as [Other].
	maxNames = 1000
	// maxRouteBytes is the longest route counted by name.
	maxRouteBytes = 256
	// maxStripes bounds the copies of all counters, of which each processor adds
	// to its own.
	maxStripes = 16
)

// routeAttribute is the attribute that names a request's route template.
const routeAttribute = "route"

// meter counts how checks end. One lock a check guards plain counters, in one of
// several copies (stripes), so that processors do not wait for one another; no
// counter is an atomic of its own, of which a check of two rules would need eight.
// All figures are sums over the stripes.
type meter struct {
	stripes []*stripe
	turn    atomic.Uint32
	rules   names
	routes  names
	current atomic.Pointer[view]
	viewing sync.Mutex // held while the view changes
}

// view is how the meter numbers the rules of a snapshot, by their ordinals.
type view struct {
	snapshot *rules.Snapshot
	numbers  []int
	since    time.Time
	// newcomers are what lets new keys in, by ordinal.
	newcomers []*newcomers
}

// stripe is one copy of the counters. Pairs are of allowed and denied.
type stripe struct {
	mu     sync.Mutex // guards all of it
	checks [2][sourceCount]int64
	routes [][2]int64
	rules  []*ruleCells // by number
	errors map[Code]int64
	// degraded counts by timeout and unavailable.
	degraded [2]int64
	_        [64]byte // a neighbour's lock is in another cache line
}

// ruleCells are the counters of one rule.
type ruleCells struct {
	entries                             [outcomeCount][sourceCount]int64
	spent, denied, failOpen, failClosed int64
	// trials are what the rule and its candidate said, by 1 for a denial.
	trials [2][2]int64
	// newKeys are the entries that new keys beyond the rule's bound counted together.
	newKeys      int64
	reservations [reservation.Outcomes]int64
}

func newMeter(snapshot *rules.Snapshot, now time.Time) *meter {
	n := 1
	for n < maxStripes && n < runtime.GOMAXPROCS(0) {
		n *= 2
	}
	m := &meter{stripes: make([]*stripe, n)}
	for i := range m.stripes {
		m.stripes[i] = &stripe{errors: map[Code]int64{}}
	}
	m.rules.reserve(Other)
	m.routes.reserve(Other, NoRoute)
	m.viewOf(snapshot, now)
	return m
}

// next is the stripe of a new scratch: the pool keeps a scratch with a processor,
// so nearly every processor has a stripe to itself.
func (m *meter) next() uint32 { return m.turn.Add(1) }

// viewOf returns how the rules of a snapshot are numbered.
func (m *meter) viewOf(snapshot *rules.Snapshot, now time.Time) *view {
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
	v := &view{snapshot: snapshot, numbers: m.rules.add(ids...), since: now, newcomers: newcomersOf(last, list)}
	for i, r := range list {
		if t := r.Trial(); t != nil {
			m.rules.alias(t.Rule.BucketRule(), v.numbers[i])
		}
	}
	// A check that began with the snapshot before must not bring it back.
	if last == nil || snapshot.Revision() >= last.snapshot.Revision() {
		m.current.Store(v)
	}
	return v
}

// lock returns a locked stripe: the wanted one, or one that nobody uses.
func (m *meter) lock(wanted uint32) *stripe {
	mask := uint32(len(m.stripes) - 1)
	if t := m.stripes[wanted&mask]; t.mu.TryLock() {
		return t
	}
	return m.lockOther(wanted, mask)
}

func (m *meter) lockOther(wanted, mask uint32) *stripe {
	for i := range uint32(len(m.stripes)) {
		if t := m.stripes[(wanted+i)&mask]; t.mu.TryLock() {
			return t
		}
	}
	t := m.stripes[wanted&mask]
	t.mu.Lock()
	return t
}

// count counts a check that has ended with a verdict, or with an error.
func (m *meter) count(s *scratch, check *Check, v *Verdict, err error) {
	if err != nil {
		m.failed(s, err)
		return
	}
	route := m.route(s, check)
	t := m.lock(s.stripe)
	verdict := 0
	if !v.Allow {
		verdict = 1
	}
	t.checks[verdict][t.entries(s, v)]++
	if route >= len(t.routes) {
		t.routes = grow(t.routes, route+1)
	}
	t.routes[route][verdict]++
	if v.Degraded != "" {
		t.degrade(v.Degraded)
	}
	t.mu.Unlock()
}

// entries counts the entries of a verdict, and returns the source of the check:
// of a denial the entry's that denied, else the furthest that was asked.
func (t *stripe) entries(s *scratch, v *Verdict) (from int) {
	denier, furthest := none, 0
	for i := range v.Entries {
		e, asked := &v.Entries[i], &s.entries[i]
		c := t.rule(s.view.number(asked.rule))
		source, outcome := e.Source.index(), outcomeAllow
		furthest = max(furthest, source)
		if asked.raw != "" && asked.key == identity.OverflowKey {
			c.newKeys++
		}
		switch {
		case !e.Allow && e.Shadow:
			outcome = outcomeShadowDeny
		case !e.Allow:
			outcome = outcomeDeny
			if denier == none && e.Rule == v.DeniedBy {
				denier = source
				c.denied++
			}
		case !v.Allow && !(e.Counted && s.adds(asked)):
			outcome = outcomeUnspent
		case e.Counted:
			if asked.op == none || !s.reservedBefore(asked.op) {
				c.spent += asked.cost
			}
		case v.Degraded != "" && asked.op != none && !e.Shadow:
			c.failOpen++
		}
		c.entries[outcome][source]++
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

func (t *stripe) degrade(d Degraded) {
	switch d {
	case DegradedTimeout:
		t.degraded[0]++
	case DegradedUnavailable:
		t.degraded[1]++
	}
}

// countTrial counts what a rule and its candidate said of one check.
func (m *meter) countTrial(s *scratch, rule *rules.Compiled, liveDenied, candidateDenied bool) {
	t := m.lock(s.stripe)
	t.rule(s.view.numbers[rule.Ordinal()]).trials[index(liveDenied)][index(candidateDenied)]++
	t.mu.Unlock()
}

func index(denied bool) int {
	if denied {
		return 1
	}
	return 0
}

// reservedBefore reports whether an op of a reservation spent nothing: it had before,
// or its rule only shows what it would have said.
func (s *scratch) reservedBefore(op int) bool {
	return s.ops[op].How == store.Peek || op < len(s.grants) && s.grants[op].Reserved == store.ReservedBefore
}

// adds reports whether an entry is counted whatever the check's verdict.
func (s *scratch) adds(e *entry) bool {
	return e.op != none && (e.back > 0 || s.ops[e.op].How == store.Add)
}

// failed counts a check without a verdict.
func (m *meter) failed(s *scratch, err error) {
	code, rule := Code(""), ""
	if e, ok := errors.AsType[*Error](err); ok {
		code, rule = e.Code, e.Rule
	}
	t := m.lock(s.stripe)
	defer t.mu.Unlock()
	t.errors[code]++
	if code != CodeStoreTimeout && code != CodeStoreUnavailable {
		return
	}
	for i := range s.entries {
		if r := s.entries[i].rule; r.ID() == rule {
			t.rule(s.view.number(r)).failClosed++
			return
		}
	}
}

// rule returns the counters of the rule of that number.
func (t *stripe) rule(number int) *ruleCells {
	if number < len(t.rules) && t.rules[number] != nil {
		return t.rules[number]
	}
	t.rules = grow(t.rules, number+1)
	t.rules[number] = new(ruleCells)
	return t.rules[number]
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
		return noRouteNumber
	case s.route.name:
		return s.route.number
	}
	number, own := m.routes.number(name)
	if number != otherNumber {
		s.route = cachedRoute{own, number}
	}
	return number
}

// The numbers of names that are no one's own.
const (
	otherNumber   = 0
	noRouteNumber = 1
)

// names numbers the first maxNames names; all others share otherNumber.
type names struct {
	most  int        // names in all, those reserved included
	mu    sync.Mutex // held while a name is added
	known atomic.Pointer[known]
}

// known is names and their numbers. It is never changed, only replaced.
type known struct {
	numbers map[string]int
	list    []string
}

// reserve gives the first numbers to names that do not count against the bound.
func (n *names) reserve(list ...string) {
	n.most = len(list)
	n.known.Store(new(known))
	n.add(list...)
	n.most += maxNames
}

// maxAliases bounds the other names of rules: one a candidate.
const maxAliases = 2 * maxNames

// alias gives a rule's number another name: its candidate counts in buckets of that
// name, whose figures are the rule's, also after the trial.
func (n *names) alias(name string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.known.Load()
	if at, ok := k.numbers[name]; ok && at == number || len(k.numbers)-len(k.list) >= maxAliases {
		return
	}
	next := known{numbers: maps.Clone(k.numbers), list: k.list}
	next.numbers[strings.Clone(name)] = number
	n.known.Store(&next)
}

// find returns the number of a name, or otherNumber.
func (n *names) find(name string) int { return n.known.Load().numbers[name] }

// all returns the names by number.
func (n *names) all() []string { return n.known.Load().list }

// number returns the number of a name, and the copy of it that is kept.
func (n *names) number(name string) (number int, own string) {
	k := n.known.Load()
	if i, ok := k.numbers[name]; ok {
		return i, k.list[i]
	}
	if len(k.list) >= n.most || len(name) > maxRouteBytes || !utf8.ValidString(name) {
		return otherNumber, Other
	}
	i := n.add(name)[0]
	return i, n.all()[i]
}

// add returns the numbers of names, new ones where there is room.
func (n *names) add(list ...string) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.known.Load()
	next := known{numbers: maps.Clone(k.numbers), list: slices.Clone(k.list)}
	if next.numbers == nil {
		next.numbers = map[string]int{}
	}
	numbers := make([]int, len(list))
	for i, name := range list {
		at, ok := next.numbers[name]
		switch {
		case ok:
			numbers[i] = at
		case len(next.list) >= n.most:
			numbers[i] = otherNumber
		default:
			name, at = strings.Clone(name), len(next.list)
			next.numbers[name], next.list = at, append(next.list, name)
			numbers[i] = at
		}
	}
	n.known.Store(&next)
	return numbers
}
