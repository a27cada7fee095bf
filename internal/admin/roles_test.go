package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
)

// roles are the tokens of these tests: each role, bound and not.
var roles = []string{"viewer", "editor", "admin", "pod", "here", "there", "boss"}

func roleTokens(t *testing.T) (admin.Tokens, map[string]string) {
	t.Helper()
	return tokens(t, "viewer viewer", "editor editor", "admin admin", "pod pod", "here editor here", "there viewer there", "boss admin here")
}

// requests are one good request for each operation, on a rule of domain here.
var requests = map[string]struct {
	method, path, body string
	headers            []string
	// may are the tokens that may; the others get 403, or 404 where it is another
	// domain's thing that they ask for.
	may string
}{
	"listRules":     {"GET", "/v1/rules", "", nil, "viewer editor admin here there boss"},
	"getRule":       {"GET", "/v1/rules/a", "", nil, "viewer editor admin here boss"},
	"putRule":       {"PUT", "/v1/rules/a?dry_run=true", bucket("a", 5, `"domain":"here"`), []string{ifMatch(1)}, "editor admin here boss"},
	"deleteRule":    {"DELETE", "/v1/rules/a", "", []string{ifMatch(9)}, "editor admin here boss"},
	"ruleHistory":   {"GET", "/v1/rules/a/history", "", nil, "viewer editor admin here boss"},
	"ruleDiff":      {"GET", "/v1/rules/a/diff?from=1", "", nil, "viewer editor admin here boss"},
	"apply":         {"POST", "/v1/rules:apply", `{"dry_run":true,"changes":[{"action":"shadow","rule":"a","if_match":1}]}`, nil, "editor admin here boss"},
	"ruleTrial":     {"GET", "/v1/rules/a/trial", "", nil, "viewer editor admin here boss"},
	"shadowRule":    {"POST", "/v1/rules/a:shadow", "", []string{ifMatch(9)}, "editor admin here boss"},
	"enforceRule":   {"POST", "/v1/rules/a:enforce", "", []string{ifMatch(9)}, "editor admin here boss"},
	"canaryRule":    {"POST", "/v1/rules/a:canary", `{"percent":5}`, []string{ifMatch(9)}, "editor admin here boss"},
	"promoteRule":   {"POST", "/v1/rules/a:promote", `{"force":true}`, []string{ifMatch(9)}, "editor admin here boss"},
	"rollbackRule":  {"POST", "/v1/rules/a:rollback", "", []string{ifMatch(9)}, "editor admin here boss"},
	"listOverrides": {"GET", "/v1/overrides", "", nil, "viewer editor admin here there boss"},
	"putOverrides":  {"POST", "/v1/overrides", `{"rule":"a","key":"k","burst":5}`, []string{ifMatch(9)}, "editor admin here boss"},
	"deleteOverride": {
		"DELETE", "/v1/overrides?rule=a&key=k", "",
		[]string{ifMatch(9)},
		"editor admin here boss",
	},
	"keyUsage":      {"GET", "/v1/keys/k/usage?domain=here", "", nil, "viewer editor admin here boss"},
	"resetKey":      {"POST", "/v1/keys/k:reset?domain=here&rule=a", "", nil, "editor admin here boss"},
	"explain":       {"POST", "/v1/explain", `{"domain":"here","attributes":{"plan":"free"}}`, nil, "viewer editor admin here boss"},
	"listPods":      {"GET", "/v1/pods", "", nil, "viewer editor admin"},
	"reportPod":     {"POST", "/v1/pods/p/report", `{"pod":"p"}`, nil, "admin pod"},
	"listAudit":     {"GET", "/v1/audit", "", nil, "viewer editor admin here there boss"},
	"changes":       {"GET", "/v1/changes", "", nil, "viewer editor admin pod"},
	"healthz":       {"GET", "/healthz", "", nil, "viewer editor admin pod here there boss"},
	"openapi":       {"GET", "/v1/openapi.json", "", nil, "viewer editor admin pod here there boss"},
	"metrics":       {"GET", "/metrics", "", nil, "viewer editor admin"},
	"pprof_cmdline": {"GET", "/debug/pprof/cmdline", "", nil, "admin"},
	"pprof_profile": {"GET", "/debug/pprof/profile?seconds=1", "", nil, "admin"},
	"pprof_symbol":  {"GET", "/debug/pprof/symbol", "", nil, "admin"},
	"pprof_trace":   {"GET", "/debug/pprof/trace?seconds=0.01", "", nil, "admin"},
	"pprof_name":    {"GET", "/debug/pprof/goroutine?debug=1", "", nil, "admin"},
}

