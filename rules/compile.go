package rules

import (
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/limit"
)

// Compile checks a set and makes the snapshot that follows prev (nil for none).
// It never fails as a whole: a faulty rule or override is named in the problems
// and skipped alone, and where prev has a good version of it, that one stays in
// force; a faulty candidate is skipped. A revision not above prev's becomes prev's + 1.
//
// Limits keep their revision, and their pointer, while their numbers are the
// same. Changed numbers of a rule, a key or a pattern have 2 × the new snapshot's
// revision; those that return when an override ends by time have 2 × the revision of
// the snapshot that was in force then, + 1. So the revisions of one bucket only
// grow, also over a removed override of a key, which the snapshot remembers until the
// rule's own numbers change, and over a removed pattern, with which the rule itself
// and the patterns that come after it get the new revision.
//
// A reset gives its key the same numbers with the new revision, in another pointer.
//
// now decides which overrides have ended, and since when numbers are slower.
// Compile keeps nothing of set.
func Compile(prev *Snapshot, set Set, revision int64, now time.Time) (*Snapshot, Problems) {
	return NewCompiler(prev).Whole(set, revision, now)
}

// Compiler makes each snapshot from the one before it and what changed. It keeps what
// was written, good or not, so that a change costs what it touches: a shallow copy of
// each rule at most, the changed overrides, and all overrides of a changed rule. It
// is not safe for concurrent use; the snapshots are.
//
//	Whole or Change ─► rows (what is written) ─► targets (what is in force) ─► Snapshot
type Compiler struct {
	last *Snapshot
	rows map[string]*row // by the rule's id
	// order are the ids of the rules there are, in the order of the source.
	order []string
	ends  ends
	// doubled are the problems of what was given twice, linked those of supersedes.
	doubled, linked Problems
	run
}

// run is what holds for one compilation.
type run struct {
	revision int64 // of the snapshot in the making
	nowMS    int64
	// relinked says that rules changed, so that all of them are copied.
	relinked bool
	// near are the ids that unknown ones most likely stand for.
	near map[string]string
	// terms and limits are those made so far: overrides that say the same share them.
	terms  map[terms]*terms
	limits map[limit.Limit]*limit.Limit
}

// row is what is written under one id: a rule, its candidate, its overrides.
type row struct {
	id string
	// present says that there is such a rule, if an unreadable one.
	present  bool
	at       Position
	rule     *checked // nil if it has faults
	problems Problems

	candidate *Candidate
	// trialProblems are those of the candidate.
	trialProblems Problems

	// overrides are by Key of the values as written; nil is one that cannot be read.
	overrides map[string]*written
	bad       map[string]Problems
	// misfits are the overrides that the candidate cannot have.
	misfits map[string]bool
	// crowded says that overrides stand in each other's way, so that their order
	// matters: two of one key, or too many patterns.
	crowded bool

	// live and trial are what this row is compiled to, in the making.
	live, trial *target
}

// NewCompiler returns a compiler whose first snapshot follows prev; nil for none. It
// knows nothing of what prev was made from: begin with Whole.
func NewCompiler(prev *Snapshot) *Compiler {
	if prev == nil {
		prev = newSnapshot(0, nil)
	}
	return &Compiler{last: prev, rows: map[string]*row{}}
}

func (c *Compiler) begin(revision int64, now time.Time) {
	c.run = run{
		revision: max(revision, c.last.revision+1), nowMS: now.UnixMilli(),
		terms: map[terms]*terms{}, limits: map[limit.Limit]*limit.Limit{},
	}
}

// Whole is [Compile] after the last snapshot.
func (c *Compiler) Whole(set Set, revision int64, now time.Time) (*Snapshot, Problems) {
	c.begin(revision, now)
	c.relinked = true
	c.rows, c.order, c.ends, c.doubled = map[string]*row{}, nil, ends{}, nil
	var problems Problems
	for i := range set.Rules {
		problems = append(problems, c.write(&set.Rules[i])...)
	}
	inOrder := slices.IsSorted(c.order) // as a database's are, and then the unread ones' too
	for _, ref := range set.Unread {
		if ref.Key != nil || c.row(ref.Rule).present {
			continue
		}
		at := len(c.order)
		if inOrder {
			at, _ = slices.BinarySearch(c.order, ref.Rule)
		}
		c.insert(c.row(ref.Rule), at)
	}
	problems = append(problems, c.propose(set.Candidates)...)
	for _, id := range c.order {
		c.startRow(c.rows[id])
	}
	c.link()
	problems = append(problems, c.linked...)
	for i := range set.Overrides {
		problems = append(problems, c.writeOverride(&set.Overrides[i])...)
	}
	for _, ref := range set.Unread {
		if row := c.row(ref.Rule); ref.Key != nil && !row.has(Key(ref.Key)) {
			row.overrides[Key(ref.Key)] = nil
			c.override(row, Key(ref.Key))
		}
	}
	snapshot, more := c.finish(set.Resets)
	c.ends.kept = len(c.ends.heap)
	problems = append(problems, more...)
	for _, id := range c.order {
		problems = append(problems, c.rows[id].trialProblems...)
	}
	return snapshot, problems
}

