package rules

import "slices"

// SupersedeAcross clears the rules that another of the list supersedes, where the
// list is of several matches (see [Domain.Match]) that make one request: a rule does
// not apply to a request to which one that supersedes it applies. The list keeps its
// places. It allocates only where some rule supersedes others.
func SupersedeAcross(matched []*Compiled) {
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
			if other != nil && c.lifts(other) {
				matched[j] = nil
			}
		}
		for j, other := range lifting[i+1:] {
			if other != nil && c.lifts(other) {
				lifting[i+1+j] = nil
			}
		}
	}
}