func TestRoles_everyEndpoint(t *testing.T) {
	t.Parallel()
	file, shown := roleTokens(t)
	r := start(t, func(c *admin.Config) { c.Tokens = file })
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20, `"domain":"here"`), create, bearer(shown["admin"]))
	for _, p := range r.doc.paths {
		for _, op := range p.item {
			if id, _ := dig(op, "operationId").(string); requests[id].path == "" {
				t.Errorf("operation %s has no line in this test", id)
			}
		}
	}
	for id, q := range requests {
		for _, role := range roles {
			if strings.HasPrefix(id, "pprof_profile") && role == "admin" {
				continue // a second of profile tells nothing more
			}
			got := r.ask(t, q.method, q.path, q.body, append([]string{bearer(shown[role])}, q.headers...)...)
			may := strings.Contains(" "+q.may+" ", " "+role+" ")
			refused := got.status == http.StatusForbidden || got.status == http.StatusNotFound && got.problem(t).Rule == ""
			// A conflict is what a request with version 9 gets that may be made.
			allowed := got.status < 300 || got.status == http.StatusConflict || got.status == http.StatusNotFound && (got.problem(t).Rule != "" || id == "ruleTrial")
			if may && !allowed || !may && !refused {
				t.Errorf("%s as %s: status %d, want allowed %t: %.200s", id, role, got.status, may, got.body)
			}
		}
		if id == "healthz" {
			continue
		}
		for _, header := range []string{"X: y", "Authorization: Basic a2ltOnB3", "Authorization: Bearer ", bearer("tg_wrong"), bearer(strings.Repeat("x", 5000))} {
			if got := r.ask(t, q.method, q.path, q.body, header); got.status != http.StatusUnauthorized || got.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %.30s: status %d", id, header, got.status)
			}
		}
	}
	if live := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", "", bearer(shown["viewer"]))); live.Version != 1 {
		t.Errorf("something was changed: %+v", live)
	}
}

