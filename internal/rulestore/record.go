package rulestore

import (
	"encoding/json"
	"time"
)

// Rule is one rule of record, as it is after its latest change.
type Rule struct {
	// ID is the rule's id, unique over all domains.
	ID string
	// Version counts this rule's changes; Revision is that of the last one.
	Version, Revision int64
	// Live is the rule in force, as package rules encodes it. It may be unreadable
	// where somebody wrote it with SQL. Nil if the rule is deleted.
	Live json.RawMessage
	// LiveVersion is the version at which Live came into force, Previous the version
	// whose Live a rollback brings back; 0 for none.
	LiveVersion, Previous int64
	// Candidate stands beside Live; its zero value is none.
	Candidate Candidate
	// Deleted marks a tombstone: what was here is gone.
	Deleted   bool
	ChangedAt time.Time
}

// Exists reports whether the rule is there: not a zero value, not a tombstone.
func (r *Rule) Exists() bool { return r.Version > 0 && !r.Deleted }

// Candidate is the next version of a rule, on trial beside the live one.
type Candidate struct {
	// Body is the rule it would be; nil means that there is no candidate.
	Body json.RawMessage
	// Stage says who enforces it. Percent is the part of the pods that do, 1 to
	// 100, in stage canary; 0 in stage shadow.
	Stage   Stage
	Percent int
	// Since is when the trial began: the last change of the candidate, of its stage
	// or percent, or of the live rule it is compared with.
	Since time.Time
}

// Stage is how far a candidate is.
type Stage string

// The stages of a candidate.
const (
	StageNone   Stage = ""
	StageShadow Stage = "shadow"
	StageCanary Stage = "canary"
)

// Override is other numbers for one key of a rule.
type Override struct {
	Rule string
	// Key is the values as they were written. ID is the key in the one form in which
	// two spellings of an address are the same; Rule and ID name the override.
	Key []string
	ID  string
	// Body is the override as package rules encodes it; a tombstone keeps its last.
	Body              json.RawMessage
	Version, Revision int64
	Deleted           bool
	ChangedAt         time.Time
}

// Exists reports whether the override is there: not a zero value, not a tombstone.
func (o *Override) Exists() bool { return o.Version > 0 && !o.Deleted }

// Reset makes one key full again. It is an event: pods drop what they hold for
// that key when they meet it in the feed.
type Reset struct {
	// Rule is the rule whose bucket it is; "" means those of all rules.
	Rule     string
	Key      []string
	Revision int64
	At       time.Time
}

// ResetsKept is how long a reset stays in the feed, at least: what it drops on a
// pod is gone by itself after ten seconds.
const ResetsKept = time.Hour

// Set is everything at one revision.
type Set struct {
	Revision int64
	// Now is the store's clock at the answer: overrides end by it. It is no part of
	// the digest.
	Now time.Time
	// Hash is a digest of Rules and Overrides: two sets with the same hash are the
	// same, whatever happened in between.
	Hash string
	// Rules are those that exist, by id; Overrides by rule and ID.
	Rules     []Rule
	Overrides []Override
}

// Changes are what happened after a revision.
type Changes struct {
	// Revision is where the changes lead: the next question's since. Below the
	// revision asked for, the database is an older one, and only [Reader.Whole] tells
	// what is in it.
	Revision int64
	// Forgotten says that it is not known any more what changed: only [Reader.Whole]
	// tells what there is. Rules and Overrides are empty then.
	Forgotten bool
	// Now is the store's clock at the answer.
	Now time.Time
	// Hash is that of the Set at Revision; "" where the reader does not know it.
	Hash string
	// Rules and Overrides are as they are now, tombstones among them, in the order of
	// revisions. One that changed twice is there once.
	Rules     []Rule
	Overrides []Override
	Resets    []Reset
}

// Author is who changes something, and why.
type Author struct {
	// Who is required: 1 to 256 bytes. Why has at most 4 KiB. Neither has control
	// characters.
	Who, Why string
}

// Version is a rule as one change left it.
type Version struct {
	Rule
	Action Action
	Author
}

// Entry is one line of the audit: a change that was made.
type Entry struct {
	// ID grows with every line.
	ID       int64
	Revision int64
	At       time.Time
	Author
	Action Action
	// Rule and Key say of what; Key is nil for a rule, Rule "" for a reset of all.
	Rule string
	Key  []string
	// Version is that which the change made; 0 for a reset.
	Version int64
	// Before and After are {"live": …, "candidate": {"body": …, "stage": …,
	// "percent": …}} of a rule, or the body of an override; nil for nothing.
	Before, After json.RawMessage
}
