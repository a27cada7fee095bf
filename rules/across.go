package rules

import "slices"

// SupersedeAcross clears the rules that another of the list supersedes, where the
// list is of several matches (see [Domain.Match]) that make one request: a rule does
// not apply to a request to which one that supersedes it applies. The list keeps its
// places. It allocates only where some rule supersedes others.
//
// Rules whose match has the same value of the attribute alternatives choose among the
// forms of one part of a request: of those each match has decided already, and one of
// another part does not lift them. So with alternatives a rule that is superseded
// supersedes others all the same. "" is none.
func SupersedeAcross(matched []*Compiled, alternatives string) {
	var lifting []*Compiled
	for _, c := range matched {
		if c != nil && len(c.supersedes) > 0 && !slices.Contains(lifting, c) {
			lifting = append(lifting, c)
		}
	}
	slices.SortFunc(lifting, byRank) // those that lift others before those that are lifted
	for i, c := range lifting {
		if c == nil {
			continue
		}
		for j, other := range matched {
			if other != nil && c.lifts(other) && !c.alternative(other, alternatives) {
				matched[j] = nil
			}
		}
		if alternatives != "" {
			continue
		}
		for j, other := range lifting[i+1:] {
			if other != nil && c.lifts(other) {
				lifting[i+1+j] = nil
			}
		}
	}
}

// alternative reports whether two rules ask for the same value of an attribute.
func (c *Compiled) alternative(other *Compiled, attribute string) bool {
	value, ok := c.rule.Match[attribute]
	return ok && attribute != "" && other.rule.Match[attribute] == value
}
