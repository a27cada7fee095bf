package admin

import (
	"fmt"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/rulestore"
)

func (a *API) shadow(c *call) (answer, error)   { return a.step(c, rulestore.ActionShadow, 0) }
func (a *API) enforce(c *call) (answer, error)  { return a.step(c, rulestore.ActionEnforce, 0) }
func (a *API) rollback(c *call) (answer, error) { return a.step(c, rulestore.ActionRollback, 0) }

func (a *API) canary(c *call) (answer, error) {
	var body api.Percent
	if len(c.body) == 0 {
		return answer{}, refuseAt(api.BadRequest, "#", `send the percentage of the pods that enforce the candidate, such as {"percent":10}`)
	}
	if err := decode(c.body, &body); err != nil {
		return answer{}, err
	}
	if body.Percent == nil || *body.Percent < 0 || *body.Percent > 100 {
		return answer{}, refuseAt(api.BadRequest, "#/percent", "percent is 0 to 100; 0 goes back to stage shadow")
	}
	return a.step(c, rulestore.ActionCanary, *body.Percent)
}

// trial answers how a candidate does.
func (a *API) trial(c *call) (answer, error) {
	id, err := c.id()
	if err != nil {
		return answer{}, err
	}
	r, err := a.rule(c.r.Context(), c, id)
	if err != nil {
		return answer{}, err
	}
	switch {
	case r.Candidate.Body == nil:
		return answer{}, refuse(api.NotFound, fmt.Sprintf("rule %q has no candidate", id))
	case a.cfg.Prover == nil:
		return answer{}, refuse(api.NotFound, "nobody here judges candidates"+a.elsewhere())
	}
	verdict, hardest, err := a.cfg.Prover.Trial(id)
	if err != nil {
		return answer{}, ofStore(err, nil)
	}
	out := api.TrialStatus{Rule: id, Stage: r.Candidate.Stage, Percent: r.Candidate.Percent, Since: r.Candidate.Since, Verdict: verdict, Hardest: hardest}
	if out.Hardest == nil {
		out.Hardest = []candidate.KeyCount{}
	}
	return answer{body: out}, nil
}

func (a *API) promote(c *call) (answer, error) {
	var body api.Force
	if len(c.body) > 0 {
		if err := decode(c.body, &body); err != nil {
			return answer{}, err
		}
	}
	if !body.Force {
		if err := a.proven(c); err != nil {
			return answer{}, err
		}
	}
	return a.step(c, rulestore.ActionPromote, 0)
}

// proven refuses a promotion of what has not proven itself. What it is about must
// be there and in the caller's sight: else that is the answer.
func (a *API) proven(c *call) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	seen, err := c.seenThere("a rule")
	if err != nil {
		return err
	}
	r, err := a.rule(c.r.Context(), c, id)
	if err != nil {
		return err
	}
	// The verdict must be of what the caller has seen.
	if err := rulestore.Match(r.Version, seen); err != nil {
		return ofStore(err, func(int) string { return "" })
	}
	if r.Candidate.Body == nil {
		return refuse(api.InvalidRule, fmt.Sprintf("rule %q: has no candidate to promote", id))
	}
	ok, why := false, "nobody here judges candidates"
	if a.cfg.Prover != nil {
		ok, why = a.cfg.Prover.Proven(id)
	}
	if !ok {
		e := refuse(api.NotProven, "the candidate has not proven itself: "+why+`; to promote it nevertheless send force: {"force":true}`)
		e.Rule = id
		return e
	}
	return nil
}
