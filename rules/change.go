package rules

import (
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/identity"
)

// Delta is what changed in a [Set] whose rules stand in the order of their ids and
// which has nothing twice, such as one from a database.
type Delta struct {
	// Rules are new ones and other versions. The candidate of each is that in
	// Candidates, or none; so is that of a rule in Unread.
	Rules      []Rule
	Candidates []Candidate
	Overrides  []Override
	// Unread names what changed to something that cannot be read; its last good
	// version stays.
	Unread []Ref
	// Gone names rules, and by their keys overrides, that are not there any more.
	Gone []Ref
	// Resets are as in a Set.
	Resets []Ref
}

// Change makes the snapshot that follows the last one by a change. It is the one that
// Whole would make of the changed set, and so are the problems, which are those of
// the whole set: only their order may be another. Change keeps nothing of delta.
func (c *Compiler) Change(delta Delta, revision int64, now time.Time) (*Snapshot, Problems) {
	c.begin(revision, now)
	rules := c.writeRules(delta)
	names := c.writeOverrides(delta)
	for _, due := range c.ends.until(c.nowMS) {
		if r := c.rows[due.rule]; r != nil && r.has(due.name) {
			names.add(due.rule, due.name)
		}
	}
	if len(rules) > 0 {
		c.relink(rules)
	}
	for id, changed := range names {
		if r := c.rows[id]; r != nil && !rules[id] { // else all are compiled anyway
			c.patch(r, changed)
		}
	}
	for id := range rules {
		c.overridesOf(c.rows[id])
	}
	snapshot, problems := c.finish(delta.Resets)
	c.ends.tidy(snapshot)
	return snapshot, append(c.problems(), problems...)
}

// writeRules takes the rules of a delta and returns the ids whose rows are to be
// compiled as a whole.
func (c *Compiler) writeRules(delta Delta) map[string]bool {
	changed := map[string]bool{}
	place := func(id string) *row {
		r := c.row(id)
		if at, there := slices.BinarySearch(c.order, id); !there && !r.present {
			c.insert(r, at)
		}
		r.candidate = nil
		changed[id] = true
		return r
	}
	for _, ref := range delta.Gone {
		if r := c.rows[ref.Rule]; ref.Key == nil && r != nil && r.present {
			r.present, r.rule, r.problems, r.candidate, r.trialProblems = false, nil, nil, nil, nil
			c.order = slices.DeleteFunc(c.order, func(id string) bool { return id == ref.Rule })
			changed[ref.Rule] = true
		}
	}
	for i := range delta.Rules {
		place(delta.Rules[i].ID).write(&delta.Rules[i])
	}
	for _, ref := range delta.Unread {
		if ref.Key == nil {
			r := place(ref.Rule)
			r.rule, r.problems = nil, nil
		}
	}
	c.doubled = slices.DeleteFunc(c.doubled, func(p Problem) bool { return changed[p.Rule] })
	_ = c.propose(delta.Candidates) // they are in doubled
	return changed
}

// changedNames are the names of overrides to compile, by rule.
type changedNames map[string]map[string]bool

func (n changedNames) add(rule, name string) {
	if n[rule] == nil {
		n[rule] = map[string]bool{}
	}
	n[rule][name] = true
}

// writeOverrides takes the overrides of a delta.
func (c *Compiler) writeOverrides(delta Delta) changedNames {
	changed := changedNames{}
	for _, ref := range delta.Gone {
		if r := c.rows[ref.Rule]; ref.Key != nil && r != nil && r.has(Key(ref.Key)) {
			delete(r.overrides, Key(ref.Key))
			changed.add(ref.Rule, Key(ref.Key))
		}
	}
	for i := range delta.Overrides {
		o := &delta.Overrides[i]
		c.row(o.Rule).overrides[Key(o.Key)] = c.keep(o)
		changed.add(o.Rule, Key(o.Key))
	}
	for _, ref := range delta.Unread {
		if ref.Key != nil {
			c.row(ref.Rule).overrides[Key(ref.Key)] = nil
			changed.add(ref.Rule, Key(ref.Key))
		}
	}
	return changed
}

// relink compiles the changed rules without their overrides and links all of them
// anew. Overrides that have no rule in force may have one now, or be told of another.
func (c *Compiler) relink(changed map[string]bool) {
	c.relinked = true
	for _, id := range c.order {
		if r := c.rows[id]; changed[id] {
			c.startRow(r)
		} else if last := c.last.Rule(id); last != nil {
			c.thawRow(r)
		}
	}
	c.link()
	for id, r := range c.rows {
		if r.live == nil && len(r.overrides) > 0 {
			changed[id] = true
		}
	}
}

// overridesOf compiles all overrides of a row that was just started.
func (c *Compiler) overridesOf(r *row) {
	if r.live == nil {
		r.bad, r.misfits = nil, nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.overrides)) {
		c.override(r, name)
	}
}

// patch compiles some overrides of a rule that did not change. Where overrides stand
// in each other's way their order decides: then all are compiled.
func (c *Compiler) patch(r *row, names map[string]bool) {
	c.thawRow(r)
	sorted := slices.Sorted(maps.Keys(names))
	if r.live != nil && !r.crowded {
		for _, name := range sorted {
			parts, _, _ := identity.Parts(name)
			s, err := r.live.now.spotOf(parts)
			for _, t := range r.targets() {
				if err == nil {
					t.drop(&s)
				}
			}
		}
	}
	for _, name := range sorted {
		if r.has(name) {
			c.override(r, name)
		} else {
			delete(r.bad, name)
			delete(r.misfits, name)
		}
	}
	if r.live != nil && r.crowded {
		c.startRow(r)
		c.overridesOf(r)
	}
}

// thawRow prepares a row in force for a change of a part of it.
func (c *Compiler) thawRow(r *row) {
	if r.live != nil {
		return
	}
	last := c.last.Rule(r.id)
	if last == nil || !r.present {
		return
	}
	r.live = c.thaw(last)
	if last.trial != nil {
		r.trial = c.thaw(last.trial.Rule)
	}
}

// untouched reports whether a row is in force and not in the making.
func (c *Compiler) untouched(r *row) bool {
	return r.live == nil && r.present && !c.relinked && c.last.Rule(r.id) != nil
}

// inForce returns the rule of a row as it will be, nil for none.
func (c *Compiler) inForce(r *row) *Compiled {
	switch {
	case r.live != nil:
		return r.live.now
	case c.untouched(r):
		return c.last.Rule(r.id)
	default:
		return nil
	}
}

// carry returns a rule that nothing changed of, with the numbers that overrides end
// in as the new snapshot has them.
func (c *Compiler) carry(last *Compiled) *Compiled {
	if last.ended == nil && (last.trial == nil || last.trial.Rule.ended == nil) {
		return last
	}
	next := *last
	next.endAs(c.revision)
	if last.trial != nil {
		trial, rule := *last.trial, *last.trial.Rule
		rule.endAs(c.revision)
		trial.Rule = &rule
		next.trial = &trial
	}
	return &next
}
