package rulestore

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tallygate/tallygate/rules"
)

// Live returns the set that pods enforce: live rules and overrides, and the candidates
// beside them. A row that cannot be read is skipped alone, named in the problems and
// listed in Unread, so that its last good version stays in force; a candidate that
// cannot be read is skipped and named.
func (s *Set) Live() (rules.Set, rules.Problems) {
	delta, problems := readRows(s.Rules, s.Overrides)
	return rules.Set{Rules: delta.Rules, Candidates: delta.Candidates, Overrides: delta.Overrides, Unread: delta.Unread}, problems.list()
}

// rowProblems are what is wrong with rows, by their names; a rule's has no ID.
type rowProblems map[OverrideName]rules.Problems

func (p rowProblems) list() rules.Problems {
	var out rules.Problems
	names := make([]OverrideName, 0, len(p))
	for name := range p {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b OverrideName) int { return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID)) })
	for _, name := range names {
		out = append(out, p[name]...)
	}
	return out
}

// readRows reads rows that exist.
func readRows(list []Rule, overrides []Override) (rules.Delta, rowProblems) {
	out := rules.Delta{Rules: make([]rules.Rule, 0, len(list)), Overrides: make([]rules.Override, 0, len(overrides))}
	problems := rowProblems{}
	for i := range list {
		row := &list[i]
		name := OverrideName{Rule: row.ID}
		if rule, faults := parseRule(row.ID, row.Live); len(faults) == 0 {
			out.Rules = append(out.Rules, rule)
		} else {
			problems[name] = named(faults, row.ID, "body")
			out.Unread = append(out.Unread, rules.Ref{Rule: row.ID})
		}
		if row.Candidate.Body == nil {
			continue
		}
		if rule, faults := parseRule(row.ID, row.Candidate.Body); len(faults) == 0 {
			candidate := rules.Candidate{Rule: rule, Stage: rules.Stage(row.Candidate.Stage), Percent: row.Candidate.Percent}
			if !row.Candidate.Since.IsZero() {
				candidate.SinceMS = row.Candidate.Since.UnixMilli()
			}
			out.Candidates = append(out.Candidates, candidate)
		} else {
			for j := range faults {
				faults[j].Field = "candidate." + cmp.Or(faults[j].Field, "body")
			}
			problems[name] = append(problems[name], named(faults, row.ID, "")...)
		}
	}
	for i := range overrides {
		row := &overrides[i]
		o, faults := rules.ParseOverride(row.Body)
		if len(faults) == 0 && (o.Rule != row.Rule || !slices.Equal(o.Key, row.Key)) {
			faults = rules.Problems{{Field: "key", Message: "the body in the database is of another rule or key", Fix: "put the override again"}}
		}
		if len(faults) == 0 {
			out.Overrides = append(out.Overrides, o)
			continue
		}
		problems[OverrideName{row.Rule, row.ID}] = named(faults, row.Rule, "override "+row.ID)
		if len(row.Key) > 0 {
			out.Unread = append(out.Unread, rules.Ref{Rule: row.Rule, Key: row.Key})
		}
	}
	return out, problems
}

// parseRule reads the body of a row.
func parseRule(id string, body []byte) (rules.Rule, rules.Problems) {
	rule, faults := rules.ParseRule(body)
	if len(faults) == 0 && rule.ID != id {
		faults = rules.Problems{{Field: "id", Value: rule.ID, Message: "the body in the database is of rule " + strconv.Quote(rule.ID), Fix: "put the rule again"}}
	}
	return rule, faults
}

// named gives faults the row they are of.
func named(faults rules.Problems, rule, field string) rules.Problems {
	for i := range faults {
		faults[i].Rule = rule
		if faults[i].Field == "" {
			faults[i].Field = field
		}
	}
	return faults
}

// Sort puts a set into its order, which no database's collation changes.
func (s *Set) Sort() {
	slices.SortFunc(s.Rules, func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Overrides, func(a, b Override) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID))
	})
}