// An editor of a domain changes what is in it before and after, and nothing else.
func TestDomain_editorStaysInIt(t *testing.T) {
	t.Parallel()
	file, shown := roleTokens(t)
	r := start(t, func(c *admin.Config) { c.Tokens = file })
	root, here := bearer(shown["admin"]), bearer(shown["here"])
	mine, other := `"domain":"here"`, `"domain":"other"`
	r.must(t, "PUT", "/v1/rules/mine", bucket("mine", 20, mine), create, root)
	r.must(t, "PUT", "/v1/rules/other", bucket("other", 20, other), create, root)
	// Once it was in another domain.
	r.must(t, "PUT", "/v1/rules/moved", bucket("moved", 20, other), create, root)
	r.must(t, "PUT", "/v1/rules/moved", bucket("moved", 21, mine), ifMatch(1), root)
	if got := r.ask(t, "PUT", "/v1/rules/mine?stage=shadow", bucket("mine", 20, other), ifMatch(1), root); got.status != 422 {
		t.Errorf("a candidate in another domain: status %d", got.status)
	}
	change := func(action, rule string, version int, body string) string {
		return fmt.Sprintf(`{"changes":[{"action":%q,"rule":%q,"if_match":%d%s}]}`, action, rule, version, body)
	}
	for name, q := range map[string][]string{
		"another's rule":                   {"PUT", "/v1/rules/other", bucket("other", 9, other), ifMatch(1)},
		"pulling one in":                   {"PUT", "/v1/rules/other", bucket("other", 9, mine), ifMatch(1)},
		"pushing one out":                  {"PUT", "/v1/rules/mine", bucket("mine", 9, other), ifMatch(1)},
		"making one elsewhere":             {"PUT", "/v1/rules/new", bucket("new", 9, other), create},
		"making one in the default domain": {"PUT", "/v1/rules/new", bucket("new", 9), create},
		"a rollback out":                   {"POST", "/v1/rules/moved:rollback", "", ifMatch(2)},
		"removing another's":               {"DELETE", "/v1/rules/other", "", ifMatch(1)},
		"an override of another's":         {"POST", "/v1/overrides", `{"rule":"other","key":"k","burst":99}`, create},
		"a bulk of overrides":              {"POST", "/v1/overrides", `{"overrides":[{"rule":"mine","key":"k","burst":99},{"rule":"other","key":"k","burst":99}]}`, "X: y"},
		"a bulk":                           {"POST", "/v1/rules:apply", change("shadow", "other", 1, ""), "X: y"},
		"a bulk by its body":               {"POST", "/v1/rules:apply", change("put", "", 1, `,"body":`+bucket("other", 9, mine)), "X: y"},
		"a dry run":                        {"POST", "/v1/rules:apply", `{"dry_run":true,` + change("shadow", "other", 7, "")[1:], "X: y"},
		"a reset of another's":             {"POST", "/v1/keys/k:reset?rule=other", "", "X: y"},
		"a reset elsewhere":                {"POST", "/v1/keys/k:reset?domain=other&rule=other", "", "X: y"},
		"a reset of all":                   {"POST", "/v1/keys/k:reset", "", "X: y"},
		"a list of others":                 {"GET", "/v1/rules?domain=other", "", "X: y"},
		"usage elsewhere":                  {"GET", "/v1/keys/k/usage?domain=other", "", "X: y"},
		"explain elsewhere":                {"POST", "/v1/explain", `{"domain":"other","attributes":{"a":"b"}}`, "X: y"},
		"explain in the default":           {"POST", "/v1/explain", `{"attributes":{"a":"b"}}`, "X: y"},
	} {
		if got := r.ask(t, q[0], q[1], q[2], q[3], here); got.status != http.StatusForbidden {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
	}
	for _, path := range []string{"/v1/rules/other", "/v1/rules/other/history", "/v1/rules/moved/diff?from=1&to=2"} {
		if got := r.ask(t, "GET", path, "", here); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d: %s", path, got.status, got.body)
		}
	}
	r.must(t, "PUT", "/v1/rules/mine", bucket("mine", 9, mine), ifMatch(1), here)
	r.must(t, "POST", "/v1/overrides", `{"rule":"mine","key":"k","burst":99}`, create, here)
	r.must(t, "POST", "/v1/keys/k:reset?rule=mine", "", here)
	r.must(t, "POST", "/v1/overrides", `{"rule":"other","key":"k","burst":99}`, create, root)

	if got := read[api.RulePage](t, r.must(t, "GET", "/v1/rules", "", here)); len(got.Rules) != 2 {
		t.Errorf("sees %+v", got.Rules)
	}
	if got := read[api.OverridePage](t, r.must(t, "GET", "/v1/overrides", "", here)); len(got.Overrides) != 1 || got.Overrides[0].Rule != "mine" {
		t.Errorf("sees %+v", got.Overrides)
	}
	if got := read[api.History](t, r.must(t, "GET", "/v1/rules/moved/history", "", here)); len(got.Versions) != 1 || got.Versions[0].Version != 2 {
		t.Errorf("sees %+v", got.Versions)
	}
	for _, e := range read[api.Audit](t, r.must(t, "GET", "/v1/audit", "", here)).Entries {
		if e.Rule != "mine" {
			t.Errorf("sees %+v", e)
		}
	}
	if got := read[api.Audit](t, r.must(t, "GET", "/v1/audit?rule=mine", "", here)); len(got.Entries) != 4 || got.Entries[0].Who != "here" {
		t.Errorf("sees %+v", got.Entries)
	}
}

func TestDomain_historyOfWhatIsGone(t *testing.T) {
	t.Parallel()
	file, shown := roleTokens(t)
	r := start(t, func(c *admin.Config) { c.Tokens = file })
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20, `"domain":"here"`), create, bearer(shown["here"]))
	r.must(t, "DELETE", "/v1/rules/a", "", ifMatch(1), bearer(shown["here"]))
	if got := read[api.History](t, r.must(t, "GET", "/v1/rules/a/history", "", bearer(shown["here"]))); len(got.Versions) != 2 {
		t.Errorf("sees %+v", got.Versions)
	}
	if got := r.ask(t, "GET", "/v1/rules/a/history", "", bearer(shown["there"])); got.status != http.StatusNotFound {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}
