package admin

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// pathKey reads the key between /v1/keys/ and what is asked of it. A text that
// begins with [ is a JSON list of values. Keys may hold colons and, escaped,
// slashes, so that the router cannot part them.
func (c *call) pathKey(after string) ([]string, error) {
	inner, begins := strings.CutPrefix(c.r.URL.EscapedPath(), "/v1/keys/")
	inner, ends := strings.CutSuffix(inner, after)
	text, err := url.PathUnescape(inner)
	if !begins || !ends || err != nil || strings.Contains(inner, "/") {
		return nil, refuse(api.NotFound, "there is GET /v1/keys/{key}/usage and POST /v1/keys/{key}:reset; a slash in a key is %2F")
	}
	key := []string{text}
	if strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &key); err != nil {
			return nil, refuse(api.BadRequest, `a key that begins with [ is a JSON list of its values, such as ["acct_1","GET /"], escaped`)
		}
	}
	return key, checkKey(key)
}

// domain reads which domain is meant, and holds the caller to its own.
func (c *call) domain() (string, error) {
	domain := c.query.Get("domain")
	if domain == "" {
		domain = named(c.token.Domain)
	}
	if c.token.Domain != "" && domain != c.token.Domain {
		return "", beyond(c.token, "domain "+clip(domain))
	}
	return domain, nil
}

// absent is the answer for what this process does not have.
func absent(what string) error {
	return refuse(api.NotFound, "this process has no "+what+": ask one that answers checks")
}

func (a *API) usage(c *call) (answer, error) {
	key, err := c.pathKey("/usage")
	if err != nil {
		return answer{}, err
	}
	domain, err := c.domain()
	if err != nil {
		return answer{}, err
	}
	if a.cfg.Looker == nil {
		return answer{}, absent("limiter")
	}
	u, err := a.cfg.Looker.Usage(c.r.Context(), domain, key)
	if err != nil {
		return answer{}, ofLimiter(err)
	}
	out := api.Usage{Domain: named(u.Domain), Key: u.Key, Rules: make([]api.RuleUsage, len(u.Rules))}
	for i := range u.Rules {
		if out.Rules[i], err = a.ofUsage(domain, key, &u.Rules[i]); err != nil {
			return answer{}, err
		}
	}
	return answer{body: out}, nil
}

// ofUsage writes what is left in a bucket.
func (a *API) ofUsage(domain string, key []string, u *tallygate.RuleUsage) (api.RuleUsage, error) {
	out := api.RuleUsage{
		Rule: u.Rule, Limit: u.Limit, Remaining: u.Remaining, Out: u.Out, RetryMS: u.RetryMS, ResetMS: u.ResetMS, Candidate: u.Candidate,
	}
	if u.Err != nil {
		out.Error = api.StoreUnavailable
		if tallygate.CodeOf(u.Err) == tallygate.CodeStoreTimeout {
			out.Error = api.StoreTimeout
		}
	}
	if a.cfg.Recent != nil && !u.Candidate {
		if perSecond, known := a.cfg.Recent(domain, u.Rule, key); known {
			out.RecentPerS = &perSecond
		}
	}
	var err error
	if u.Override != nil {
		out.Override, err = json.Marshal(u.Override)
	}
	return out, err
}

func (a *API) reset(c *call) (answer, error) {
	key, err := c.pathKey(":reset")
	if err != nil {
		return answer{}, err
	}
	domain, err := c.domain()
	if err != nil {
		return answer{}, err
	}
	rule := c.query.Get("rule")
	if c.query.Has("rule") && !isID(rule) {
		return answer{}, unknown(rule)
	}
	if a.cfg.Resetter == nil {
		return answer{}, absent("limiter")
	}
	if err := c.author().Check(); err != nil {
		return answer{}, refuse(api.BadRequest, err.Error())
	}
	change := rulestore.Change{Action: rulestore.ActionReset, Rule: rule, Key: key}
	if err := a.confine(c.r.Context(), c, []rulestore.Change{change}); err != nil {
		return answer{}, ofStore(err, nil)
	}
	// A pod whose counts nobody shares needs not tell others; one that shares them must
	// be able to.
	_, err = a.cfg.Writer.DryRun(c.r.Context(), c.author(), change)
	alone := a.cfg.Alone && rulestore.CodeOf(err) == rulestore.Elsewhere
	if err != nil && !alone {
		return answer{}, ofStore(err, nil)
	}
	// The store first: a pod that hears of it and asks finds a full bucket.
	buckets, err := a.cfg.Resetter.Reset(c.r.Context(), domain, rule, key)
	if err != nil {
		return answer{}, ofLimiter(err)
	}
	out := api.Reset{Buckets: buckets}
	if !alone {
		applied, err := a.change(c, false, nil, change)
		if err != nil {
			return answer{}, err
		}
		out.Revision = applied.Revision
	}
	return answer{body: out}, nil
}

