package tallygate

import (
	"cmp"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/calls"
	"github.com/tallygate/tallygate/internal/counters"
	"github.com/tallygate/tallygate/internal/names"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/reservation"
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
	return len(r.Entries) == 0 && r.FailClosed == 0 && r.NewKeysOverflowed == 0 && r.Reservations == (ReservationStats{}) &&
		r.OverAsync == 0 && r.OverFallback == 0 && r.Trials == (TrialStats{}) && r.Leases == (LeaseStats{})
}

// LeaseStats are what became of the tokens that a pod leased, in tokens:
// Granted = Spent + Returned + Expired + Out, but for what a call moves just now.
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

// StoreCall is one call of a store that is not in this process.
type StoreCall struct {
	// Shard is the primary that was asked, where that is known; "" otherwise.
	Shard string
	// Took is how long the call took, in the time of Config.Now.
	Took time.Duration
	// Err is why there was no answer; nil for an answer, a denial included.
	Err error
}

// OnStoreCall has f called after each call of a store that is not in this process,
// by the goroutine that made the call and is needed for the answer: f must be quick
// and safe for concurrent use. More than one f may be given; none is forgotten.
func (l *Limiter) OnStoreCall(f func(StoreCall)) {
	l.calls.Watch(func(c calls.Call) { f(StoreCall(c)) })
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
	v := l.meter.viewOf(l.rules.Snapshot(), l.now)
	s := l.meter.stats()
	s.Snapshot = SnapshotStats{Revision: v.snapshot.Revision(), Rules: len(v.snapshot.Rules()), Age: max(0, now.Sub(v.since))}
	made := l.calls.Figures()
	s.Store.Calls, s.Store.Timeouts, s.Store.Unavailable, s.Store.Refused = made.Calls, made.Timeouts, made.Unavailable, made.Refused
	s.Store.ClockOffset, s.Store.ClockKnown = made.ClockOffset, made.ClockKnown
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
			r := &s.Rules[l.meter.rules.Find(rule)]
			r.OverAsync += over.Async
			r.OverFallback += over.Fallback
		}
		for rule, leases := range p.Leases() {
			s.Rules[l.meter.rules.Find(rule)].Leases.add(leases)
		}
	}
	if other := &s.Rules[names.Rest]; other.empty() {
		s.Rules = slices.Delete(s.Rules, names.Rest, names.Rest+1)
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

// stats are the figures of the meter.
func (m *meter) stats() Stats {
	sum := m.counters.Sum()
	s := Stats{DegradedTimeout: sum.Timeout, DegradedUnavailable: sum.Unavailable}
	for i, source := range Sources() {
		s.Checks = append(s.Checks, CheckCount{true, source, sum.Checks[0][i]}, CheckCount{false, source, sum.Checks[1][i]})
	}
	for _, code := range codes() {
		sum.Errors[string(code)] += 0 // so that the first one is seen as an increase
	}
	for code, n := range sum.Errors {
		s.Errors = append(s.Errors, ErrorCount{Code(code), n})
	}
	slices.SortFunc(s.Errors, func(a, b ErrorCount) int { return cmp.Compare(a.Code, b.Code) })
	// Names were added before they were counted, so that there is one for each.
	for i, name := range m.routes.All() {
		if i < len(sum.Routes) && sum.Routes[i] != [2]int64{} {
			s.Routes = append(s.Routes, RouteCount{name, sum.Routes[i][0], sum.Routes[i][1]})
		}
	}
	rules := m.rules.All()
	s.Rules = make([]RuleStats, len(rules))
	for i, name := range rules {
		s.Rules[i] = ruleStats(name, sum.RuleOf(i))
	}
	return s
}

// ruleStats are the figures of one rule.
func ruleStats(rule string, c *counters.Rule) RuleStats {
	r := RuleStats{
		Rule: rule, Spent: c.Spent, Denied: c.Denied, FailOpen: c.FailOpen, FailClosed: c.FailClosed, NewKeysOverflowed: c.NewKeys,
		Trials: TrialStats{BothAllowed: c.Trials[0][0], LiveDenied: c.Trials[1][0], CandidateDenied: c.Trials[0][1], BothDenied: c.Trials[1][1]},
		Reservations: ReservationStats{
			Reserved: c.Reservations[reservation.OutcomeReserved], Denied: c.Reservations[reservation.OutcomeDenied],
			Committed: c.Reservations[reservation.OutcomeCommitted], Canceled: c.Reservations[reservation.OutcomeCanceled],
			Late: c.Reservations[reservation.OutcomeLate],
		},
	}
	for o, outcome := range outcomes() {
		for i, source := range Sources() {
			if n := c.Entries[o][i]; n > 0 {
				r.Entries = append(r.Entries, EntryCount{outcome, source, n})
			}
		}
	}
	return r
}

// outcomes are the outcomes by their places in counters.
func outcomes() [counters.Outcomes]Outcome {
	return [...]Outcome{counters.Allow: OutcomeAllow, counters.Deny: OutcomeDeny, counters.ShadowDeny: OutcomeShadowDeny, counters.Unspent: OutcomeUnspent}
}

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

// codes are the codes of errors that are counted from 0.
func codes() []Code {
	return []Code{
		CodeBadRequest, CodeTooLarge, CodeUnknownDomain, CodeUnknownRule, CodeInvalidCost,
		CodeMissingIdentity, CodeNotReservable, CodeStoreTimeout, CodeStoreUnavailable, CodeCanceled, CodeClosed,
	}
}
