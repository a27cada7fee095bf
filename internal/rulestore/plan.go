package rulestore

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/rules"
)

// Step is one change of a [Plan] and what it changes.
type Step struct {
	Change
	// Before and After are the bodies, nil for none.
	Before, After json.RawMessage
}

// Plan is how to get from what is in a store to what a file says.
type Plan struct {
	// Steps are in the order to apply them.
	Steps []Step
	// Extra are the rules and overrides that the file does not have and the plan
	// leaves.
	ExtraRules, ExtraOverrides int
}

// Changes returns the steps as [Writer] takes them.
func (p *Plan) Changes() []Change {
	out := make([]Change, len(p.Steps))
	for i := range p.Steps {
		out[i] = p.Steps[i].Change
	}
	return out
}

// Toward plans how to get from s to want, which has no faults: what is the same is
// left alone, and what want does not have is deleted with prune only. Each step
// checks the version that s has seen.
func (s *Set) Toward(want rules.Set, prune bool) (Plan, error) {
	var p Plan
	by := map[string][]string{}
	missing := map[string]Rule{}
	for _, r := range s.Rules {
		missing[r.ID], by[r.ID] = r, r.Identity()
	}
	for _, rule := range want.Rules {
		now := missing[rule.ID]
		delete(missing, rule.ID)
		by[rule.ID] = rule.Identity
		body, err := json.Marshal(rule)
		if err != nil {
			return Plan{}, err
		}
		p.put(Change{Action: ActionPut, Rule: rule.ID, IfMatch: now.Version, Body: body}, now.Live)
	}
	if !prune {
		p.ExtraRules = len(missing)
		clear(missing)
	}
	if err := p.overrides(s.Overrides, want.Overrides, by, missing, prune); err != nil {
		return Plan{}, err
	}
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		r := missing[id]
		p.Steps = append(p.Steps, Step{Change: Change{Action: ActionDelete, Rule: id, IfMatch: r.Version}, Before: r.Live})
	}
	return p, nil
}

// put adds a step unless the body is there already.
func (p *Plan) put(c Change, now json.RawMessage) {
	if !bytes.Equal(c.Body, now) {
		p.Steps = append(p.Steps, Step{Change: c, Before: now, After: c.Body})
	}
}

// overrides adds those of the overrides. Those of rules that go anyway go with them.
func (p *Plan) overrides(now []Override, want []rules.Override, by map[string][]string, going map[string]Rule, prune bool) error {
	missing := map[OverrideName]Override{}
	for _, o := range now {
		if _, goes := going[o.Rule]; !goes {
			missing[OverrideName{o.Rule, o.ID}] = o
		}
	}
	for _, o := range want {
		name := OverrideName{o.Rule, KeyID(by[o.Rule], o.Key)}
		was := missing[name]
		delete(missing, name)
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		p.put(Change{Action: ActionOverride, Rule: o.Rule, Key: o.Key, IfMatch: was.Version, Body: body}, was.Body)
	}
	if !prune {
		p.ExtraOverrides = len(missing)
		return nil
	}
	for _, o := range now { // in the order of the set
		if _, goes := missing[OverrideName{o.Rule, o.ID}]; goes {
			p.Steps = append(p.Steps, Step{Change: Change{Action: ActionLift, Rule: o.Rule, Key: o.Key, IfMatch: o.Version}, Before: o.Body})
		}
	}
	return nil
}
