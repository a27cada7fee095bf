package rulestore

import (
	"context"
	"time"
)

// Reader is for who works from the rules: pods, by way of [Source].
type Reader interface {
	// Whole returns everything at one revision.
	Whole(ctx context.Context) (Set, error)
	// Since returns what changed after a revision. No change is ever skipped, however
	// late it committed: revisions become visible in their order.
	Since(ctx context.Context, revision int64) (Changes, error)
}

// Waiter is for who wants to know soon: [Follow], a long poll.
type Waiter interface {
	// Wait returns nil once the revision is another than since, or ctx's error. It looks by
	// itself from time to time: hints between processes may be lost.
	Wait(ctx context.Context, since int64) error
}

// Writer is for who changes rules.
type Writer interface {
	// Apply makes all changes, in their order, in one transaction, or none of them.
	// Changes see those before them. An *Error says which one stands in the way.
	Apply(ctx context.Context, by Author, changes ...Change) (Applied, error)
	// DryRun answers as Apply would, and changes nothing. Its Revision is 0.
	DryRun(ctx context.Context, by Author, changes ...Change) (Applied, error)
}

// Records is for who looks at one thing.
type Records interface {
	// Rule returns a rule, or NotFound; a tombstone is none.
	Rule(ctx context.Context, id string) (Rule, error)
	// Override returns the override of a key in any spelling, or NotFound.
	Override(ctx context.Context, rule string, key []string) (Override, error)
}

// Overrides is for who looks through overrides.
type Overrides interface {
	// Overrides returns a page of those that exist, by rule and ID.
	Overrides(ctx context.Context, page OverridePage) ([]Override, error)
}

// OverridePage says which overrides to return.
type OverridePage struct {
	// Rule narrows them; "" means all.
	Rule string
	// After is the last one of the page before; its zero value starts.
	After OverrideName
	// Limit is the most to return: 1 to MaxPage, 0 means DefaultPage.
	Limit int
}

// OverrideName names an override.
type OverrideName struct{ Rule, ID string }

// Historian is for who asks how a rule became what it is.
type Historian interface {
	// History returns versions of a rule below before (0 starts at the newest),
	// newest first, at most limit of them (1 to MaxPage, 0 means DefaultPage). Deleted
	// rules have a history too; NotFound is a rule that never was.
	History(ctx context.Context, rule string, before int64, limit int) ([]Version, error)
	// Version returns one of them, or NotFound.
	Version(ctx context.Context, rule string, version int64) (Version, error)
}

// Auditor is for who asks what happened.
type Auditor interface {
	// Audit returns entries that pass the filter, newest first.
	Audit(ctx context.Context, filter AuditFilter) ([]Entry, error)
}

// AuditFilter says which entries to return; zero values do not narrow.
type AuditFilter struct {
	Rule   string
	Key    []string
	Who    string
	Action Action
	// From and To bound the time: from From on, before To.
	From, To time.Time
	// Before is the ID of the last entry of the page before.
	Before int64
	// Limit is the most to return: 1 to MaxPage, 0 means DefaultPage.
	Limit int
}

// The sizes of pages: what an answer of 1 MiB holds of usual rules, and what one
// looks through.
const (
	MaxPage     = 1_000
	DefaultPage = 100
)

// PageLimit returns the limit in force, or Invalid.
func PageLimit(limit int) (int, error) {
	switch {
	case limit == 0:
		return DefaultPage, nil
	case limit < 0 || limit > MaxPage:
		return 0, invalid("a page has 1 to 1000 lines")
	default:
		return limit, nil
	}
}
