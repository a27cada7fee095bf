package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// author is who changes something, and why.
func (c *call) author() rulestore.Author {
	why := c.r.Header.Get("Tallygate-Why")
	if c.query.Has("why") {
		why = c.query.Get("why")
	}
	return rulestore.Author{Who: c.who, Why: why}
}

// change makes changes, or with dry says what they would do. at is where in the
// body the change of an index stands.
func (a *API) change(c *call, dry bool, at func(int) string, changes ...rulestore.Change) (rulestore.Applied, error) {
	by := c.author()
	if err := by.Check(); err != nil {
		return rulestore.Applied{}, refuse(api.BadRequest, err.Error())
	}
	ctx := c.r.Context()
	if err := a.confine(ctx, c, changes); err != nil {
		return rulestore.Applied{}, ofStore(err, at)
	}
	do := a.cfg.Writer.Apply
	if dry {
		do = a.cfg.Writer.DryRun
	}
	applied, err := do(ctx, by, changes...)
	if err != nil {
		return applied, ofStore(err, at)
	}
	return applied, nil
}

// id returns the rule that the path names. What no rule can be called is none, and
// is not asked of a database.
func (c *call) id() (string, error) {
	id := c.param("id")
	if !isID(id) {
		return "", unknown(id)
	}
	return id, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= rules.MaxIDBytes && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	})
}

func unknown(id string) error {
	return refuse(api.UnknownRule, fmt.Sprintf("there is no rule %q", clip(id)))
}

// rule returns a rule that the caller may see.
func (a *API) rule(ctx context.Context, c *call, id string) (rulestore.Rule, error) {
	r, err := a.cfg.Records.Rule(ctx, id)
	switch {
	case err != nil:
		return r, ofStore(err, nil)
	case !sees(c.token, r.Live, r.Candidate.Body):
		return r, unknown(id)
	}
	return r, nil
}

func (a *API) getRule(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	r, err := a.rule(c.r.Context(), c, id)
	return answer{version: r.Version, body: api.OfRule(r)}, err
}

// ruleFilter is what a list of rules is narrowed to.
type ruleFilter struct {
	domain, owner, text       string
	candidate, whichCandidate bool
}

func (c *call) ruleFilter() (ruleFilter, error) {
	f := ruleFilter{domain: c.query.Get("domain"), owner: c.query.Get("owner"), text: strings.ToLower(c.query.Get("q"))}
	var err error
	if f.candidate, f.whichCandidate, err = c.flag("candidate"); err != nil {
		return f, err
	}
	if bound := c.token.Domain; bound != "" {
		if f.domain != "" && f.domain != bound {
			return f, beyond(c.token, "domain "+clip(f.domain))
		}
		f.domain = bound
	}
	return f, nil
}

func (f *ruleFilter) passes(r *rulestore.Rule, of facts, bound bool) bool {
	return (f.domain == "" || f.domain == of.domain) && (f.owner == "" || f.owner == of.owner) &&
		(f.text == "" || strings.Contains(of.text, f.text)) &&
		(!f.whichCandidate || f.candidate == (r.Candidate.Body != nil)) && (!bound || !of.foreign)
}

func (a *API) listRules(c *call) (answer, error) {
	filter, err := c.ruleFilter()
	if err != nil {
		return answer{}, err
	}
	limit, err := c.limit()
	if err != nil {
		return answer{}, err
	}
	v, err := a.mirror.view(c.r.Context())
	if err != nil {
		return answer{}, ofStore(err, nil)
	}
	page := api.RulePage{Rules: []api.Rule{}, Revision: v.Revision}
	after := c.query.Get("after")
	start, found := slices.BinarySearchFunc(v.Rules, after, func(r rulestore.Rule, id string) int { return strings.Compare(r.ID, id) })
	if found {
		start++
	}
	for i := start; i < len(v.Rules); i++ {
		r := &v.Rules[i]
		if !filter.passes(r, v.facts[r.ID], c.token.Domain != "") {
			continue
		}
		if len(page.Rules) == limit {
			page.Next = page.Rules[limit-1].ID
			break
		}
		page.Rules = append(page.Rules, api.OfRule(*r))
	}
	return answer{body: page}, nil
}

func (a *API) putRule(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		// A rule that is to be made gets to know why not.
		return answer{}, refuse(api.InvalidRule, fmt.Sprintf("%q is no id: 1 to %d of A-Z a-z 0-9 . _ - are one", clip(c.param("id")), rules.MaxIDBytes))
	}
	seen, err := c.seen()
	if err != nil {
		return answer{}, err
	}
	dry, _, err := c.flag("dry_run")
	if err != nil {
		return answer{}, err
	}
	change := rulestore.Change{Action: rulestore.ActionPut, Rule: id, IfMatch: seen, Body: c.body}
	switch stage := c.query.Get("stage"); {
	case stage == "full" || !c.query.Has("stage"):
	case stage == "shadow":
		change.Action = rulestore.ActionPropose
	default:
		return answer{}, refuse(api.BadRequest, fmt.Sprintf("parameter stage is full or shadow, not %q", clip(stage)))
	}
	if err := wellFormed(c.body); err != nil {
		return answer{}, err
	}
	return a.changeRule(c, dry, change)
}

// changeRule makes one change of one rule and answers with the rule.
func (a *API) changeRule(c *call, dry bool, change rulestore.Change) (answer, error) {
	applied, err := a.change(c, dry, func(int) string { return "" }, change)
	if err != nil {
		return answer{}, err
	}
	r := applied.Results[0]
	if dry {
		return answer{body: api.Planned{DryRun: true, Before: r.Before, After: r.After, Diff: differ(r.Before, r.After), Warnings: append([]string{}, r.Warnings...)}}, nil
	}
	out := answer{version: r.Version}
	if change.IfMatch == 0 {
		out.status = http.StatusCreated
	}
	body := api.OfRule(r.Rule)
	body.Warnings = r.Warnings
	out.body = body
	return out, nil
}

func (a *API) deleteRule(c *call) (answer, error) { return a.step(c, rulestore.ActionDelete, 0) }

// step makes a change of a rule that has no body.
func (a *API) step(c *call, action rulestore.Action, percent int) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	seen, err := c.seenThere("a rule")
	if err != nil {
		return answer{}, err
	}
	return a.changeRule(c, false, rulestore.Change{Action: action, Rule: id, IfMatch: seen, Percent: percent})
}
