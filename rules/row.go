package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
)

// checked is a rule without faults and its numbers, which have no revision yet.
type checked struct {
	Rule
	limits *limit.Limit
}

func (r *row) targets() []*target {
	switch {
	case r.live == nil:
		return nil
	case r.trial == nil:
		return []*target{r.live}
	default:
		return []*target{r.live, r.trial}
	}
}

// startRow compiles the rule of a row, or its last good version, and its candidate,
// without overrides.
func (c *Compiler) startRow(r *row) {
	was := r.live
	r.live, r.trial, r.crowded, r.bad, r.misfits = nil, nil, false, nil, nil
	rule, last := r.rule, c.last.Rule(r.id)
	if rule == nil && last != nil {
		_, lim := last.rule.check()
		rule = &checked{last.rule, lim}
	}
	if !r.present || rule == nil {
		return
	}
	r.live = c.start(*rule, r.id, last)
	if was != nil {
		r.live.now.linkAs(was.now)
	}
	c.startTrial(r, last)
}

// start compiles a rule after the version of it that was in force, nil for none.
func (c *Compiler) start(r checked, bucketRule string, last *Compiled) *target {
	rule := &Compiled{rule: r.Rule, bucketRule: bucketRule}
	rule.compileConditions()
	rule.compileClosedAllow()
	rule.base = entry{maxCost: r.maxCost(), endMS: never}
	t := &target{run: &c.run, now: rule, before: before(last, rule), whole: true}
	if r.limits != nil {
		var was entry
		if t.before != nil {
			was = t.before.base
		}
		lim := *r.limits // the row may be compiled again
		rule.base.lim, rule.base.slowMS = c.follow(was.lim, was.slowMS, &lim, 2*c.revision)
	}
	return t
}

// before returns the version of a rule that was in force if it had the same buckets.
func before(last, rule *Compiled) *Compiled {
	if last == nil || last.Domain() != rule.Domain() || last.base.lim == nil || rule.Action() != ActionLimit {
		return nil
	}
	return last
}

// follow gives next, just compiled, its place after the limit that was in force
// for the same bucket: last itself where nothing changed.
func (c *run) follow(last *limit.Limit, slowMS int64, next *limit.Limit, revision int64) (*limit.Limit, int64) {
	if last == nil {
		next.Revision = revision
		return next, 0
	}
	if last.Same(next) {
		return last, slowMS
	}
	next.Revision = revision
	return next, max(slowMS, slowUntil(last, next, c.nowMS))
}

// again returns the same numbers as changed by this compilation. Those of an override
// that it found ended are above that already.
func (c *run) again(lim *limit.Limit) *limit.Limit {
	next := *lim
	next.Revision = max(2*c.revision, lim.Revision)
	return &next
}

// slowUntil returns until when a bucket that is missing since a change of its
// numbers may not be a full one; 0 if they did not get slower. A bucket nobody
// asked for since expired by its old numbers, at the latest when these would have
// filled it.
func slowUntil(last, next *limit.Limit, sinceMS int64) int64 {
	if !slower(last, next) {
		return 0
	}
	return sinceMS + min(timeToFullMS(last), timeToFullMS(next), slowStart.Milliseconds())
}

// override compiles what is written under a name, or keeps the last good version of
// it where that has faults, and notes the faults.
func (c *Compiler) override(r *row, name string) {
	delete(r.bad, name)
	delete(r.misfits, name)
	o := r.overrides[name]
	if r.live == nil {
		r.note(name, c.noRule(r, o.asWritten()))
		return
	}
	if r.live.now.Action() != ActionLimit {
		if o := o.asWritten(); o != nil {
			rep := report{rule: clip(r.id), at: o.At, out: o.Validate()}
			rep.add("rule", r.id, "action "+string(r.live.now.Action())+" counts nothing", "remove the override")
			r.note(name, rep.out)
		}
		return
	}
	var problems Problems
	var lim *limit.Limit
	if o == nil {
		parts, _, _ := identity.Parts(name)
		if s, err := r.live.now.spotOf(parts); err == nil && !r.live.has(&s) {
			o, lim = r.live.kept(&s)
		}
	} else if o, lim, problems = c.fit(r, o); o == nil {
		r.note(name, problems)
		return
	}
	r.note(name, problems)
	if lim == nil {
		return
	}
	s, _ := r.live.now.spotOf(o.key) // it has been read
	r.live.put(&s, o, lim)
	if e := r.live.at(&s); e.endMS != never {
		c.ends.add(end{e.endMS, r.id, name})
	}
	if r.trial != nil {
		if lim, problems := r.trial.now.fits(o.asWritten()); len(problems) == 0 {
			r.trial.put(&s, o, lim)
		} else {
			if r.misfits == nil {
				r.misfits = map[string]bool{}
			}
			r.misfits[name] = true
		}
	}
}

