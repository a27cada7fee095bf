package rulestore

import (
	"encoding/json"
	"errors"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tallygate/tallygate/rules"
)

// Next returns the rule that a change makes of one: pure, for stores. now is a
// zero value, but for its ID, where there was never such a rule. before is the
// version that now.Previous names, asked for by a rollback without candidate. The
// caller sets Revision. The warnings are those of the body.
func Next(now Rule, before Version, c Change, at time.Time) (Rule, []string, error) {
	current := now.Version
	if now.Deleted {
		current = 0
	}
	if err := Match(current, c.IfMatch); err != nil {
		return Rule{}, nil, err
	}
	if current == 0 && c.Action != ActionPut {
		return Rule{}, nil, &Error{Code: NotFound, Message: "is not there"}
	}
	next := now
	next.Version++
	next.ChangedAt = at
	warnings, err := next.step(before, c, at)
	if err != nil {
		return Rule{}, nil, err
	}
	return next, warnings, nil
}

// step does what the action says.
func (r *Rule) step(before Version, c Change, at time.Time) (warnings []string, err error) {
	switch c.Action {
	case ActionPut:
		body, warnings, err := readRule(r.ID, c.Body)
		if err == nil {
			err = r.besideCandidate(body)
		}
		if err == nil {
			r.live(body, at)
		}
		return warnings, err
	case ActionPropose:
		body, warnings, err := readRule(r.ID, c.Body)
		if err == nil {
			err = candidateOf(r.Live, body)
		}
		r.Candidate = Candidate{Body: body, Stage: StageShadow, Since: at}
		return warnings, err
	case ActionCanary:
		return nil, r.canary(c.Percent, at)
	case ActionPromote:
		if r.Candidate.Body == nil {
			return nil, invalid("has no candidate to promote")
		}
		r.live(r.Candidate.Body, at)
		r.Candidate = Candidate{}
		return nil, nil
	case ActionRollback:
		return nil, r.rollback(before, at)
	case ActionShadow, ActionEnforce:
		return nil, r.mode(c.Action, at)
	case ActionDelete:
		*r = Rule{ID: r.ID, Version: r.Version, Deleted: true, ChangedAt: at}
		return nil, nil
	case ActionOverride, ActionLift, ActionReset:
	}
	return nil, invalid("there is no action " + string(c.Action) + " for a rule")
}

// besideCandidate refuses a live version that the candidate could not stand beside.
func (r *Rule) besideCandidate(live json.RawMessage) error {
	if r.Candidate.Body == nil {
		return nil
	}
	err := candidateOf(live, r.Candidate.Body)
	if e, ok := errors.AsType[*Error](err); ok {
		e.Message = "the rule has a candidate that could not stand beside this version; drop the candidate first, with a rollback: " + e.Message
	}
	return err
}

// candidateOf refuses a candidate that could not be compared with a live version.
func candidateOf(live, candidate json.RawMessage) error {
	rule, problems := rules.ParseRule(live)
	if len(problems) > 0 {
		return invalid("the live version cannot be read; put it again first: " + problems.Error())
	}
	next, problems := rules.ParseRule(candidate)
	if len(problems) > 0 {
		return nil // written by hand: it is skipped
	}
	if faults := rule.FaultsOfCandidate(&next); len(faults) > 0 {
		return faulty(faults)
	}
	return nil
}

// live puts another body into force.
func (r *Rule) live(body json.RawMessage, at time.Time) {
	r.Previous, r.LiveVersion = r.LiveVersion, r.Version
	r.Live, r.Deleted = body, false
	if r.Candidate.Body != nil {
		r.Candidate.Since = at
	}
}

func (r *Rule) canary(percent int, at time.Time) error {
	if r.Candidate.Body == nil {
		return invalid("has no candidate")
	}
	if percent < 0 || percent > 100 {
		return invalid("percent is 0 to 100")
	}
	r.Candidate.Stage, r.Candidate.Percent, r.Candidate.Since = StageCanary, percent, at
	if percent == 0 {
		r.Candidate.Stage = StageShadow
	}
	return nil
}

func (r *Rule) rollback(before Version, at time.Time) error {
	if r.Candidate.Body != nil {
		r.Candidate = Candidate{}
		return nil
	}
	if r.Previous == 0 || before.Version != r.Previous || before.Live == nil {
		return invalid("has no version before this one")
	}
	r.live(before.Live, at)
	r.Previous = before.Previous
	return nil
}

func (r *Rule) mode(action Action, at time.Time) error {
	rule, problems := rules.ParseRule(r.Live)
	if len(problems) > 0 {
		return faulty(problems)
	}
	rule.Mode = rules.ModeEnforce
	if action == ActionShadow {
		rule.Mode = rules.ModeShadow
	}
	body, err := json.Marshal(rule)
	if err == nil {
		r.live(body, at)
	}
	return err
}

// readRule reads a body strictly and returns it as it is stored.
func readRule(id string, body json.RawMessage) (json.RawMessage, []string, error) {
	rule, problems := rules.ParseRule(body)
	if len(problems) > 0 {
		return nil, nil, faulty(problems)
	}
	if rule.ID != id {
		return nil, nil, invalid("the body is of rule " + rule.ID)
	}
	var warnings []string
	for _, p := range rule.Validate().Warnings() {
		warnings = append(warnings, p.String())
	}
	stored, err := json.Marshal(rule)
	return stored, warnings, err
}

// State returns what the audit shows of a rule; nil where there is none.
func (r *Rule) State() (json.RawMessage, error) {
	if !r.Exists() {
		return nil, nil
	}
	type candidate struct {
		Body    json.RawMessage `json:"body"`
		Stage   Stage           `json:"stage"`
		Percent int             `json:"percent,omitempty"`
	}
	state := struct {
		Live      json.RawMessage `json:"live"`
		Candidate *candidate      `json:"candidate,omitempty"`
	}{Live: shown(r.Live)}
	if r.Candidate.Body != nil {
		state.Candidate = &candidate{Body: shown(r.Candidate.Body), Stage: r.Candidate.Stage, Percent: r.Candidate.Percent}
	}
	return json.Marshal(state)
}

// shown is a body inside other JSON: one that is none as a text.
func shown(body json.RawMessage) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	text, err := json.Marshal(string(body))
	if err != nil {
		return json.RawMessage("null") // strings always marshal
	}
	return text
}

// Check refuses an author that the audit cannot hold.
func (a Author) Check() error {
	switch {
	case a.Who == "" || len(a.Who) > 256 || !printable(a.Who):
		return invalid("who makes the change has 1 to 256 bytes without control characters")
	case len(a.Why) > rules.MaxTextBytes || !printable(a.Why):
		return invalid("why the change is made has at most 4096 bytes without control characters")
	default:
		return nil
	}
}

func printable(s string) bool {
	for _, c := range s {
		if unicode.IsControl(c) {
			return false
		}
	}
	return utf8.ValidString(s)
}
