package rules

import (
	"maps"
	"slices"
	"strings"
)

// bucketSuffix makes the name of a candidate's buckets of its rule's: ids have no ~.
const bucketSuffix = "~candidate"

// CandidateOf returns the id of the rule whose candidate counts in buckets of this name;
// false where the name is none of a candidate's.
func CandidateOf(bucketRule string) (id string, ok bool) {
	return strings.CutSuffix(bucketRule, bucketSuffix)
}

// FaultsOfCandidate returns why a rule cannot be the candidate of r, the live one,
// beside its own faults: it must match and count the same requests by the same keys,
// or what the two would deny could not be compared.
func (r *Rule) FaultsOfCandidate(candidate *Rule) Problems {
	const fix = "a rule that matches or counts otherwise is another rule: give it its own id and mode shadow"
	rep := report{rule: clip(r.ID), at: candidate.At}
	differs := func(field, message string) { rep.add(field, "", message, fix) }
	if candidate.ID != r.ID {
		differs("id", "the candidate has id "+quote(candidate.ID)+", not "+quote(r.ID))
	}
	if candidate.domain() != r.domain() {
		differs("domain", "the candidate is in domain "+quote(candidate.domain())+", the live rule in "+quote(r.domain()))
	}
	if !maps.Equal(candidate.Match, r.Match) {
		differs("match", "is not that of the live rule")
	}
	if !slices.Equal(candidate.Identity, r.Identity) {
		differs("identity", "is not that of the live rule")
	}
	if r.action() != ActionLimit {
		differs("action", "the live rule has action "+string(r.action())+", which counts nothing to compare with")
	} else if candidate.action() != ActionLimit {
		differs("action", "the candidate has action "+string(candidate.action())+", which counts nothing to compare with")
	}
	return rep.out
}

// propose takes the candidates of a set, and returns the problems of those that are
// of no rule or of one that has one.
func (c *Compiler) propose(candidates []Candidate) Problems {
	var problems Problems
	for i := range candidates {
		next := &candidates[i]
		row := c.rows[next.Rule.ID]
		rep := report{rule: clip(next.Rule.ID), at: next.Rule.At}
		switch {
		case row == nil || !row.present:
			rep.add("id", next.Rule.ID, "there is no rule "+quote(next.Rule.ID)+" that it could be a candidate of", "add the rule or drop the candidate")
		case row.candidate != nil:
			rep.add("id", next.Rule.ID, "the rule has a candidate before this one", "keep one")
		default:
			row.candidate = &Candidate{Rule: next.Rule.clone(), Stage: next.Stage, Percent: next.Percent, SinceMS: next.SinceMS}
			continue
		}
		problems = append(problems, rep.out...)
	}
	c.doubled = append(c.doubled, problems...)
	return problems
}

// startTrial compiles the candidate of a row whose rule is in force, after the one
// that was on trial before.
func (c *Compiler) startTrial(r *row, last *Compiled) {
	r.trialProblems = nil
	if r.candidate == nil {
		return
	}
	problems, lim := r.candidate.Rule.check()
	problems = append(problems.Faults(), r.candidate.faults(&r.live.now.rule)...)
	for i := range problems {
		if field := &problems[i].Field; *field == "" {
			*field = "candidate"
		} else {
			*field = "candidate." + *field
		}
	}
	r.trialProblems = problems
	if len(problems) > 0 {
		return
	}
	var before *Compiled
	if last != nil && last.trial != nil {
		before = last.trial.Rule
	}
	r.trial = c.start(checked{r.candidate.Rule, lim}, r.id+bucketSuffix, before)
	r.trial.now.rule.Mode = ModeEnforce // its stage says who enforces it
}

// faults returns why the candidate cannot stand beside a live rule.
func (k *Candidate) faults(live *Rule) Problems {
	rep := report{rule: clip(live.ID), at: k.Rule.At, out: live.FaultsOfCandidate(&k.Rule)}
	switch k.Stage {
	case StageShadow:
	case StageCanary:
		if k.Percent < 1 || k.Percent > 100 {
			rep.add("percent", num(k.Percent), num(k.Percent)+" is not from 1 to 100", "change it")
		}
	default:
		rep.add("stage", string(k.Stage), quote(string(k.Stage))+" is none of shadow, canary", "use one of these")
	}
	return rep.out
}

// reset gives keys their numbers anew, of the live rules and of their candidates. A
// key without a rule goes to all rules that it can be a key of.
func (c *Compiler) reset(refs []Ref) Problems {
	var problems Problems
	for _, ref := range refs {
		if ref.Rule == "" {
			for _, id := range c.order {
				_ = c.resetKey(c.rows[id], ref.Key) // of this rule it may be no key
			}
			continue
		}
		row := c.rows[ref.Rule]
		if row == nil || !row.present {
			continue // gone since
		}
		if err := c.resetKey(row, ref.Key); err != nil {
			rep := report{rule: clip(ref.Rule)}
			rep.warn("reset", firstOf(ref.Key), err.Error(), "reset a key of the rule")
			problems = append(problems, rep.out...)
		}
	}
	return problems
}

func (c *Compiler) resetKey(r *row, parts []string) error {
	rule := c.inForce(r)
	if rule == nil || rule.Action() != ActionLimit {
		return nil
	}
	key, err := rule.KeyOf(parts)
	if err != nil {
		return err
	}
	c.thawRow(r)
	for _, t := range r.targets() {
		t.reset(key)
	}
	return nil
}
