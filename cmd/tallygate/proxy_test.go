package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// upstream is a server that says yes.
func upstream(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }))
	t.Cleanup(s.Close)
	return s.URL
}

// inDomain is a rule of n requests a minute for each address.
func inDomain(domain, id, n string) string {
	return "  - {id: " + id + ", domain: " + domain + ", covers_all: true, identity: ip, algorithm: fixed_window, limit: " + n + ", window_s: 60}\n"
}

// limitOf is what the answer to one request says the limit is; "" for none.
func (s *service) limitOf(t testing.TB, path string, header ...string) (limit string, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	return a.Header.Get("X-RateLimit-Limit"), a.StatusCode
}

// Without --domain the proxy limits by the only domain there is, whatever its name.
func TestProxyTakesTheOnlyDomain(t *testing.T) {
	t.Parallel()
	s := front(t, upstream(t), "rules:\n"+inDomain("public-api", "a", "7"))
	for _, step := range []struct{ name, rules, limit, logged string }{
		{"the only one", "", "7", `level=INFO msg="--domain is not given: requests are limited by the only domain that has rules"`},
		{
			"another beside it", inDomain("public-api", "a", "8") + inDomain("internal", "b", "9"), "8",
			`fault="--domain is not given, and rules are in internal, public-api, none in default: name one with --domain"`,
		},
		{
			"the default one", inDomain("public-api", "a", "8") + inDomain("default", "c", "10"), "10",
			`level=WARN msg="--domain is not given, and the rules have changed: requests are limited by another domain"`,
		},
		{"none at all", "  []", "", `msg="requests pass unlimited: there is no rule in their domain`},
	} {
		if step.rules != "" {
			s.reload(t, "rules:\n"+step.rules)
		}
		if limit, status := s.limitOf(t, "/"); limit != step.limit || status != http.StatusOK {
			t.Errorf("%s: %d, limit %q, want %q", step.name, status, limit, step.limit)
		}
		if log := s.stderr.String(); strings.Count(log, step.logged) != 1 {
			t.Errorf("%s: logged %s\nwant once: %s", step.name, log, step.logged)
		}
	}
}

// Of several domains none is more likely than the others, and a proxy that limits
// nothing helps nobody.
func TestProxyDoesNotGuessItsDomain(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/rules.yaml"
	write(t, path, "rules:\n"+inDomain("a", "one", "1")+inDomain("b", "two", "2"))
	args := []string{"proxy", "--listen", "127.0.0.1:0", "--admin", "", "--upstream", "http://127.0.0.1:1", "--rules", "file:" + path}
	code, _, stderr := run(t, nil, args...)
	if want := "--domain is not given, and rules are in a, b, none in default: name one with --domain"; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("%d: %s\nwant 2: %s", code, stderr, want)
	}
}

func TestProxyWithADomainThatHasNoRule(t *testing.T) {
	t.Parallel()
	s := front(t, upstream(t), "rules:\n"+inDomain("public-api", "a", "7"), "--domain", "public_api")
	if limit, status := s.limitOf(t, "/"); limit != "" || status != http.StatusOK {
		t.Errorf("%d, limit %q", status, limit)
	}
	want := "no rule is in domain public_api, so that nothing is limited; rules are in public-api: name one with --domain"
	if log := s.stderr.String(); strings.Count(log, want) != 1 {
		t.Errorf("logged %s\nwant once: %s", log, want)
	}
}

// Gateways that ask get the same.
func TestGatewaysGetTheOnlyDomain(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+inDomain("public-api", "a", "7"), "--trusted-proxies", "127.0.0.0/8")
	const ask = "/v1/ratelimit:forward"
	of := []string{"X-Forwarded-Uri", "/", "X-Forwarded-Method", "GET", "X-Forwarded-For", "203.0.113.9"}
	if limit, status := s.limitOf(t, ask, of...); limit != "7" || status != http.StatusOK {
		t.Errorf("%d, limit %q, want 7", status, limit)
	}
	s.reload(t, "rules:\n"+inDomain("b", "a", "7")+inDomain("c", "d", "8"))
	if limit, status := s.limitOf(t, ask, of...); limit != "" || status != http.StatusOK {
		t.Errorf("of two new domains: %d, limit %q", status, limit)
	}
	if want := "rules are in b, c, none in default"; !strings.Contains(s.stderr.String(), want) {
		t.Errorf("logged %s\nwant %s", s.stderr, want)
	}
}

