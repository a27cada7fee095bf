package admin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// sees reports whether a token may see what these bodies say: all of them are of
// its domain. A body that cannot be read is of no domain.
func sees(t token.Token, bodies ...json.RawMessage) bool {
	if t.Domain == "" {
		return true
	}
	for _, body := range bodies {
		if len(body) > 0 && domainOf(body) != t.Domain {
			return false
		}
	}
	return true
}

// seesState is sees for what the audit keeps of a rule.
func seesState(t token.Token, states ...json.RawMessage) bool {
	if t.Domain == "" {
		return true
	}
	for _, text := range states {
		if len(text) == 0 {
			continue
		}
		live, candidate, ok := state(text)
		if !ok || !sees(t, live, candidate) {
			return false
		}
	}
	return true
}

// state reads {"live": …, "candidate": {"body": …}}.
func state(text json.RawMessage) (live, candidate json.RawMessage, ok bool) {
	var s struct {
		Live      json.RawMessage `json:"live"`
		Candidate *struct {
			Body json.RawMessage `json:"body"`
		} `json:"candidate"`
	}
	if json.Unmarshal(text, &s) != nil {
		return nil, nil, false
	}
	if s.Candidate != nil {
		candidate = s.Candidate.Body
	}
	return s.Live, candidate, true
}

// confine refuses changes that reach beyond the domain of a token: before and
// after, all there is of a rule must be of it. What a change would make is asked of
// the store: a rollback may bring back what was in another domain. Every change of
// a rule names the version it has seen, so what was looked at here is what is
// changed; an override is of the rule as it was a moment ago.
func (a *API) confine(ctx context.Context, c *call, changes []rulestore.Change) error {
	if c.token.Domain == "" {
		return nil
	}
	looked := map[string]bool{}
	dry := false
	for i := range changes {
		name(&changes[i])
		change := &changes[i]
		dry = dry || ofRule(change.Action)
		switch {
		case change.Rule == "" && change.Action == rulestore.ActionReset:
			return beyond(c.token, "a reset of all rules; name one")
		case looked[change.Rule]:
			continue
		}
		looked[change.Rule] = true
		rule, err := a.cfg.Records.Rule(ctx, change.Rule)
		switch {
		case rulestore.CodeOf(err) == rulestore.NotFound:
		case err != nil:
			return err
		case !sees(c.token, rule.Live, rule.Candidate.Body):
			return beyond(c.token, "rule "+rule.ID)
		}
	}
	if !dry {
		return nil
	}
	would, err := a.cfg.Writer.DryRun(ctx, c.author(), changes...)
	if err != nil {
		return err
	}
	for i, change := range changes {
		if r := would.Results[i]; ofRule(change.Action) && !seesState(c.token, r.Before, r.After) {
			return beyond(c.token, "rule "+change.Rule)
		}
	}
	return nil
}

func beyond(t token.Token, what string) error {
	return refuse(api.Forbidden, fmt.Sprintf("token %s is bound to domain %s, which this leaves: %s", t.Name, t.Domain, what))
}

// ofRule reports whether an action changes a rule, and no override or bucket.
func ofRule(action rulestore.Action) bool {
	switch action {
	case rulestore.ActionOverride, rulestore.ActionLift, rulestore.ActionReset:
		return false
	case rulestore.ActionPut, rulestore.ActionPropose, rulestore.ActionCanary, rulestore.ActionPromote, rulestore.ActionRollback,
		rulestore.ActionShadow, rulestore.ActionEnforce, rulestore.ActionDelete:
	}
	return true
}

// name has a change name its rule, as its body does: the store then holds it to it.
func name(c *rulestore.Change) {
	if c.Rule != "" {
		return
	}
	if c.Action == rulestore.ActionOverride {
		o, _ := rules.ParseOverride(c.Body)
		c.Rule = o.Rule
		return
	}
	if len(c.Body) > 0 {
		r, _ := rules.ParseRule(c.Body)
		c.Rule = r.ID
	}
}
