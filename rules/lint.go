package rules

import "time"

// Lint returns every fault and warning of a set: those of [Compile], and what
// works as written and is most likely not meant: overrides that have ended and
// rules that never apply.
func Lint(set Set, now time.Time) Problems {
	s, problems := Compile(nil, set, 1, now)
	for _, o := range set.Overrides {
		if s.Rule(o.Rule) != nil && !o.ExpiresAt.IsZero() && !o.ExpiresAt.After(now) {
			rep := report{rule: clip(o.Rule), at: o.At}
			rep.warn("expires_at", o.ExpiresAt.Format(time.RFC3339), "the override ended at "+o.ExpiresAt.Format(time.RFC3339), "remove it")
			problems = append(problems, rep.out...)
		}
	}
	superseded := map[int]bool{}
	for _, c := range s.rules {
		for _, target := range c.supersedes {
			superseded[target] = superseded[target] || c.lifts(s.rules[target])
		}
	}
	for _, c := range s.rules {
		if superseded[c.ordinal] {
			continue // it may not apply itself
		}
		for _, target := range c.supersedes {
			if other := s.rules[target]; c.lifts(other) && c.coversAllOf(other) {
				rep := report{rule: other.rule.ID, at: other.rule.At}
				rep.warn("", "", "never applies: rule "+quote(c.rule.ID)+" supersedes it and matches wherever it does",
					"narrow that rule or remove this one")
				problems = append(problems, rep.out...)
			}
		}
	}
	return problems
}

// coversAllOf reports whether every request that narrow matches, c matches too.
// It may say no where the answer is yes, never the other way round.
func (c *Compiled) coversAllOf(narrow *Compiled) bool {
	for _, wide := range c.conditions {
		covered := false
		for _, cond := range narrow.conditions {
			if cond.attr == wide.attr {
				// A * that stands for itself is matched by the star of the other.
				covered = cond.text == wide.text || cond.exact() && wide.matches(cond.text) || onlyStars(wide.text)
			}
		}
		if !covered {
			return false
		}
	}
	return true
}
