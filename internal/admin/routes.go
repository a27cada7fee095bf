package admin

import (
	"net/http"
	"net/http/pprof"
	"reflect"
	"strings"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/fleet"
)

// endpoint is one line of the table of all there is.
type endpoint struct {
	method, path string
	// id and summary are for the OpenAPI document.
	id, summary string
	access      access
	// bounded says that tokens of one domain may ask: the endpoint keeps them to it.
	bounded bool
	// exempt ones have no pace, poll ones wait, bulk ones are large.
	exempt, poll, bulk bool
	query              []param
	// matched says that it needs If-Match or If-None-Match, created that it may
	// answer 201.
	matched, created bool
	// in is the type of the body; nil means none. out is that of the answer.
	in, out reflect.Type
	answer  func(*call) (answer, error)
	// raw answers instead of answer, without JSON of ours.
	raw http.Handler
}

// param is a parameter of the query.
type param struct{ name, doc string }

// route is the path as the router takes it. Keys may hold what parts paths there:
// an IPv6 address has colons.
func (e *endpoint) route() string {
	if strings.HasPrefix(e.path, "/v1/keys/") {
		return "/v1/keys/*"
	}
	return strings.Replace(e.path, "{name}", "*", 1)
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

// rule is the type of the body of a rule, override of an override: documented in
// docs/rules.md and read by package rules.
type (
	ruleBody     struct{}
	overrideBody struct{}
)

// table returns all endpoints.
func (a *API) table() []endpoint {
	var out []endpoint
	for _, part := range [][]endpoint{a.ruleEndpoints(), a.stageEndpoints(), a.overrideEndpoints(), a.keyEndpoints(), a.fleetEndpoints(), a.ownEndpoints()} {
		out = append(out, part...)
	}
	return out
}

func (a *API) ruleEndpoints() []endpoint {
	why := param{"why", "why the change is made, for the audit; or the header Tallygate-Why"}
	return []endpoint{
		{method: "GET", path: "/v1/rules", id: "listRules", summary: "Rules, by id", access: reading, bounded: true, query: []param{
			{"domain", "only those of a domain"},
			{"owner", "only those of an owner"},
			{"q", "only those with this text in id or body"},
			{"candidate", "true: only those with a candidate; false: only those without"},
			{"limit", "1 to 1000, default 100"},
			{"after", "next of the page before"},
		}, out: of[api.RulePage](), answer: a.listRules},
		{method: "GET", path: "/v1/rules/{id}", id: "getRule", summary: "A rule", access: reading, bounded: true, out: of[api.Rule](), answer: a.getRule},
		{method: "PUT", path: "/v1/rules/{id}", id: "putRule", summary: "Make or replace a rule, or propose a candidate", access: editing, bounded: true, matched: true, created: true, query: []param{
			{"stage", "full (default): it is live at once; shadow: it becomes the candidate"}, {"dry_run", "true: change nothing, say what would change"}, why,
		}, in: of[ruleBody](), out: of[api.Rule](), answer: a.putRule},
		{method: "DELETE", path: "/v1/rules/{id}", id: "deleteRule", summary: "Remove a rule, its candidate and its overrides", access: editing, bounded: true, matched: true, query: []param{why}, out: of[api.Rule](), answer: a.deleteRule},
		{method: "GET", path: "/v1/rules/{id}/history", id: "ruleHistory", summary: "Versions of a rule, newest first", access: reading, bounded: true, query: []param{
			{"limit", "1 to 1000, default 100"}, {"before", "next of the page before"},
		}, out: of[api.History](), answer: a.history},
		{method: "GET", path: "/v1/rules/{id}/diff", id: "ruleDiff", summary: "What differs between two versions", access: reading, bounded: true, query: []param{
			{"from", "a version"}, {"to", "another one; default the newest"},
		}, out: of[api.Diff](), answer: a.diff},
		{method: "POST", path: "/v1/rules:apply", id: "apply", summary: "A bulk of changes: all or none", access: editing, bounded: true, bulk: true, query: []param{why}, in: of[api.Apply](), out: of[api.Applied](), answer: a.applyBulk},
	}
}

func (a *API) stageEndpoints() []endpoint {
	why := param{"why", "why the change is made, for the audit; or the header Tallygate-Why"}
	stage := func(verb, summary string, in reflect.Type, answer func(*call) (answer, error)) endpoint {
		return endpoint{
			method: "POST", path: "/v1/rules/{id}:" + verb, id: verb + "Rule", summary: summary, access: editing, bounded: true, matched: true,
			query: []param{why}, in: in, out: of[api.Rule](), answer: answer,
		}
	}
	return []endpoint{
		{method: "GET", path: "/v1/rules/{id}/trial", id: "ruleTrial", summary: "How a rule's candidate does", access: reading, bounded: true, out: of[api.TrialStatus](), answer: a.trial},
		stage("shadow", "Count the live rule and do not enforce it", nil, a.shadow),
		stage("enforce", "Enforce the live rule", nil, a.enforce),
		stage("canary", "Have a part of the pods enforce the candidate", of[api.Percent](), a.canary),
		stage("promote", "Make the candidate the live rule", of[api.Force](), a.promote),
		stage("rollback", "Drop the candidate, or bring back the version before", nil, a.rollback),
	}
}

func (a *API) overrideEndpoints() []endpoint {
	why := param{"why", "why the change is made, for the audit; or the header Tallygate-Why"}
	return []endpoint{
		{method: "GET", path: "/v1/overrides", id: "listOverrides", summary: "Overrides, by rule and key", access: reading, bounded: true, query: []param{
			{"rule", "only those of a rule"},
			{"key", "only those of a key, in any spelling; several times for several values"},
			{"limit", "1 to 1000, default 100"},
			{"after", "next of the page before"},
		}, out: of[api.OverridePage](), answer: a.listOverrides},
		{method: "POST", path: "/v1/overrides", id: "putOverrides", summary: "Make or replace an override, or a bulk of them", access: editing, bounded: true, bulk: true, matched: true, created: true, query: []param{why}, in: of[overrideBody](), out: of[api.Override](), answer: a.postOverrides},
		{method: "DELETE", path: "/v1/overrides", id: "deleteOverride", summary: "Remove an override", access: editing, bounded: true, matched: true, query: []param{
			{"rule", "its rule"}, {"key", "its key; several times for several values"}, why,
		}, out: of[api.Override](), answer: a.deleteOverride},
	}
}

func (a *API) keyEndpoints() []endpoint {
	why := param{"why", "why the change is made, for the audit; or the header Tallygate-Why"}
	domain := param{"domain", "the rules' domain; default the token's, or default"}
	return []endpoint{
		{method: "GET", path: "/v1/keys/{key}/usage", id: "keyUsage", summary: "What is left for a key; spends nothing", access: reading, bounded: true, query: []param{domain}, out: of[api.Usage](), answer: a.usage},
		{method: "POST", path: "/v1/keys/{key}:reset", id: "resetKey", summary: "Make a key full again", access: editing, bounded: true, query: []param{domain, {"rule", "only its bucket of a rule"}, why}, out: of[api.Reset](), answer: a.reset},
		{method: "POST", path: "/v1/explain", id: "explain", summary: "What a check would be answered, and why; spends nothing", access: reading, bounded: true, in: of[api.Check](), out: of[api.Explanation](), answer: a.explain},
	}
}

func (a *API) fleetEndpoints() []endpoint {
	out := []endpoint{
		{method: "GET", path: "/v1/pods", id: "listPods", summary: "The pods and their last reports", access: reading, out: of[api.Pods](), answer: a.pods},
		{method: "POST", path: "/v1/pods/{id}/report", id: "reportPod", summary: "What a pod tells every 10 s", access: reporting, exempt: true, in: of[fleet.Report](), out: of[fleet.Receipt](), answer: a.report},
		{method: "GET", path: "/v1/audit", id: "listAudit", summary: "Who changed what, newest first", access: reading, bounded: true, query: []param{
			{"rule", "only those of a rule"},
			{"key", "only those of a key; several times for several values"},
			{"who", "only those of a person"},
			{"action", "only those of an action"},
			{"from", "from this time on"},
			{"to", "before this time"},
			{"limit", "1 to 1000, default 100"},
			{"before", "next of the page before"},
		}, out: of[api.Audit](), answer: a.audit},
	}
	if a.cfg.Changes != nil {
		out = append(out, endpoint{method: "GET", path: "/v1/changes", id: "changes", summary: "What changed after a revision; waits for it", access: following, exempt: true, poll: true, raw: a.cfg.Changes})
	}
	return out
}

func (a *API) ownEndpoints() []endpoint {
	out := []endpoint{
		{method: "GET", path: "/healthz", id: "healthz", summary: "The process lives", access: anybody, out: of[health](), answer: func(*call) (answer, error) { return answer{body: health{Status: "ok"}}, nil }},
		{method: "GET", path: "/v1/openapi.json", id: "openapi", summary: "This document", access: holders, bounded: true, raw: http.HandlerFunc(a.openapi)},
	}
	if a.cfg.Metrics != nil {
		out = append(out, endpoint{method: "GET", path: "/metrics", id: "metrics", summary: "Figures for Prometheus", access: reading, exempt: true, raw: a.cfg.Metrics})
	}
	for _, look := range []struct {
		path    string
		handler http.HandlerFunc
	}{{"cmdline", pprof.Cmdline}, {"profile", pprof.Profile}, {"symbol", pprof.Symbol}, {"trace", pprof.Trace}, {"{name}", pprof.Index}} {
		out = append(out, endpoint{
			method: "GET", path: "/debug/pprof/" + look.path, id: "pprof_" + strings.Trim(look.path, "{}"), summary: "A look into the process", access: all, raw: look.handler,
		})
	}
	return out
}

// health is what GET /healthz answers.
type health struct {
	Status string `json:"status"`
}
