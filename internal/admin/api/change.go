package api

import (
	"encoding/json"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Change is one change of a bulk; see [rulestore.Change].
type Change struct {
	Action rulestore.Action `json:"action" enum:"put,propose,canary,promote,rollback,shadow,enforce,delete,override,lift,reset"`
	Rule   string           `json:"rule,omitempty"`
	Key    Key              `json:"key,omitempty"`
	// IfMatch is a pointer: a change that does not say what it has seen is refused.
	IfMatch *int64          `json:"if_match,omitempty" doc:"the version that the caller has seen, 0 for none; required but for reset"`
	Body    json.RawMessage `json:"body,omitempty"`
	Percent int             `json:"percent,omitempty" minimum:"0" maximum:"100"`
}

// Apply is a bulk of changes: all or none.
type Apply struct {
	Changes []Change `json:"changes" minItems:"1" maxItems:"200000" nullable:"false"`
	DryRun  bool     `json:"dry_run,omitempty"`
}

// Applied is what a bulk did; see [rulestore.Applied].
type Applied struct {
	Revision int64    `json:"revision" doc:"0 for a dry run"`
	Results  []Result `json:"results"`
}

// Result is what one change did.
type Result struct {
	Version  int64           `json:"version"`
	Rule     *Rule           `json:"rule,omitempty"`
	Override *Override       `json:"override,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"`
	After    json.RawMessage `json:"after,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
}

// Percent is the body of a canary.
type Percent struct {
	Percent *int `json:"percent" minimum:"0" maximum:"100" nullable:"false"`
}

// Force is the body of a promotion; it may be left out.
type Force struct {
	Force bool `json:"force,omitempty" doc:"promote what has not proven itself"`
}

// Overrides is a bulk of overrides: all or none.
type Overrides struct {
	Overrides []json.RawMessage `json:"overrides" minItems:"1" maxItems:"200000" nullable:"false" doc:"overrides, each with if_match: the version that the caller has seen; absent or 0 means that there must be none"`
}

// OverridesApplied is what a bulk of overrides did.
type OverridesApplied struct {
	Revision int64            `json:"revision" doc:"0 for a dry run"`
	Results  []OverrideResult `json:"results"`
}

// OverrideResult is the new version of one of them.
type OverrideResult struct {
	Rule    string `json:"rule"`
	Key     Key    `json:"key"`
	Version int64  `json:"version"`
}

// OfChange writes a change.
func OfChange(c rulestore.Change) Change {
	out := Change{Action: c.Action, Rule: c.Rule, Key: c.Key, Body: c.Body, Percent: c.Percent}
	if c.Action != rulestore.ActionReset {
		out.IfMatch = &c.IfMatch
	}
	return out
}

// Record returns the change; IfMatch is 0 where there is none.
func (c *Change) Record() rulestore.Change {
	out := rulestore.Change{Action: c.Action, Rule: c.Rule, Key: c.Key, Body: c.Body, Percent: c.Percent}
	if c.IfMatch != nil {
		out.IfMatch = *c.IfMatch
	}
	return out
}

// OfApplied writes what a bulk did.
func OfApplied(a rulestore.Applied) Applied {
	out := Applied{Revision: a.Revision, Results: make([]Result, len(a.Results))}
	for i, r := range a.Results {
		to := &out.Results[i]
		*to = Result{Version: r.Version, Before: shown(r.Before), After: shown(r.After), Warnings: r.Warnings}
		if r.Rule.ID != "" {
			rule := OfRule(r.Rule)
			to.Rule = &rule
		}
		if r.Override.Rule != "" {
			o := OfOverride(r.Override)
			to.Override = &o
		}
	}
	return out
}

// Record returns what the bulk did.
func (a *Applied) Record() rulestore.Applied {
	out := rulestore.Applied{Revision: a.Revision, Results: make([]rulestore.Result, len(a.Results))}
	for i, r := range a.Results {
		to := &out.Results[i]
		*to = rulestore.Result{Version: r.Version, Before: r.Before, After: r.After, Warnings: r.Warnings}
		if r.Rule != nil {
			to.Rule = r.Rule.Record()
		}
		if r.Override != nil {
			to.Override = r.Override.Record()
		}
	}
	return out
}
