// Package rules says what is limited, for whom and how: rules and overrides,
// their bounds, and the immutable [Snapshot] a pod works from.
//
// Rules come in as JSON ([Rule] unmarshals strictly) or from a YAML file
// (package rules/yaml), are validated field by field, compiled into a Snapshot
// and matched against a request's attributes. A [Watcher] follows a [Source] and
// keeps the last good Snapshot; a bad rule is skipped alone and named.
package rules

import (
	"time"

	"github.com/tallygate/tallygate/limit"
)

// Rule is what is limited, for whom, by which algorithm. See docs/rules.md for
// every field. Zero values mean the defaults.
type Rule struct {
	ID          string
	Domain      string
	Description string
	Owner       string

	Match      map[string]string
	CoversAll  bool
	Identity   []string
	Action     Action
	Supersedes []string

	Algorithm limit.Algorithm
	// Numbers as written: Rate, PerS, Burst for a token bucket; Limit with WindowS
	// or Window (and TZ, Align) for the windows.
	Numbers

	MaxCost  int64
	Mode     Mode
	FailMode FailMode
	Counting Counting
	// MaxLease is the most tokens one lease may hold: 1 to 1,000,000, 0 means 1,000.
	MaxLease int64
	// SyncMS is how long async and report counts may wait to be told, in ms: 20 to
	// 100, 0 means 50.
	SyncMS int64
	// PreLimit is each pod's own bucket in front of the store.
	PreLimit PreLimit

	// ClosedAllow is the keys that pass while the store does not answer, each
	// spelt as an override's: the identity's value, or the list of them. Like the
	// next two it is only for rules that fail closed.
	ClosedAllow [][]string
	// ClosedAllowanceMilli is the part of the limit, in thousandths, that all pods
	// together may admit while the store does not answer: 1 to 1,000, 0 means none.
	ClosedAllowanceMilli int64
	// Replicas is how many replicas must have a spend before it counts: 0 to 5.
	Replicas int64

	// OnChange says when changed numbers of a window apply: at once ("" or
	// OnChangeNow), or from its next window on.
	OnChange string
	// MaxNewKeysPerS is how many keys a second that a pod does not know yet get a
	// bucket of their own: 1 to 10^9, 0 means all. Those beyond share one a rule.
	MaxNewKeysPerS int64

	// Priority says how late a proxy sheds the rule's requests while its upstream is
	// overloaded: 0 to 1,000, the lowest first.
	Priority int64
	// ShedFloorMilli is the part of them, in thousandths, that is never shed: 50 to
	// 1,000, 0 means 1,000: nothing is.
	ShedFloorMilli int64

	// At is where the rule was written, for problems; zero if nowhere.
	At Position
}

// The values of OnChange.
const (
	OnChangeNow        = "now"
	OnChangeNextWindow = "next_window"
)

// Position is a place in a rules file, counted from 1. The zero Position is none.
type Position struct{ Line, Column int }

// PreLimit is a pod's own coarse bucket in front of the store: TimesMilli
// thousandths of the limit, or of the pod's equal part of it. The zero value is
// the default, once the limit, which never refuses what the store would allow; Of
// OfNone is none at all.
type PreLimit struct {
	Of         string
	TimesMilli int64
}

// The values of PreLimit.Of.
const (
	OfLimit     = "limit"
	OfFairShare = "fair_share"
	OfNone      = "off"
)

// Numbers are the numbers of a rule, each of which an override may replace. 0
// means not given.
type Numbers struct {
	Rate, PerS, Burst int64
	Limit, WindowS    int64
	// Window is "day", "week" or "month", in the zone TZ.
	Window, TZ string
	Align      string
	// BurstFactorMilli is burst_factor in thousandths: 1,500 for 1.5.
	BurstFactorMilli int64
}

// Override is other numbers for one key of one rule, usually until a date.
type Override struct {
	Rule string
	// Key is the raw identity value, or the list of them in the rule's order.
	Key []string
	Numbers
	MaxCost   int64
	ExpiresAt time.Time
	Reason    string
	Owner     string

	// At is where the override was written, for problems; zero if nowhere.
	At Position
}

// Set is all rules and overrides of one source, as written.
type Set struct {
	Rules     []Rule
	Overrides []Override
	// Candidates stand beside rules of the set, at most one a rule.
	Candidates []Candidate
	// Resets are keys to be full again: what a pod holds for them, leases and
	// denials, is dropped. Each is of one Compile only.
	Resets []Ref
	// Unread names what is in the source and could not be read. It is not gone:
	// its last good version stays in force.
	Unread []Ref
}

// Candidate is the next version of a rule, on trial beside the live one. It has
// the live one's ID, domain, match, identity and action; everything else may differ.
type Candidate struct {
	Rule  Rule
	Stage Stage
	// Percent is the part of the pods that enforce it, 1 to 100 in stage canary.
	Percent int
	// SinceMS is when the trial began, in Unix ms. It names the trial.
	SinceMS int64
}

// Stage is how far a candidate is.
type Stage string

// The stages: a shadow is only counted, a canary is enforced on a part of the pods.
const (
	StageShadow Stage = "shadow"
	StageCanary Stage = "canary"
)

// Ref names a rule or, where Key is set, an override of it. Of a reset the Rule may
// be "": the key's buckets of all rules.
type Ref struct {
	Rule string
	Key  []string
}

// Action is what a matching rule does.
type Action string

// Mode says whether a verdict is enforced.
type Mode string

// FailMode says what a rule answers when the store cannot.
type FailMode string

// Counting says how exactly a rule counts.
type Counting string

// The values of Action, Mode, FailMode and Counting that are at work.
const (
	ActionLimit Action = "limit"
	ActionAllow Action = "allow"
	ActionDeny  Action = "deny"

	ModeEnforce Mode = "enforce"
	ModeShadow  Mode = "shadow"

	FailOpen   FailMode = "open"
	FailClosed FailMode = "closed"

	CountingLease Counting = "lease"
	CountingExact Counting = "exact"
	// CountingAsync admits on the pod's estimate and counts after.
	CountingAsync Counting = "async"
	// CountingLocal counts in each pod alone.
	CountingLocal Counting = "local"
	// CountingReport counts and never denies.
	CountingReport Counting = "report"
)

// DefaultDomain is the domain of rules and checks that name none.
const DefaultDomain = "default"
