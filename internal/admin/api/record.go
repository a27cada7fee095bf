package api

import (
	"encoding/json"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// shown is a body inside other JSON: one that somebody broke by hand is a text,
// so that one bad row does not take the page with it.
func shown(body json.RawMessage) json.RawMessage {
	if len(body) == 0 || json.Valid(body) {
		return body
	}
	text, err := json.Marshal(string(body))
	if err != nil {
		return json.RawMessage("null") // strings always marshal
	}
	return text
}

// OfRule writes a rule.
func OfRule(r rulestore.Rule) Rule {
	out := Rule{
		ID: r.ID, Version: r.Version, Revision: r.Revision, Live: shown(r.Live), LiveVersion: r.LiveVersion,
		Previous: r.Previous, ChangedAt: r.ChangedAt, Deleted: r.Deleted,
	}
	if c := r.Candidate; c.Body != nil {
		out.Candidate = &Candidate{Body: shown(c.Body), Stage: c.Stage, Percent: c.Percent, Since: c.Since}
	}
	return out
}

// Record returns the rule.
func (r *Rule) Record() rulestore.Rule {
	out := rulestore.Rule{
		ID: r.ID, Version: r.Version, Revision: r.Revision, Live: r.Live, LiveVersion: r.LiveVersion,
		Previous: r.Previous, ChangedAt: r.ChangedAt, Deleted: r.Deleted,
	}
	if c := r.Candidate; c != nil {
		out.Candidate = rulestore.Candidate{Body: c.Body, Stage: c.Stage, Percent: c.Percent, Since: c.Since}
	}
	return out
}

// OfVersion writes a version.
func OfVersion(v rulestore.Version) Version {
	return Version{Rule: OfRule(v.Rule), Action: v.Action, Who: v.Who, Why: v.Why}
}

// Record returns the version.
func (v *Version) Record() rulestore.Version {
	return rulestore.Version{Rule: v.Rule.Record(), Action: v.Action, Author: rulestore.Author{Who: v.Who, Why: v.Why}}
}

// OfOverride writes an override.
func OfOverride(o rulestore.Override) Override {
	return Override{
		Rule: o.Rule, Key: o.Key, ID: o.ID, Body: shown(o.Body), Version: o.Version, Revision: o.Revision,
		ChangedAt: o.ChangedAt, Deleted: o.Deleted,
	}
}

// Record returns the override.
func (o *Override) Record() rulestore.Override {
	return rulestore.Override{
		Rule: o.Rule, Key: o.Key, ID: o.ID, Body: o.Body, Version: o.Version, Revision: o.Revision,
		ChangedAt: o.ChangedAt, Deleted: o.Deleted,
	}
}

// OfEntry writes a line of the audit.
func OfEntry(e rulestore.Entry) Entry {
	return Entry{
		ID: e.ID, Revision: e.Revision, At: e.At, Who: e.Who, Why: e.Why, Action: e.Action, Rule: e.Rule, Key: e.Key,
		Version: e.Version, Before: shown(e.Before), After: shown(e.After),
	}
}

// Record returns the line of the audit.
func (e *Entry) Record() rulestore.Entry {
	return rulestore.Entry{
		ID: e.ID, Revision: e.Revision, At: e.At, Author: rulestore.Author{Who: e.Who, Why: e.Why}, Action: e.Action,
		Rule: e.Rule, Key: e.Key, Version: e.Version, Before: e.Before, After: e.After,
	}
}
