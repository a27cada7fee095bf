package rules

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/limit"
)

// Compile checks a set and makes the snapshot that follows prev (nil for none).
// It never fails as a whole: a faulty rule or override is named in the problems
// and skipped alone, and where prev has a good version of it, that one stays in
// force. A revision not above prev's becomes prev's + 1.
//
// Limits keep their revision, and their pointer, while their numbers are the
// same. Changed numbers of a rule or a key have 2 × the new snapshot's revision;
// those that return when an override ends by time have 2 × the revision of the
// snapshot that was in force then, + 1. So the revisions of one bucket only
// grow, also over a removed override, which the snapshot remembers until the
// rule's own numbers change.
//
// now decides which overrides have ended, and since when numbers are slower.
// Compile keeps nothing of set.
func Compile(prev *Snapshot, set Set, revision int64, now time.Time) (*Snapshot, Problems) {
	if prev == nil {
		prev = newSnapshot(0, nil)
	}
	c := compiler{
		prev:     prev,
		revision: max(revision, prev.revision+1),
		nowMS:    now.UnixMilli(),
		byID:     map[string]*Compiled{},
		seen:     map[string]bool{},
	}
	c.addRules(set)
	c.link()
	c.addOverrides(set)
	c.addCandidates(set)
	for _, rule := range c.rules {
		c.remember(rule)
	}
	return newSnapshot(c.revision, c.rules), c.problems
}

// compiler holds what one Compile works on.
type compiler struct {
	prev     *Snapshot
	revision int64
	nowMS    int64

	rules    []*Compiled
	byID     map[string]*Compiled
	seen     map[string]bool // ids met, good or not
	problems Problems
}

func (c *compiler) addRules(set Set) {
	for _, r := range set.Rules {
		if r.ID != "" && c.seen[r.ID] {
			rep := report{rule: r.ID, at: r.At}
			rep.add("id", r.ID, quote(r.ID)+" is taken by a rule before it", "rename this one")
			c.problems = append(c.problems, rep.out...)
			continue
		}
		c.seen[r.ID] = true
		problems, lim := r.check()
		c.problems = append(c.problems, problems...)
		if len(problems.Faults()) == 0 {
			c.add(r.clone(), lim)
		} else {
			c.keep(r.ID)
		}
	}
	for _, ref := range set.Unread {
		if ref.Key == nil && !c.seen[ref.Rule] {
			c.seen[ref.Rule] = true
			c.keep(ref.Rule)
		}
	}
}

// keep carries on the last good version of a rule, if there is one.
func (c *compiler) keep(id string) {
	if last := c.prev.byID[id]; last != nil {
		_, lim := last.rule.check()
		c.add(last.rule, lim)
	}
}

func (c *compiler) add(r Rule, lim *limit.Limit) {
	rule := &Compiled{rule: r, ordinal: len(c.rules), keys: map[string]*entry{}}
	rule.compileConditions()
	rule.compileClosedAllow()
	rule.base = entry{maxCost: r.maxCost(), endMS: never}
	if lim != nil {
		var last entry
		if before := c.before(rule); before != nil {
			last = before.base
		}
		rule.base.lim, rule.base.slowMS = c.follow(last.lim, last.slowMS, lim, 2*c.revision)
	}
	c.rules = append(c.rules, rule)
	c.byID[r.ID] = rule
}

// before returns the version of a rule in prev that had the same buckets.
func (c *compiler) before(rule *Compiled) *Compiled {
	last := c.prev.byID[rule.rule.ID]
	if last == nil || last.Domain() != rule.Domain() || last.base.lim == nil || rule.Action() != ActionLimit {
		return nil
	}
	return last
}

// follow gives next, just compiled, its place after the limit that was in force
// for the same bucket: last itself where nothing changed.
func (c *compiler) follow(last *limit.Limit, slowMS int64, next *limit.Limit, revision int64) (*limit.Limit, int64) {
	if last == nil {
		next.Revision = revision
		return next, 0
	}
	if last.Same(next) {
		return last, slowMS
	}
	next.Revision = revision
	return next, max(slowMS, c.slowUntil(last, next, c.nowMS))
}

