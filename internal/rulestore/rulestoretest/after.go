package rulestoretest

import (
	"github.com/tallygate/tallygate/internal/rulestore"
)

// after returns the set that changes make of another, the slow way: what a reader who
// follows must have.
func after(s rulestore.Set, c rulestore.Changes) rulestore.Set {
	out := rulestore.Set{Revision: c.Revision}
	byID := map[string]rulestore.Rule{}
	for _, list := range [][]rulestore.Rule{s.Rules, c.Rules} {
		for _, r := range list {
			byID[r.ID] = r
		}
	}
	for _, r := range byID {
		if !r.Deleted {
			out.Rules = append(out.Rules, r)
		}
	}
	byName := map[rulestore.OverrideName]rulestore.Override{}
	for _, list := range [][]rulestore.Override{s.Overrides, c.Overrides} {
		for _, o := range list {
			byName[rulestore.OverrideName{Rule: o.Rule, ID: o.ID}] = o
		}
	}
	for _, o := range byName {
		if !o.Deleted {
			out.Overrides = append(out.Overrides, o)
		}
	}
	out.Sort()
	out.Hash = rulestore.Digest(out.Rules, out.Overrides)
	return out
}