// fit returns the override and its limit, or the last good version of it and what is
// wrong with this one; nil where there is none.
func (c *Compiler) fit(r *row, w *written) (*written, *limit.Limit, Problems) {
	rule, o := r.live.now, w.asWritten()
	lim, problems := rule.fits(o)
	s, err := rule.spotOf(o.Key)
	if err != nil {
		return nil, nil, problems
	}
	switch {
	case r.live.has(&s):
		r.crowded = true
		return nil, nil, r.taken(o)
	case s.pattern() && r.live.patternCount() >= MaxPatterns:
		r.crowded = true
		rep := report{rule: clip(r.id), at: o.At, out: problems}
		rep.add("key", o.Key[0], "the rule has "+num(MaxPatterns)+" patterns before this one", "remove some, or use another rule")
		return nil, nil, rep.out
	case len(problems) > 0:
		w, lim = r.live.kept(&s)
	}
	return w, lim, problems
}

func (r *row) note(name string, problems Problems) {
	if len(problems) == 0 {
		return
	}
	if r.bad == nil {
		r.bad = map[string]Problems{}
	}
	r.bad[name] = problems
}

// FaultsOf returns what is wrong with an override of this rule, by itself: nothing
// is said of other overrides.
func (r *Rule) FaultsOf(o *Override) Problems {
	rule := Compiled{rule: *r}
	_, problems := rule.fits(o)
	return problems
}

// fits checks an override against its rule and returns its limit if it has no faults.
func (c *Compiled) fits(o *Override) (*limit.Limit, Problems) {
	rep := report{rule: clip(o.Rule), at: o.At, out: o.Validate()}
	if c.Action() != ActionLimit {
		rep.add("rule", o.Rule, "action "+string(c.Action())+" counts nothing", "remove the override")
		return nil, rep.out
	}
	if _, err := c.spotOf(o.Key); err != nil && len(rep.out) == 0 {
		rep.badKey(o, err)
	}
	if len(rep.out) > 0 {
		return nil, rep.out
	}
	lim := rep.numbers(c.rule.Algorithm, c.rule.over(o.Numbers))
	return lim, rep.out
}

// noRule says why an override's rule is not there.
func (c *Compiler) noRule(r *row, o *Override) Problems {
	if o == nil {
		return nil
	}
	rep := report{rule: clip(r.id), at: o.At, out: o.Validate()}
	switch {
	case len(rep.out) > 0:
	case r.present:
		rep.add("rule", r.id, "rule "+quote(r.id)+" has faults and is not in force", "mend the rule")
	default:
		fix := "add the rule or remove the override"
		if near := c.nearestRule(r.id); near != "" {
			fix = "did you mean " + quote(near) + "?"
		}
		rep.add("rule", r.id, "there is no rule "+quote(r.id), fix)
	}
	return rep.out
}

func (rep *report) badKey(o *Override, err error) {
	message, fix := err.Error(), "write the key as the rule's identity has it"
	if keyErr, ok := err.(*KeyError); ok { //nolint:errorlint // nothing wraps it
		message = keyErr.Message
		if keyErr.Attribute == attrIP {
			fix = "name one address, or for a rule that counts by ip alone a network"
		}
	}
	rep.add("key", o.Key[0], message, fix)
}

// nearestRule returns the id in force that a misspelt one most likely stands for. It
// is asked once an id: there may be many overrides of it.
func (c *Compiler) nearestRule(id string) string {
	near, known := c.near[id]
	if !known {
		near = nearest(id, c.idsInForce())
		if c.near == nil {
			c.near = map[string]string{}
		}
		c.near[id] = near
	}
	return near
}

func (c *Compiler) idsInForce() []string {
	var ids []string
	for _, id := range c.order {
		if c.rows[id].live != nil || c.untouched(c.rows[id]) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// trialFaults are the candidate's own problems, and which overrides it cannot have.
func (r *row) trialFaults() Problems {
	problems := slices.DeleteFunc(r.trialProblems, func(p Problem) bool { return p.Field == fieldOverrides })
	if len(r.misfits) == 0 {
		return problems
	}
	names := slices.Sorted(maps.Keys(r.misfits))
	var shown []string
	for _, name := range names[:min(3, len(names))] {
		parts, _, _ := identity.Parts(name)
		shown = append(shown, quote(strings.Join(parts, ", ")))
	}
	rep := report{rule: clip(r.id), at: r.candidate.Rule.At}
	rep.warn(fieldOverrides, "", num(len(names))+" overrides of the rule do not fit the candidate, whose own numbers hold there: "+strings.Join(shown, ", "),
		"change them or the candidate")
	return append(problems, rep.out...)
}

const fieldOverrides = "candidate.overrides"