// slowUntil returns until when a bucket that is missing since a change of its
// numbers may not be a full one; 0 if they did not get slower. A bucket nobody
// asked for since expired by its old numbers, at the latest when these would have
// filled it.
func (c *compiler) slowUntil(last, next *limit.Limit, sinceMS int64) int64 {
	if !slower(last, next) {
		return 0
	}
	return sinceMS + min(timeToFullMS(last), timeToFullMS(next), slowStart.Milliseconds())
}

func (c *compiler) addOverrides(set Set) {
	for _, o := range set.Overrides {
		rule, key, lim, problems := c.checkOverride(o)
		if rule != nil && key != "" && rule.keys[key] != nil {
			rep := report{rule: o.Rule, at: o.At}
			rep.add("key", key, "the rule has an override of this key before it", "keep one")
			problems, lim, rule = rep.out, nil, nil
		}
		c.problems = append(c.problems, problems...)
		if lim != nil {
			o.Key = slices.Clone(o.Key)
			c.addOverride(rule, key, o, lim)
		} else if rule != nil && key != "" {
			c.keepOverride(rule, key)
		}
	}
	for _, ref := range set.Unread {
		rule := c.byID[ref.Rule]
		if ref.Key == nil || rule == nil || rule.Action() != ActionLimit {
			continue
		}
		if key, err := rule.KeyOf(ref.Key); err == nil && rule.keys[key] == nil {
			c.keepOverride(rule, key)
		}
	}
}

// checkOverride returns the rule and key an override is for, as far as they are
// known, and its limit if it has no faults.
func (c *compiler) checkOverride(o Override) (*Compiled, string, *limit.Limit, Problems) {
	rep := report{rule: clip(o.Rule), at: o.At, out: o.Validate()}
	rule := c.byID[o.Rule]
	if rule == nil {
		if len(rep.out) == 0 {
			c.noRule(&rep, o.Rule)
		}
		return nil, "", nil, rep.out
	}
	if rule.Action() != ActionLimit {
		rep.add("rule", o.Rule, "action "+string(rule.Action())+" counts nothing", "remove the override")
		return nil, "", nil, rep.out
	}
	key, err := rule.KeyOf(o.Key)
	if err != nil && len(rep.out) == 0 {
		rep.badKey(o, err)
	}
	if len(rep.out) > 0 {
		return rule, key, nil, rep.out
	}
	lim := rep.numbers(rule.rule.Algorithm, rule.rule.over(o.Numbers))
	return rule, key, lim, rep.out
}

// noRule says why an override's rule is not there.
func (c *compiler) noRule(rep *report, id string) {
	if c.seen[id] {
		rep.add("rule", id, "rule "+quote(id)+" has faults and is not in force", "mend the rule")
		return
	}
	fix := "add the rule or remove the override"
	if near := nearest(id, slices.Sorted(maps.Keys(c.byID))); near != "" {
		fix = "did you mean " + quote(near) + "?"
	}
	rep.add("rule", id, "there is no rule "+quote(id), fix)
}

func (rep *report) badKey(o Override, err error) {
	message, fix := err.Error(), "write the key as the rule's identity has it"
	if keyErr, ok := errors.AsType[*KeyError](err); ok {
		message = keyErr.Message
		if keyErr.Attribute == attrIP {
			fix = "name one address; networks (CIDR) are not supported yet"
		}
	}
	rep.add("key", o.Key[0], message, fix)
}

// keepOverride carries on the last good version of an override, if there is one
// and it still fits its rule.
func (c *compiler) keepOverride(rule *Compiled, key string) {
	before := c.before(rule)
	if before == nil || before.keys[key] == nil || before.keys[key].override == nil {
		return
	}
	o := *before.keys[key].override
	if _, _, lim, problems := c.checkOverride(o); len(problems) == 0 {
		c.addOverride(rule, key, o, lim)
	}
}

