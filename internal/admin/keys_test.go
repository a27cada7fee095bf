package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

// Looking spends nothing and changes no state (API-02); keys may be anything.
func TestUsage(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *admin.Config) {
		c.Recent = func(domain, rule string, key []string) (float64, bool) {
			return 2.5, domain == "shop" && rule == "free" && key[0] == "acct_1"
		}
	})
	r.limiter.left = 3
	for range 100 {
		got := read[api.Usage](t, r.must(t, "GET", "/v1/keys/acct_1/usage?domain=shop", ""))
		if u := got.Rules[0]; u.Remaining != 3 || u.RecentPerS == nil || *u.RecentPerS != 2.5 {
			t.Fatalf("got %+v", u)
		}
		if u := got.Rules[1]; u.Error != api.StoreTimeout || u.RecentPerS != nil {
			t.Fatalf("got %+v", u)
		}
	}
	if slices.ContainsFunc(r.limiter.asked, func(s string) bool { return !strings.HasPrefix(s, "usage") }) {
		t.Errorf("asked %q", r.limiter.asked)
	}
	for path, want := range map[string]string{
		"acct_1":      `usage default ["acct_1"]`,
		"2001:db8::1": `usage default ["2001:db8::1"]`,
		"a%2Fb":       `usage default ["a/b"]`,
		"a%2Fusage":   `usage default ["a/usage"]`,
		"100%25":      `usage default ["100%"]`,
		url.PathEscape(`["acct_1","GET /v1/{id}"]`): `usage default ["acct_1" "GET /v1/{id}"]`,
		url.PathEscape(`["[x"]`):                    `usage default ["[x"]`,
		"%C3%BC%20%3F":                              `usage default ["ü ?"]`,
	} {
		r.must(t, "GET", "/v1/keys/"+path+"/usage", "")
		if got := r.limiter.asked[len(r.limiter.asked)-1]; got != want {
			t.Errorf("%s: asked %s, want %s", path, got, want)
		}
	}
	for path, status := range map[string]int{
		"/v1/keys//usage": 400, "/v1/keys/a/b/usage": 404, "/v1/keys/%5Bx/usage": 400, "/v1/keys/%5B%5D/usage": 400, "/v1/keys/%FF/usage": 400, "/v1/keys/a": 404,
		"/v1/keys/" + url.PathEscape(`["a","b","c","d","e"]`) + "/usage": 400,
	} {
		if got := r.ask(t, "GET", path, ""); got.status != status {
			t.Errorf("%s: status %d, want %d: %s", path, got.status, status, got.body)
		}
	}
}

func TestLimiter_errors(t *testing.T) {
	t.Parallel()
	for code, status := range map[tallygate.Code]int{
		tallygate.CodeUnknownDomain: 404, tallygate.CodeUnknownRule: 404, tallygate.CodeBadRequest: 400, tallygate.CodeTooLarge: 413,
		tallygate.CodeInvalidCost: 422, tallygate.CodeMissingIdentity: 422, tallygate.CodeStoreTimeout: 504, tallygate.CodeStoreUnavailable: 503,
		tallygate.CodeClosed: 503, tallygate.CodeCanceled: 503,
	} {
		r := start(t, nil)
		r.limiter.err = &tallygate.Error{Code: code, Message: "no", Field: "/entries/0", Err: fmt.Errorf("redis.internal is away")}
		for _, q := range [][]string{{"GET", "/v1/keys/k/usage", ""}, {"POST", "/v1/keys/k:reset", ""}, {"POST", "/v1/explain", `{"attributes":{"a":"b"}}`}} {
			if got := r.ask(t, q[0], q[1], q[2]); got.status != status || strings.Contains(string(got.body), "redis.internal") {
				t.Errorf("%s of %s: status %d, want %d: %s", code, q[1], got.status, status, got.body)
			}
		}
	}
	bare := start(t, func(c *admin.Config) { c.Looker, c.Resetter, c.Fleet = nil, nil, nil })
	for _, q := range [][]string{{"GET", "/v1/keys/k/usage", ""}, {"POST", "/v1/keys/k:reset", ""}, {"POST", "/v1/explain", `{"attributes":{"a":"b"}}`}, {"GET", "/v1/pods", ""}, {"POST", "/v1/pods/p/report", `{"pod":"p"}`}} {
		if got := bare.ask(t, q[0], q[1], q[2]); got.status != 404 {
			t.Errorf("%s: status %d: %s", q[1], got.status, got.body)
		}
	}
}

