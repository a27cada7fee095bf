package rules

import (
	"slices"
	"time"
)

// Met is a rule whose match holds for a request.
type Met struct {
	Rule *Compiled
	// SupersededBy is the rule because of which this one does not apply; nil where it
	// does.
	SupersededBy *Compiled
}

// Meet returns all rules whose match holds for a request with these attributes, in
// the order of the source: those that [Domain.Match] returns, and those that they
// supersede. It is for people, not for checks: it looks at every rule.
func (d *Domain) Meet(attrs map[string]string) []Met {
	var met []Met
	for _, c := range d.rules {
		if c.matches(attrs) {
			met = append(met, Met{Rule: c})
		}
	}
	// In this order each is known to apply before those that it supersedes.
	slices.SortFunc(met, func(a, b Met) int { return byRank(a.Rule, b.Rule) })
	for i := range met {
		if met[i].SupersededBy != nil {
			continue
		}
		for j := range met[i+1:] {
			if other := &met[i+1+j]; other.SupersededBy == nil && met[i].Rule.lifts(other.Rule) {
				other.SupersededBy = met[i].Rule
			}
		}
	}
	slices.SortFunc(met, func(a, b Met) int { return byOrdinal(a.Rule, b.Rule) })
	return met
}

// Override returns the override whose numbers are in force for an encoded key, nil
// for none.
func (c *Compiled) Override(key string, now time.Time) *Override {
	e := c.entry(key)
	if e.endMS <= now.UnixMilli() {
		return nil
	}
	return e.override.asWritten()
}
