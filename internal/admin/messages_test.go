package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// What is refused says what to send instead.
func TestProblems_sayWhatToDo(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 5), create)
	for _, tt := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		want, never              string
	}{
		{"a rule goes, unseen", "DELETE", "/v1/rules/a", "", nil, 428, `send If-Match: "VERSION" with the ETag of a rule`, "If-None-Match"},
		{"a rule goes that must not be", "DELETE", "/v1/rules/a", "", []string{create}, 400, "this is about a rule that is there: send If-Match", "none"},
		{"an override goes, unseen", "DELETE", "/v1/overrides?rule=a&key=k", "", nil, 428, "with the ETag of an override", "If-None-Match"},
		{"an override goes that must not be", "DELETE", "/v1/overrides?rule=a&key=k", "", []string{create}, 400, "this is about an override that is there", "none"},
		{"a promotion, unseen", "POST", "/v1/rules/a:promote", "", nil, 428, "send If-Match", "If-None-Match"},
		{"a put, unseen", "PUT", "/v1/rules/a", bucket("a", 5), nil, 428, "If-None-Match: * to create", "none"},
		{"two versions", "DELETE", "/v1/rules/a", "", []string{ifMatch(1), create}, 400, "send If-Match", "none"},
		{"a canary of nothing", "POST", "/v1/rules/a:canary", "", []string{ifMatch(1)}, 400, `such as {"percent":10}`, "too early"},
		{"a verb there is not", "POST", "/v1/rules/a:foo", "", []string{ifMatch(1)}, 405, "there is no :foo of a rule; there are :shadow, :enforce, :canary, :promote, :rollback", "endpoint"},
		{"a post on a rule", "POST", "/v1/rules/a", "", []string{ifMatch(1)}, 405, "this endpoint has GET, PUT, DELETE", "there is no"},
	} {
		got := r.ask(t, tt.method, tt.path, tt.body, tt.headers...)
		p := got.problem(t)
		if got.status != tt.status || !strings.Contains(p.Detail, tt.want) || strings.Contains(p.Detail, tt.never) {
			t.Errorf("%s: %d %s", tt.name, got.status, p.Detail)
		}
	}
}

// Who may not do something gets to know who may.
func TestForbidden_namesTheRole(t *testing.T) {
	t.Parallel()
	file, shown := tokens(t, "v viewer", "e editor", "p pod", "c check")
	r := start(t, func(c *admin.Config) { c.Tokens = file })
	for _, tt := range []struct{ token, method, path, body, want string }{
		{"v", "POST", "/v1/pods/x/report", `{"pod":"x"}`, "it needs role pod"},
		{"c", "GET", "/v1/changes", "", "it needs role pod"},
		{"p", "GET", "/v1/rules", "", "it needs role viewer, editor or admin"},
		{"v", "DELETE", "/v1/rules/a", "", "it needs role editor or admin"},
		{"e", "GET", "/debug/pprof/cmdline", "", "it needs role admin"},
		{"c", "GET", "/v1/openapi.json", "", "it needs another role"},
	} {
		got := r.ask(t, tt.method, tt.path, tt.body, bearer(shown[tt.token]))
		if p := got.problem(t); got.status != http.StatusForbidden || !strings.HasSuffix(p.Detail, tt.want) {
			t.Errorf("%s %s as %s: %d %s", tt.method, tt.path, tt.token, got.status, p.Detail)
		}
	}
}

// A process that follows a control plane says where it is.
func TestPods_elsewhere(t *testing.T) {
	t.Parallel()
	const where = "it follows the control plane at https://control:8090; ask there"
	for _, tt := range []struct{ plane, want string }{{"https://control:8090", where}, {"", "nobody reports to this process"}} {
		r := start(t, func(c *admin.Config) { c.Fleet, c.ControlPlane = nil, tt.plane })
		got := r.ask(t, "GET", "/v1/pods", "")
		p := got.problem(t)
		if p.Code != api.NotFound || !strings.HasSuffix(p.Detail, tt.want) {
			t.Errorf("%q: got %s", tt.plane, p.Detail)
		}
	}
}

// Who says where they are is not told where they are.
func TestWho_namesAPlaceOnce(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 5), create, "Tallygate-Who: root@vm")
	r.must(t, "PUT", "/v1/rules/b", bucket("b", 5), create, "Tallygate-Who: kim")
	r.must(t, "PUT", "/v1/rules/c", bucket("c", 5), create)
	entries, err := r.store.Audit(t.Context(), rulestore.AuditFilter{Limit: 10})
	if err != nil || len(entries) != 3 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, want := range []string{"anonymous@127.0.0.1", "kim@127.0.0.1", "root@vm"} {
		if entries[i].Who != want {
			t.Errorf("got %s, want %s", entries[i].Who, want)
		}
	}
}