func TestReset_isInTheStoreThenInTheFeed(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	got := read[api.Reset](t, r.must(t, "POST", "/v1/keys/2001:db8::1:reset?rule=a&domain=shop", "", "Tallygate-Why: support"))
	if got.Buckets != 2 || !slices.Equal(r.limiter.asked, []string{`reset shop a ["2001:db8::1"]`}) {
		t.Errorf("got %+v, asked %q", got, r.limiter.asked)
	}
	changes, err := r.store.Since(t.Context(), 0)
	if err != nil || len(changes.Resets) != 1 || changes.Resets[0].Rule != "a" || changes.Resets[0].Key[0] != "2001:db8::1" || changes.Resets[0].Revision != got.Revision {
		t.Errorf("got %+v, %v", changes.Resets, err)
	}
	if e := read[api.Audit](t, r.must(t, "GET", "/v1/audit?action=reset", "")).Entries; len(e) != 1 || e[0].Why != "support" {
		t.Errorf("got %+v", e)
	}
	// What the store refuses is not told to pods.
	r.limiter.err = &tallygate.Error{Code: tallygate.CodeStoreUnavailable, Message: "away"}
	r.ask(t, "POST", "/v1/keys/k:reset", "")
	if again, err := r.store.Since(t.Context(), 0); err != nil || len(again.Resets) != 1 {
		t.Errorf("got %+v, %v", again.Resets, err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	got := read[api.Explanation](t, r.must(t, "POST", "/v1/explain", `{"domain":"shop","entries":[{"rule":"free","key":"k","cost":0},{"rule":"free","key":["a","b"]}]}`))
	if got.Verdict != "deny" || got.DeniedBy != "free" || got.Rules[0].Reason != "over_limit" || got.Rules[0].Mode != "enforce" || got.Unmatched != 2 {
		t.Errorf("got %+v", got)
	}
	if c := r.limiter.check; c.Domain != "shop" || !c.Entries[0].Look || c.Entries[1].Look || len(c.Entries[1].Key) != 2 || c.Cost != 0 || c.Look { // with entries the limiter takes no other cost
		t.Errorf("asked %+v", c)
	}
	for body, status := range map[string]int{
		`{}`: 400, `[]`: 400, ``: 400, `{"entries":[{"rule":"a","key":"k"}],"attributes":{"a":"b"}}`: 400, `{"attributes":{"a":"b"},"cost":-1}`: 422,
		`{"attributes":{"a":"b"},"cost":1.5}`: 400, `{"attributes":{"a":"b"},"coast":1}`: 400, `{"attributes":{"a":1}}`: 400,
		`{"entries":[{"rule":"a","key":"k"}],"cost":1}`: 400, `{"entries":[{"rule":"a","key":7}]}`: 400,
	} {
		if got := r.ask(t, "POST", "/v1/explain", body); got.status != status {
			t.Errorf("%s: status %d, want %d: %s", body, got.status, status, got.body)
		}
	}
}

// The limiter is a real one: it has its own mind about what a check may have.
func TestExplain_limiter(t *testing.T) {
	t.Parallel()
	set, problems := yaml.Parse([]byte("rules:\n- {id: free, domain: shop, match: {plan: free}, identity: k, algorithm: token_bucket, rate: 1, burst: 5, max_cost: 5}\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, func(c *admin.Config) { c.Looker = limiter })
	for name, body := range map[string]string{
		"entries":                      `{"domain":"shop","entries":[{"rule":"free","key":"a"}]}`,
		"entries with a cost":          `{"domain":"shop","entries":[{"rule":"free","key":"a","cost":5}]}`,
		"entries that look":            `{"domain":"shop","entries":[{"rule":"free","key":"a","cost":0}]}`,
		"entries and empty attributes": `{"domain":"shop","attributes":{},"entries":[{"rule":"free","key":"a"}]}`,
		"attributes":                   `{"domain":"shop","attributes":{"plan":"free","k":"a"}}`,
		"attributes with a cost":       `{"domain":"shop","attributes":{"plan":"free","k":"a"},"cost":5}`,
	} {
		got := read[api.Explanation](t, r.must(t, "POST", "/v1/explain", body))
		if got.Verdict != "allow" || len(got.Rules) != 1 || got.Rules[0].Remaining != 5 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestPods_report(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	// A field of the next release is passed over.
	r.must(t, "POST", "/v1/pods/pod%2F1/report", `{"pod":"pod/1","revision":7,"uptime_ms":5,"shards":[{"shard":"a","breaker":"open"}],"rates":[{"domain":"default","rule":"a","key":"k","per_s":3}],"later":true}`)
	got := r.must(t, "GET", "/v1/pods", "")
	if p := read[api.Pods](t, got).Pods; len(p) != 1 || p[0].Pod != "pod/1" || p[0].Revision != 7 || p[0].Shards[0].Breaker != "open" || !p[0].Live || p[0].SeenAt.IsZero() {
		t.Errorf("got %+v", p)
	}
	if strings.Contains(string(got.body), "per_s") {
		t.Errorf("keys are shown: %s", got.body)
	}
	rates := strings.TrimSuffix(strings.Repeat(`{"rule":"a","key":"k","per_s":3},`, 1001), ",")
	for name, q := range map[string][]string{
		"of another pod":      {"p", `{"pod":"q"}`},
		"without a name":      {"p", `{}`},
		"a control character": {"p%0A", `{"pod":"p\n"}`},
		"a long name":         {strings.Repeat("p", 257), `{"pod":"` + strings.Repeat("p", 257) + `"}`},
		"too many rates":      {"p", `{"pod":"p","rates":[` + rates + `]}`},
		"too many faults":     {"p", `{"pod":"p","faults":["` + strings.Repeat(`","`, 20) + `"]}`},
		"no JSON":             {"p", `{"pod"`},
		"a wrong type":        {"p", `{"pod":"p","revision":"7"}`},
	} {
		if got := r.ask(t, "POST", "/v1/pods/"+q[0]+"/report", q[1]); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", name, got.status, got.body)
		}
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create, "Tallygate-Who: kim")
	r.must(t, "PUT", "/v1/rules/b", bucket("b", 20), create, "Tallygate-Who: lee")
	r.must(t, "POST", "/v1/overrides", `{"rule":"b","key":"k","burst":50}`, create, "Tallygate-Who: kim")
	for query, want := range map[string]int{
		"": 3, "rule=b": 2, "key=k": 1, "who=kim@127.0.0.1": 2, "action=put": 2, "from=2030-01-01T00:00:00Z": 0, "to=2020-01-01T00:00:00Z": 0, "limit=2": 2,
	} {
		if got := read[api.Audit](t, r.must(t, "GET", "/v1/audit?"+query, "")); len(got.Entries) != want {
			t.Errorf("%s: %d entries, want %d", query, len(got.Entries), want)
		}
	}
	first := read[api.Audit](t, r.must(t, "GET", "/v1/audit?limit=2", ""))
	if next := read[api.Audit](t, r.must(t, "GET", fmt.Sprintf("/v1/audit?limit=2&before=%d", first.Next), "")); len(next.Entries) != 1 || next.Next != 0 || next.Entries[0].Who != "kim@127.0.0.1" {
		t.Errorf("got %+v after %+v", next, first)
	}
	for _, query := range []string{"action=explode", "from=yesterday", "limit=0", "before=x", "key="} {
		if got := r.ask(t, "GET", "/v1/audit?"+query, ""); got.status != http.StatusBadRequest {
			t.Errorf("%s: status %d: %s", query, got.status, got.body)
		}
	}
}
