package rules

import (
	"math"
	"time"

	"github.com/tallygate/tallygate/limit"
)

// slowStart bounds how long after numbers got slower a missing bucket is not
// taken for a full one.
const slowStart = 60 * time.Second

// Compiled is one rule as a [Snapshot] holds it: checked, with the numbers of
// every key that has its own. It is immutable; its methods do not allocate.
type Compiled struct {
	rule    Rule
	ordinal int // place in the file
	// bucketRule is the rule's name in the names of buckets.
	bucketRule string

	base entry
	// ended is the rule's own numbers with a revision above all that went before this
	// snapshot, for the keys whose override ends by time while it is in force.
	ended *limit.Limit
	// keys holds the keys with an override. gone holds those that had one, or were
	// reset: they have the numbers of the keys around them, with a revision above what
	// their buckets have seen.
	keys, gone *table
	// patterns are the overrides of many keys; nil for none.
	patterns *patterns
	// slow are patterns that went a short while ago, see NotFresh.
	slow []slowPattern

	// closedAllow holds the encoded keys that pass while the store does not answer;
	// nil for none.
	closedAllow map[string]struct{}

	// trial is the candidate beside this rule; nil for none.
	trial *Trial

	conditions []condition
	supersedes []int // ordinals of rules in the same domain, sorted
	rank       int   // superseding rules come before superseded ones
}

// entry is the numbers of one key of a rule, of a pattern, or of all other keys.
type entry struct {
	// lim and maxCost are in force until endMS, then endLim and the rule's own
	// max_cost. Without an endLim it is the rule's ended numbers.
	lim     *limit.Limit
	maxCost int64
	endMS   int64
	endLim  *limit.Limit
	// slowMS and endSlowMS are until when a missing bucket is not a full one.
	slowMS, endSlowMS int64

	// override is what the numbers are made from; nil in the rule's own entry and
	// where an override was removed.
	override *written
}

// slowPattern is a pattern that was removed, and until when a missing bucket of a
// key that it covers is not a full one.
type slowPattern struct {
	*keyPattern
	untilMS int64
}

const never = math.MaxInt64

// Rule returns the rule as written. It must not be changed.
func (c *Compiled) Rule() *Rule { return &c.rule }

// Ordinal returns the rule's place in [Snapshot.Rules].
func (c *Compiled) Ordinal() int { return c.ordinal }

// ID returns the rule's id.
func (c *Compiled) ID() string { return c.rule.ID }

// Domain returns the name of the rule's domain, never "".
func (c *Compiled) Domain() string { return c.rule.domain() }

// Action returns what the rule does, never "".
func (c *Compiled) Action() Action { return c.rule.action() }

// Shadow reports whether the rule is evaluated and never enforced.
func (c *Compiled) Shadow() bool { return c.rule.Mode == ModeShadow }

// FailClosed reports whether the rule denies when the store cannot answer.
func (c *Compiled) FailClosed() bool { return c.rule.FailMode == FailClosed }

// Trial is a candidate as a [Snapshot] holds it.
type Trial struct {
	// Rule is the candidate, with the numbers of overrides over its own. Its
	// BucketRule is another than the live rule's: it counts in its own buckets.
	Rule    *Compiled
	Stage   Stage
	Percent int
	SinceMS int64
}

// Trial returns the rule's candidate, nil if it has none.
func (c *Compiled) Trial() *Trial { return c.trial }

// BucketRule returns the name of the rule in the names of its buckets: its ID, or
// for a candidate one that no rule can have.
func (c *Compiled) BucketRule() string { return c.bucketRule }

// NextWindow reports whether changed numbers apply from the next window on.
func (c *Compiled) NextWindow() bool { return c.rule.OnChange == OnChangeNextWindow }

// MaxNewKeys returns how many unknown keys a second get buckets of their own on a
// pod, 0 for all.
func (c *Compiled) MaxNewKeys() int64 { return c.rule.MaxNewKeysPerS }