// Costs that a rule refuses are told of at the start and when rules change, not by clients.
func TestCostsThatDoNotFitTheRules(t *testing.T) {
	t.Parallel()
	const numbers = ", covers_all: true, identity: ip, limit: 100, window_s: 60, "
	good := "  - {id: good" + numbers + "algorithm: fixed_window, max_cost: 5}\n"
	shown := "  - {id: shown" + numbers + "algorithm: sliding_log, mode: shadow}\n"
	for _, tt := range []struct {
		name, rule, want string
		args             []string
	}{
		{
			"above max_cost", "  - {id: bad" + numbers + "algorithm: fixed_window, max_cost: 4}\n",
			"--cost 5 is above max_cost 4 of rule bad: requests that it matches get 500; give the rule a max_cost of 5 or more, or lower --cost", nil,
		},
		{
			"the estimate above max_cost", "  - {id: bad" + numbers + "algorithm: fixed_window}\n",
			"--cost 5 is above max_cost 1 of rule bad",
			[]string{"--cost-header", "X-Tokens"},
		},
		{
			"a log", "  - {id: bad" + numbers + "algorithm: sliding_log, max_cost: 5}\n",
			"--cost-header needs rules whose costs can change, and rule bad is a sliding_log",
			[]string{"--cost-header", "X-Tokens"},
		},
		{
			"local", "  - {id: bad" + numbers + "algorithm: fixed_window, max_cost: 5, counting: local}\n",
			"--cost-header needs rules that all pods count, and rule bad has counting local",
			[]string{"--cost-header", "X-Tokens"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := front(t, upstream(t), "rules:\n"+good+tt.rule+shown, append([]string{"--cost", "5"}, tt.args...)...)
			if got := strings.Count(s.stderr.String(), tt.want); got != 1 {
				t.Errorf("told %d times at the start, want once: %s", got, s.stderr)
			}
			if _, status := s.limitOf(t, "/"); status != http.StatusInternalServerError {
				t.Errorf("a request got %d, want 500", status)
			}
			s.reload(t, "rules:\n"+good+shown)
			if _, status := s.limitOf(t, "/"); status != http.StatusOK {
				t.Errorf("without the rule: %d", status)
			}
			s.reload(t, "rules:\n"+shown+tt.rule+good)
			if got := strings.Count(s.stderr.String(), tt.want); got != 2 {
				t.Errorf("told %d times after a change, want once more: %s", got, s.stderr)
			}
			if bad := "rule shown"; strings.Contains(s.stderr.String(), bad+":") || strings.Contains(s.stderr.String(), "rule good:") {
				t.Errorf("told of rules that refuse nothing: %s", s.stderr)
			}
		})
	}
}

// What the proxy counts is on /metrics.
func TestProxyMetrics(t *testing.T) {
	t.Parallel()
	s := front(t, "http://127.0.0.1:1", "rules:\n"+inDomain("default", "a", "7"))
	if _, status := s.limitOf(t, "/"); status != http.StatusBadGateway {
		t.Errorf("%d", status)
	}
	a, err := s.client.Get("http://" + s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`tallygate_proxy_upstream_failures_total{kind="unreachable"} 1`, `tallygate_proxy_upstream_failures_total{kind="timeout"} 0`,
		`tallygate_proxy_upstream_failures_total{kind="broken"} 0`, "tallygate_proxy_canceled_requests_total 0",
		`tallygate_proxy_untold_costs_total{kind="missing"} 0`, `tallygate_proxy_untold_costs_total{kind="bad"} 0`, "tallygate_proxy_lost_costs_total 0",
	} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("no line %s", want)
		}
	}
	if !strings.Contains(string(text), "\ntallygate_proxy_inflight_requests ") {
		t.Error("no requests under way")
	}
}
