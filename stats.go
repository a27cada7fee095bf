package tallygate

import (
	"cmp"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// Stats is what a limiter did since it was made, and what it holds now. Counts
// only grow. No key is in it, and names are bounded: the first 1,000 rules and the
// first 1,000 routes are counted by name, all later ones together as [Other].
//
// Every call of Decide or Check is counted once: as a verdict in Checks, or as an
// error in Errors. Figures that were counted by different processors at the time
// of the call may be a few checks apart.
type Stats struct {
	// Checks are the verdicts by source: of a denial, that of the entry that
	// denied; of an allow, the furthest that was asked, in the order of [Sources].
	Checks []CheckCount
	// Routes are the verdicts by the attribute route, the template of a request.
	Routes []RouteCount
	// Rules are the figures of each rule that was ever in force.
	Rules []RuleStats
	// Errors are the checks without a verdict.
	Errors []ErrorCount
	// DegradedTimeout and DegradedUnavailable are the checks answered without the
	// store, in Checks as well.
	DegradedTimeout, DegradedUnavailable int64
	Store                                StoreStats
	Local                                LocalStats
	Snapshot                             SnapshotStats
}

// Other stands for the rules and routes beyond those that are counted by name, and
// NoRoute for checks without the attribute route.
const (
	Other   = "other"
	NoRoute = "none"
)

// CheckCount is how many checks had a verdict from a source.
type CheckCount struct {
	Allow  bool
	Source Source
	Count  int64
}

// RouteCount is how many checks of a route were allowed and denied.
type RouteCount struct {
	Route           string
	Allowed, Denied int64
}

// ErrorCount is how many checks ended with a code.
type ErrorCount struct {
	Code  Code
	Count int64
}

// Outcome is how an entry of a check ended.
type Outcome string

// The outcomes.
const (
	// OutcomeAllow: the entry allowed, and so did the check.
	OutcomeAllow Outcome = "allow"
	// OutcomeDeny: the entry denied, and with it the check.
	OutcomeDeny Outcome = "deny"
	// OutcomeShadowDeny: the entry of a shadow rule would have denied.
	OutcomeShadowDeny Outcome = "shadow_deny"
	// OutcomeUnspent: the entry would have allowed, another one denied the check, and
	// nothing was spent here.
	OutcomeUnspent Outcome = "unspent"
)

// EntryCount is how many entries had an outcome from a source.
type EntryCount struct {
	Outcome Outcome
	Source  Source
	Count   int64
}

// RuleStats are the figures of one rule.
type RuleStats struct {
	Rule string
	// Entries are those that are not 0.
	Entries []EntryCount
	// Spent is what checks spent, in tokens, whoever answered.
	Spent int64
	// Denied is the checks that this rule denied: a denied check has one such rule.
	Denied int64
	// FailOpen is the entries allowed that nobody counted in the store: by the
	// fallback, by the rule's list of keys, or by nobody. FailClosed is the checks that
	// had no verdict since the rule fails closed.
	FailOpen, FailClosed int64
	// OverAsync and OverFallback are tokens admitted that the bucket had not: on an
	// estimate, and while the store did not answer. They are known once the store was
	// told and could not charge them.
	OverAsync, OverFallback int64
	// Trials are the checks that both the rule and its candidate had a verdict on.
	Trials TrialStats
	// NewKeysOverflowed is the entries of new keys beyond max_new_keys_per_s, which
	// were counted in one bucket.
	NewKeysOverflowed int64
	// Reservations are the rule's entries of reservations.
	Reservations ReservationStats
	// Leases is what became of tokens paid for in advance.
	Leases LeaseStats
}

// ReservationStats is what became of reservations, by how a call on this pod ended;
// those that ended by themselves only the store knows. Late are commits of what had
// ended. The estimate is in Spent, what a commit changed of it is not.
type ReservationStats struct {
	Reserved, Denied, Committed, Canceled, Late int64
}

// TrialStats are the checks of a trial by what the live version and the candidate said.
type TrialStats struct {
	BothAllowed, LiveDenied, CandidateDenied, BothDenied int64
}

// Count sums the entries of an outcome over all sources.
func (r *RuleStats) Count(o Outcome) (sum int64) {
	for _, e := range r.Entries {
		if e.Outcome == o {
			sum += e.Count
		}
	}
	return sum
}

// empty reports whether nothing was counted.
func (r *RuleStats) empty() bool {
	return len(r.Entries) == 0 && r.FailClosed == 0 && r.OverAsync == 0 && r.OverFallback == 0 && r.Trials == (TrialStats{}) && r.Leases == (LeaseStats{})
}

// LeaseStats are what became of the tokens that a pod leased, in tokens:
// Granted = Spent + Returned + Expired + Out.
type LeaseStats struct {
	// Granted is what the store gave; Spent and Returned what it was told was used,
	// or was not; Expired what ended unused before it could be returned.
	Granted, Spent, Returned, Expired int64
	// Out is what the store has been told nothing of yet, and Idle the part of it
	// that nobody has spent.
	Out, Idle int64
}

// StoreStats are the calls of a store that is not in this process.
type StoreStats struct {
	Calls int64
	// Timeouts, Unavailable and Refused are the calls that failed, by kind.
	Timeouts, Unavailable, Refused int64
	// TopUps are the calls that fetched a lease before the last one was used up.
	TopUps int64
	// ClockOffset is the store's clock less [Config.Now], as of the last answer;
	// ClockKnown says whether there was one.
	ClockOffset time.Duration
	ClockKnown  bool
	// Shards are the store's servers, where it knows of them, and LostUndos the
	// buckets that stayed spent for a check that another slot denied.
	Shards    []ShardStats
	LostUndos int64
}

// ShardStats are the figures of one server of the store.
type ShardStats = store.ShardHealth

// LocalStats are the sizes of what a limiter holds.
type LocalStats struct {
	// Remembered is the buckets that the pod remembers leases and denials of.
	Remembered int
	// Fallbacks is the buckets with a fallback that is not full yet, or of which the
	// store is still to be told; FallbackOverflowed the draws on one that keys share
	// which the table has no room for.
	Fallbacks          int
	FallbackOverflowed int64
	// Pods is how many pods the pod takes to be alive; 0 for a store in this process.
	Pods int64
	// Memory says that the store is a MemoryStore, Buckets what it holds and
	// Overflowed its ops answered from a shared overflow bucket.
	Memory     bool
	Buckets    int
	Overflowed int64
}

// SnapshotStats are the rules in force.
type SnapshotStats struct {
	Revision int64
	Rules    int
	// Age is how long ago this limiter first saw them.
	Age time.Duration
}

// memoryTable is a store in this process that has a table of buckets.
type memoryTable interface{ Stats() store.MemoryStats }

// Stats returns the limiter's figures. It holds up checks for a moment each, and
// costs a few hundred nanoseconds a rule and some ten a remembered bucket: ask every
// few seconds, not for each check. It may be called after Close.
func (l *Limiter) Stats() Stats {
	now := l.now()
	v := l.meter.viewOf(l.rules.Snapshot(), now)
	s := l.meter.stats()
	s.Snapshot = SnapshotStats{Revision: v.snapshot.Revision(), Rules: len(v.snapshot.Rules()), Age: max(0, now.Sub(v.since))}
	l.calls.stats(&s.Store)
	if l.health != nil {
		health := l.health.Health()
		s.Store.Shards, s.Store.LostUndos = health.Shards, health.LostUndos
	}
	if l.table != nil {
		t := l.table.Stats()
		s.Local.Memory, s.Local.Buckets, s.Local.Overflowed = true, t.Buckets, t.Overflowed
	}
	if l.pod != nil {
		p := l.pod.Pod()
		s.Local.Remembered, s.Local.Pods = p.Entries(), p.Pods()
		s.Store.TopUps = p.TopUps()
		s.Local.Fallbacks, s.Local.FallbackOverflowed = p.Fallbacks()
		for rule, over := range p.Over() {
			r := &s.Rules[l.meter.rules.find(rule)]
			r.OverAsync += over.Async
			r.OverFallback += over.Fallback
		}
		for rule, leases := range p.Leases() {
			s.Rules[l.meter.rules.find(rule)].Leases.add(leases)
		}
	}
	if other := &s.Rules[otherNumber]; other.empty() {
		s.Rules = slices.Delete(s.Rules, otherNumber, otherNumber+1)
	}
	return s
}

func (s *LeaseStats) add(l pod.LeaseFigures) {
	s.Granted += l.Granted
	s.Spent += l.Spent
	s.Returned += l.Returned
	s.Expired += l.Expired
	s.Out += l.Out
	s.Idle += l.Idle
}

// stats sums over the stripes.
func (m *meter) stats() Stats {
	var (
		s        Stats
		checks   [2][sourceCount]int64
		errs     = map[Code]int64{}
		cells    = make([]ruleCells, 0, maxNames+1)
		routes   = make([][2]int64, 0, maxNames+2)
		degraded [2]int64
	)
	for _, code := range codes() {
		errs[code] = 0
	}
	for _, t := range m.stripes {
		t.mu.Lock()
		for i := range checks {
			addAll(checks[i][:], t.checks[i][:])
		}
		addAll(degraded[:], t.degraded[:])
		for code, n := range t.errors {
			errs[code] += n
		}
		routes = grow(routes, len(t.routes))
		for i := range t.routes {
			addAll(routes[i][:], t.routes[i][:])
		}
		cells = grow(cells, len(t.rules))
		for i, c := range t.rules {
			if c != nil {
				cells[i].add(c)
			}
		}
		t.mu.Unlock()
	}
	for i, source := range Sources() {
		s.Checks = append(s.Checks, CheckCount{true, source, checks[0][i]}, CheckCount{false, source, checks[1][i]})
	}
	s.DegradedTimeout, s.DegradedUnavailable = degraded[0], degraded[1]
	for code, n := range errs {
		s.Errors = append(s.Errors, ErrorCount{code, n})
	}
	slices.SortFunc(s.Errors, func(a, b ErrorCount) int { return cmp.Compare(a.Code, b.Code) })
	// Names were added before they were counted, so that there is one for each.
	for i, name := range m.routes.all() {
		if i < len(routes) && routes[i] != [2]int64{} {
			s.Routes = append(s.Routes, RouteCount{name, routes[i][0], routes[i][1]})
		}
	}
	rules := m.rules.all()
	cells = grow(cells, len(rules))
	s.Rules = make([]RuleStats, len(rules))
	for i, name := range rules {
		s.Rules[i] = cells[i].stats(name)
	}
	return s
}

// add sums two sets of counters.
func (c *ruleCells) add(o *ruleCells) {
	for i := range c.entries {
		addAll(c.entries[i][:], o.entries[i][:])
	}
	c.spent += o.spent
	c.denied += o.denied
	c.failOpen += o.failOpen
	c.failClosed += o.failClosed
	c.newKeys += o.newKeys
	addAll(c.reservations[:], o.reservations[:])
	for i := range c.trials {
		addAll(c.trials[i][:], o.trials[i][:])
	}
}

func (c *ruleCells) stats(rule string) RuleStats {
	r := RuleStats{Rule: rule, Spent: c.spent, Denied: c.denied, FailOpen: c.failOpen, FailClosed: c.failClosed}
	r.NewKeysOverflowed = c.newKeys
	r.Reservations = ReservationStats{c.reservations[0], c.reservations[1], c.reservations[2], c.reservations[3], c.reservations[4]}
	r.Trials = TrialStats{c.trials[0][0], c.trials[1][0], c.trials[0][1], c.trials[1][1]}
	for o, outcome := range outcomes() {
		for i, source := range Sources() {
			if n := c.entries[o][i]; n > 0 {
				r.Entries = append(r.Entries, EntryCount{outcome, source, n})
			}
		}
	}
	return r
}

func addAll(dst, src []int64) {
	for i := range src {
		dst[i] += src[i]
	}
}

// grow makes a list at least so long.
func grow[T any](list []T, n int) []T {
	if n > len(list) {
		list = append(list, make([]T, n-len(list))...)
	}
	return list
}

// The places of outcomes and sources in counters.
const (
	outcomeAllow = iota
	outcomeDeny
	outcomeShadowDeny
	outcomeUnspent
	outcomeCount
)

func outcomes() [outcomeCount]Outcome {
	return [...]Outcome{OutcomeAllow, OutcomeDeny, OutcomeShadowDeny, OutcomeUnspent}
}

const sourceCount = 10

// Sources returns all sources, the nearest first, and last what stands in for a store
// that did not answer.
func Sources() []Source {
	return []Source{
		SourceRule, SourceDenyCache, SourcePreLimit, SourceLease, SourceAsync, SourceLocal, SourceStore, SourceNone,
		SourceAllowlist, SourceFallback,
	}
}

// index is the source's place in Sources.
func (s Source) index() int {
	switch s {
	case SourceRule:
		return 0
	case SourceDenyCache:
		return 1
	case SourcePreLimit:
		return 2
	case SourceLease:
		return 3
	case SourceAsync:
		return 4
	case SourceLocal:
		return 5
	case SourceStore:
		return 6
	case SourceNone:
	case SourceAllowlist:
		return 8
	case SourceFallback:
		return 9
	}
	return 7
}

// codes are the codes of errors, which are counted from 0 so that the first one is
// seen as an increase.
func codes() []Code {
	return []Code{
		CodeBadRequest, CodeTooLarge, CodeUnknownDomain, CodeUnknownRule, CodeInvalidCost,
		CodeMissingIdentity, CodeStoreTimeout, CodeStoreUnavailable, CodeCanceled, CodeClosed,
	}
}