// MaxCost returns the rule's own largest cost of one check, for a key without
// override; see [Compiled.Effective].
func (c *Compiled) MaxCost() int64 { return c.base.maxCost }

// Effective returns the numbers and the largest cost in force for an encoded key
// (see [Key]): those of its override until that expires, else the rule's. lim is
// nil for the actions allow and deny, which count nothing.
//
// The limit's revision orders the numbers of one bucket and only grows, through
// edits, removal and expiry of overrides. An override may make the bucket
// smaller than maxCost: the check is then denied, not refused.
func (c *Compiled) Effective(key string, now time.Time) (lim *limit.Limit, maxCost int64) {
	e := c.entry(key)
	if e.endMS <= now.UnixMilli() {
		return c.endOf(e), c.base.maxCost
	}
	return e.lim, e.maxCost
}

// Timed reports whether the numbers of some key depend on the time. Where they do not,
// any time since 1970 will do for [Compiled.Effective] and [Compiled.NotFresh].
func (c *Compiled) Timed() bool {
	return c.keys != nil || c.gone != nil || c.patterns != nil || len(c.slow) > 0 || c.base.slowMS > 0
}

// NotFresh reports whether the numbers of this key got slower a short while ago:
// the time to full, at most a minute. A bucket that is missing then may have
// expired as full under the old numbers and is not a full one under the new.
func (c *Compiled) NotFresh(key string, now time.Time) bool {
	nowMS := now.UnixMilli()
	return nowMS < c.slowUntil(key, nowMS)
}

// slowUntil returns until when a missing bucket of the key is not a full one, by its
// numbers or by those that a pattern gave it a short while ago.
func (c *Compiled) slowUntil(key string, nowMS int64) int64 {
	until := c.entry(key).slowUntil(nowMS)
	if len(c.slow) == 0 || c.keys.get(key) != nil {
		return until
	}
	for i := range c.slow {
		s := &c.slow[i]
		if until >= s.untilMS || nowMS >= s.untilMS {
			continue
		}
		if value, addr, ok := patternValue(key, s.kind == network); ok && s.covers(value, addr) {
			until = s.untilMS
		}
	}
	return until
}

// entry finds the numbers of an encoded key. Most rules have no others than their own.
func (c *Compiled) entry(key string) *entry {
	if c.keys == nil && c.gone == nil && c.patterns == nil {
		return &c.base
	}
	return c.find(key)
}

// find finds the numbers of a key: its own, then those of the best pattern, then the
// rule's.
func (c *Compiled) find(key string) *entry {
	if e := c.keys.get(key); e != nil {
		return e
	}
	if e := c.gone.get(key); e != nil {
		return e
	}
	return c.under(key)
}

// under finds the numbers of a key that has none of its own.
func (c *Compiled) under(key string) *entry {
	if c.patterns != nil {
		if p := c.patterns.find(key); p != nil {
			return p.entry
		}
	}
	return &c.base
}

// endOf returns the numbers that hold once an entry has ended.
func (c *Compiled) endOf(e *entry) *limit.Limit {
	if e.endLim != nil {
		return e.endLim
	}
	return c.ended
}

// limitAt returns the limit in force at that time.
func (c *Compiled) limitAt(e *entry, nowMS int64) *limit.Limit {
	if e.endMS <= nowMS {
		return c.endOf(e)
	}
	return e.lim
}

func (e *entry) slowUntil(nowMS int64) int64 {
	if e.endMS <= nowMS {
		return max(e.slowMS, e.endSlowMS)
	}
	return e.slowMS
}

func (r *Rule) domain() string {
	if r.Domain == "" {
		return DefaultDomain
	}
	return r.Domain
}

func (r *Rule) action() Action {
	if r.Action == "" {
		return ActionLimit
	}
	return r.Action
}

// maxCost is the largest cost of a check: 1 unless given. A rule that counts
// nothing refuses no cost.
func (r *Rule) maxCost() int64 {
	switch {
	case r.action() != ActionLimit:
		return limit.MaxCost
	case r.MaxCost == 0:
		return 1
	default:
		return r.MaxCost
	}
}