func (a *API) explain(c *call) (answer, error) {
	var body api.Check
	if err := decode(c.body, &body); err != nil {
		return answer{}, err
	}
	check, err := checkOf(&body)
	if err != nil {
		return answer{}, err
	}
	if c.token.Domain != "" && named(check.Domain) != c.token.Domain {
		return answer{}, beyond(c.token, "domain "+clip(named(check.Domain)))
	}
	if a.cfg.Looker == nil {
		return answer{}, absent("limiter")
	}
	e, err := a.cfg.Looker.Explain(c.r.Context(), check)
	if err != nil {
		return answer{}, ofLimiter(err)
	}
	out := api.Explanation{
		Revision: e.Revision, Domain: named(e.Domain), Verdict: verdict(e.Allow), DeniedBy: e.DeniedBy,
		Rules: make([]api.RuleExplanation, len(e.Rules)), Unmatched: e.Unmatched,
	}
	for i := range e.Rules {
		r := &e.Rules[i]
		u, err := a.ofUsage(named(check.Domain), r.Key, &r.RuleUsage)
		if err != nil {
			return answer{}, err
		}
		out.Rules[i] = api.RuleExplanation{
			RuleUsage: u, Action: string(r.Action), Mode: mode(r.Shadow), Key: r.Key, Anonymous: r.Anonymous,
			SupersededBy: r.SupersededBy, Verdict: verdict(r.Allow), Reason: string(r.Reason),
		}
	}
	return answer{body: out}, nil
}

// checkOf returns the check of a body. A cost of 0 looks.
func checkOf(body *api.Check) (tallygate.Check, error) {
	switch {
	case (len(body.Entries) == 0) == (len(body.Attributes) == 0):
		return tallygate.Check{}, refuseAt(api.BadRequest, "#", "a check has entries or attributes, not both")
	case body.Cost != nil && len(body.Entries) > 0:
		return tallygate.Check{}, refuseAt(api.BadRequest, "#/cost", "with entries, each entry has its own cost")
	}
	check := tallygate.Check{Domain: body.Domain}
	if len(body.Attributes) > 0 {
		check.Attributes = body.Attributes // an empty map would be attributes all the same
	}
	if len(body.Entries) == 0 {
		var err error
		if check.Cost, check.Look, err = cost(body.Cost, "#/cost"); err != nil {
			return check, err
		}
	}
	for i, e := range body.Entries {
		entry := tallygate.Entry{Rule: e.Rule, Key: e.Key}
		var err error
		if entry.Cost, entry.Look, err = cost(e.Cost, fmt.Sprintf("#/entries/%d/cost", i)); err != nil {
			return check, err
		}
		check.Entries = append(check.Entries, entry)
	}
	return check, nil
}

// cost reads a cost. One that is not given stays so: the limiter takes it for 1 where
// there is one to take, and a check of entries has none of its own.
func cost(given *int64, at string) (cost int64, look bool, err error) {
	switch {
	case given == nil:
		return 0, false, nil
	case *given < 0:
		return 0, false, refuseAt(api.Code(tallygate.CodeInvalidCost), at, fmt.Sprintf("cost %d is below 0", *given))
	default:
		return *given, *given == 0, nil
	}
}

func verdict(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

func mode(shadow bool) string {
	if shadow {
		return "shadow"
	}
	return "enforce"
}