// row returns the row of an id, a new one if there is none.
func (c *Compiler) row(id string) *row {
	r := c.rows[id]
	if r == nil {
		r = &row{id: id, overrides: map[string]*written{}}
		c.rows[id] = r
	}
	return r
}

func (r *row) has(name string) bool {
	_, has := r.overrides[name]
	return has
}

// insert gives a row its place among the rules.
func (c *Compiler) insert(r *row, at int) {
	r.present = true
	c.order = slices.Insert(c.order, at, r.id)
}

// write takes a rule as written, unless there is one of its id.
func (c *Compiler) write(r *Rule) Problems {
	if row := c.rows[r.ID]; r.ID != "" && row != nil && row.present {
		rep := report{rule: r.ID, at: r.At}
		rep.add("id", r.ID, quote(r.ID)+" is taken by a rule before it", "rename this one")
		c.doubled = append(c.doubled, rep.out...)
		return rep.out
	}
	row := c.row(r.ID)
	if !row.present {
		c.insert(row, len(c.order))
	}
	row.write(r)
	return row.problems
}

func (r *row) write(rule *Rule) {
	problems, lim := rule.check()
	r.rule, r.problems, r.at = nil, problems, rule.At
	if len(problems.Faults()) == 0 {
		r.rule = &checked{rule.clone(), lim}
	}
}

// writeOverride takes an override as written, unless its rule has it before.
func (c *Compiler) writeOverride(o *Override) Problems {
	row, name := c.row(o.Rule), Key(o.Key)
	if len(o.Key) > 0 && row.has(name) {
		problems := row.taken(o)
		c.doubled = append(c.doubled, problems...)
		return problems
	}
	row.overrides[name] = c.keep(o)
	c.override(row, name)
	return row.bad[name]
}

func (r *row) taken(o *Override) Problems {
	rep := report{rule: o.Rule, at: o.At}
	rep.add("key", firstOf(o.Key), "the rule has an override of this key before it", "keep one")
	return rep.out
}

// finish ends a compilation: it makes what was compiled the last snapshot, and
// returns the problems of resets.
func (c *Compiler) finish(resets []Ref) (*Snapshot, Problems) {
	for _, r := range c.rows {
		for _, t := range r.targets() {
			t.settle()
		}
	}
	problems := c.reset(resets)
	rules := make([]*Compiled, 0, len(c.order))
	for _, id := range c.order {
		if rule := c.publish(c.rows[id]); rule != nil {
			rules = append(rules, rule)
		}
	}
	for id, r := range c.rows {
		r.live, r.trial = nil, nil
		if !r.present && len(r.overrides) == 0 {
			delete(c.rows, id)
		}
	}
	c.near, c.terms, c.limits = nil, nil, nil
	if c.relinked {
		c.last = newSnapshot(c.revision, rules)
	} else {
		c.last = c.last.with(c.revision, rules)
	}
	return c.last, problems
}

// publish returns the rule that a row has in the new snapshot, nil for none.
func (c *Compiler) publish(r *row) *Compiled {
	if r.live == nil {
		if c.untouched(r) {
			return c.carry(c.last.Rule(r.id))
		}
		return nil
	}
	rule := r.live.publish()
	rule.trial = nil
	if r.trial != nil {
		rule.trial = &Trial{Rule: r.trial.publish(), Stage: r.candidate.Stage, Percent: r.candidate.Percent, SinceMS: r.candidate.SinceMS}
		r.trialProblems = r.trialFaults()
	}
	return rule
}

// problems returns what is wrong with all that is written.
func (c *Compiler) problems() Problems {
	out := slices.Clone(c.doubled)
	for _, id := range c.order {
		out = append(out, c.rows[id].problems...)
	}
	out = append(out, c.linked...)
	var bad []string
	for id, r := range c.rows {
		if len(r.bad) > 0 {
			bad = append(bad, id)
		}
	}
	slices.Sort(bad)
	for _, id := range bad {
		for _, name := range slices.Sorted(maps.Keys(c.rows[id].bad)) {
			out = append(out, c.rows[id].bad[name]...)
		}
	}
	for _, id := range c.order {
		out = append(out, c.rows[id].trialProblems...)
	}
	return out
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

func firstOf(key []string) string {
	if len(key) == 0 {
		return ""
	}
	return key[0]
}
