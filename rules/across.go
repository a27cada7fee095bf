package rules

import "slices"

// SupersedeAcross clears the rules of a list that another one supersedes, where the
// list is of several matches (see [Domain.Match]) that make one request: a rule does
// not apply to a request to which one that supersedes it applies. The other rules keep
// their places. It allocates only where some rule supersedes others.
//
// alternatives names an attribute, "" for none, whose value in a rule's match is the
// part of the request that the rule is for; each match is one form of a part, and has
// chosen among the rules for that part already. So rules with the same value do not
// supersede each other here, and a rule that one of another part supersedes supersedes
// others all the same: it was its match's choice.
func SupersedeAcross(matched []*Compiled, alternatives string) {
	var lifting []*Compiled // those that supersede others, once each
	for _, c := range matched {
		if c != nil && len(c.supersedes) > 0 && !slices.Contains(lifting, c) {
			lifting = append(lifting, c)
		}
	}
	slices.SortFunc(lifting, byRank) // so that each is known to apply before those it lifts
	for i, c := range lifting {
		if c == nil {
			continue
		}
		for j, other := range matched {
			if other != nil && c.lifts(other) && !c.isAlternative(other, alternatives) {
				matched[j] = nil
			}
		}
		if alternatives != "" {
			continue
		}
		for j, other := range lifting[i+1:] { // a superseded rule supersedes nothing
			if other != nil && c.lifts(other) {
				lifting[i+1+j] = nil
			}
		}
	}
}

// isAlternative reports whether the matches of two rules have the same value of an
// attribute.
func (c *Compiled) isAlternative(other *Compiled, attribute string) bool {
	value, ok := c.rule.Match[attribute]
	return ok && attribute != "" && other.rule.Match[attribute] == value
}
