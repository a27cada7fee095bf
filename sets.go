package tallygate

import (
	"fmt"
	"strconv"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// Set is one of several groups of attributes of a request, each matched by itself.
// All sets of a check are decided together.
type Set struct {
	// Attributes are named facts, as in Check. Where no rule matches them, the set has
	// no entry in the verdict.
	Attributes map[string]string
	// Own is a rule of the caller's (see rules.Own) and the key it counts; where its
	// Rule is set it stands instead of the rules that the attributes match.
	Own rules.Bound
	// Cost is what the set spends on every rule of it, in tokens; 0 means 1. It may be
	// above a rule's max_cost: what is above the limit, or above 10^9, is denied.
	Cost int64
	// Look asks without spending; Cost is then 0.
	Look bool
	// Back gives the cost back instead, never above full and at most 10^9 at a time. It
	// is done whatever the other sets' verdict, and never denied.
	Back bool
}

// MaxSets is the largest number of sets of a check.
const MaxSets = 128

// matchSets finds the rules for each set, and the key of each.
func (s *scratch) matchSets(domain *rules.Domain, check *Check) error {
	switch {
	case check.Entries != nil || check.Attributes != nil:
		return badRequest("/sets", "a check has sets, or entries, or attributes")
	case check.Cost != 0 || check.Look:
		return badRequest("/cost", "with sets, each set has its own cost")
	case len(check.Sets) > MaxSets:
		return badRequest("/sets", "%d sets are more than %d", len(check.Sets), MaxSets)
	}
	// All sets are matched before any rule is bound to a key: a rule that another set's
	// supersedes must not fail for an identity that is not there.
	var ends [MaxSets]int // of each set's rules in s.matched
	for i := range check.Sets {
		set := &check.Sets[i]
		if err := set.validate(i); err != nil {
			return err
		}
		if set.Own.Rule == nil {
			s.matched = domain.Match(set.Attributes, s.matched)
		}
		ends[i] = len(s.matched)
	}
	if len(check.Sets) > 1 {
		rules.SupersedeAcross(s.matched, check.Alternatives)
	}
	from := 0
	for i := range check.Sets {
		if err := s.bindSet(i, &check.Sets[i], s.matched[from:ends[i]]); err != nil {
			return err
		}
		from = ends[i]
	}
	return nil
}

// validate says what is wrong with set i.
func (set *Set) validate(i int) error {
	switch {
	case set.Cost < 0:
		return &Error{Code: CodeInvalidCost, Field: setField(i), Message: fmt.Sprintf("cost %d is below 0; to give back, say Back", set.Cost)}
	case set.Look && (set.Cost > 0 || set.Back):
		return &Error{Code: CodeInvalidCost, Field: setField(i), Message: "a look spends nothing and gives nothing back"}
	case set.Own.Rule != nil && len(set.Own.Key) > rules.MaxKeyBytes:
		return &Error{
			Code: CodeTooLarge, Field: setField(i), Rule: set.Own.Rule.ID(),
			Message: fmt.Sprintf("a key of %d bytes is above %d", len(set.Own.Key), rules.MaxKeyBytes),
		}
	}
	return nil
}

// bindSet makes entries of the rules that set i has matched, or of its own.
func (s *scratch) bindSet(i int, set *Set, matched []*rules.Compiled) error {
	from := len(s.bound)
	if set.Own.Rule != nil {
		s.bound = append(s.bound, set.Own)
	} else {
		bound, err := rules.Resolve(set.Attributes, present(matched), s.bound)
		s.bound = bound
		if err != nil {
			return keyError(err, setField(i))
		}
	}
	if len(s.bound) > maxEntries {
		return badRequest("/sets", "%d rules match, more than %d", len(s.bound), maxEntries)
	}
	for _, b := range s.bound[from:] {
		s.entries = append(s.entries, set.entry(i, b))
	}
	return nil
}

// present moves the rules that [rules.SupersedeAcross] left to the front of their
// places, and returns these.
func present(matched []*rules.Compiled) []*rules.Compiled {
	n := 0
	for _, c := range matched {
		if c != nil {
			matched[n] = c
			n++
		}
	}
	return matched[:n]
}

// entry is the entry of set i for one of its rules.
func (set *Set) entry(i int, b rules.Bound) entry {
	cost := set.Cost
	if !set.Look {
		cost = max(cost, 1)
	}
	e := entry{rule: b.Rule, key: b.Key, set: i, whole: true, op: none}
	if set.Back {
		e.back = min(cost, limit.MaxCost)
	} else {
		e.cost = min(cost, limit.MaxCost+1) // which is denied, and sums of it do not wrap
	}
	return e
}

// exceeds reports whether entry i, which may be above max_cost, asks more than any op
// may, and denies it then: no bucket could be asked.
func (s *scratch) exceeds(i int, cost int64) bool {
	e := &s.entries[i]
	if !e.whole || cost <= limit.MaxCost {
		return false
	}
	e.reason = ReasonCostExceed
	s.refused = s.refused || !e.rule.Shadow()
	return true
}

// setField is the JSON pointer of set i.
func setField(i int) string { return "/sets/" + strconv.Itoa(i) }