// addOverride adds the numbers of one key, and those that follow when they end.
func (c *compiler) addOverride(rule *Compiled, key string, o Override, lim *limit.Limit) {
	e := &entry{override: &o, maxCost: cmp.Or(o.MaxCost, rule.base.maxCost), endMS: never, endCost: rule.base.maxCost}
	var last *limit.Limit
	var slowMS int64
	if before := c.before(rule); before != nil {
		was := before.entry(key)
		last, slowMS = was.limitAt(c.nowMS), was.slowUntil(c.nowMS)
	}
	rule.keys[key] = e
	ended := *rule.base.lim
	if o.ExpiresAt.IsZero() {
		e.lim, e.slowMS = c.follow(last, slowMS, lim, 2*c.revision)
		return
	}
	e.endMS = o.ExpiresAt.UnixMilli()
	if e.endMS <= c.nowMS {
		e.endLim, e.endSlowMS = c.follow(last, slowMS, &ended, 2*c.revision+1)
		e.lim = e.endLim // an ended override does not come back with the clock
		e.maxCost = e.endCost
		if last == nil {
			e.endSlowMS = c.slowUntil(lim, e.endLim, e.endMS)
		}
		return
	}
	e.lim, e.slowMS = c.follow(last, slowMS, lim, 2*c.revision)
	e.endLim = e.lim
	if !e.lim.Same(&ended) {
		// Above every revision that a pod may have sent for this key, also one
		// that knows no more than this snapshot and calls all numbers new in it.
		ended.Revision = 2*c.revision + 1
		e.endLim, e.endSlowMS = &ended, c.slowUntil(e.lim, &ended, e.endMS)
	}
}

// remember gives the keys whose override is gone the rule's numbers with a
// revision above the override's: else their buckets would keep its numbers.
func (c *compiler) remember(rule *Compiled) {
	before := c.before(rule)
	if before == nil {
		return
	}
	gone := 0
	for key, was := range before.keys {
		if rule.keys[key] != nil {
			continue
		}
		e := entry{maxCost: rule.base.maxCost, endMS: never}
		numbers := *rule.base.lim
		e.lim, e.slowMS = c.follow(was.limitAt(c.nowMS), was.slowUntil(c.nowMS), &numbers, 2*c.revision)
		if e.lim.Revision > rule.base.lim.Revision || e.slowMS > max(rule.base.slowMS, c.nowMS) {
			rule.keys[key] = &e
			gone++
		}
	}
	if gone > MaxTombstones {
		c.forget(rule)
	}
}

// forget drops the memory of removed overrides by giving the rule's own numbers
// a revision above all of them. It costs one conversion of every bucket.
func (c *compiler) forget(rule *Compiled) {
	numbers := *rule.base.lim
	numbers.Revision = 2 * c.revision
	rule.base.lim = &numbers
	maps.DeleteFunc(rule.keys, func(_ string, e *entry) bool { return e.override == nil })
}

// clone returns a copy that shares nothing.
func (r *Rule) clone() Rule {
	out := *r
	out.Match = maps.Clone(r.Match)
	out.Identity = slices.Clone(r.Identity)
	out.Supersedes = slices.Clone(r.Supersedes)
	out.ClosedAllow = slices.Clone(r.ClosedAllow)
	for i, parts := range out.ClosedAllow {
		out.ClosedAllow[i] = slices.Clone(parts)
	}
	return out
}

// addCandidates puts candidates beside their rules.
func (c *compiler) addCandidates(set Set) {
	for i := range set.Candidates {
		t := &set.Candidates[i]
		live := c.byID[t.Rule.ID]
		problems, lim := t.Rule.check()
		if live == nil || lim == nil || len(problems.Faults()) > 0 {
			continue
		}
		lim.Revision = 2 * c.revision
		rule := &Compiled{rule: t.Rule.clone(), ordinal: live.ordinal, keys: map[string]*entry{}, bucketRule: t.Rule.ID + "~candidate"}
		rule.compileClosedAllow()
		rule.base = entry{maxCost: rule.rule.maxCost(), endMS: never, lim: lim}
		live.trial = &Trial{Rule: rule, Stage: t.Stage, Percent: t.Percent, SinceMS: t.SinceMS}
	}
}
