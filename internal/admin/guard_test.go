package admin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// from asks the handler as a peer at an address.
func (r *rig) from(address, method, path string, headers ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, "http://localhost:8090"+path, nil)
	req.RemoteAddr = address
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w
}

func TestGuard_withoutTokensThisMachineAlone(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for name, tt := range map[string]struct {
		address, host string
		want          int
	}{
		"IPv4":                   {"127.0.0.1:5", "127.0.0.1:8090", 200},
		"another of it":          {"127.8.8.8:5", "localhost", 200},
		"IPv6":                   {"[::1]:5", "[::1]:8090", 200},
		"IPv6 without a port":    {"[::1]:5", "[::1]", 200},
		"mapped":                 {"[::ffff:127.0.0.1]:5", "localhost:1", 200},
		"another machine":        {"192.0.2.7:5", "localhost:8090", 403},
		"another by IPv6":        {"[2001:db8::1]:5", "localhost:8090", 403},
		"a rebound name":         {"127.0.0.1:5", "evil.example", 403},
		"one that looks like it": {"127.0.0.1:5", "localhost.evil.example:8090", 403},
		"another's address":      {"127.0.0.1:5", "192.0.2.7:8090", 403},
		"no address":             {"@", "localhost", 403},
	} {
		for _, path := range []string{"/v1/rules", "/metrics", "/debug/pprof/cmdline", "/v1/changes"} {
			if got := r.from(tt.address, "GET", path, "Host: "+tt.host); got.Code != tt.want {
				t.Errorf("%s: GET %s: status %d, want %d: %s", name, path, got.Code, tt.want, got.Body)
			}
		}
		if got := r.from(tt.address, "GET", "/healthz", "Host: "+tt.host); got.Code != 200 {
			t.Errorf("%s: /healthz: status %d", name, got.Code)
		}
	}
}

func TestGuard_otherSitesPagesWriteNothing(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	for header, want := range map[string]int{
		"Origin: https://evil.example": 403, "Sec-Fetch-Site: cross-site": 403, "Sec-Fetch-Site: same-site": 403, "Origin: null": 403,
		"Origin: http://localhost:8090": 200, "Sec-Fetch-Site: same-origin": 200, "X: y": 200,
	} {
		version := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", "")).Version
		if got := r.from("127.0.0.1:5", "POST", "/v1/rules/a:shadow", header, ifMatch(version)); got.Code != want {
			t.Errorf("%s: status %d, want %d: %s", header, got.Code, want, got.Body)
		}
		if got := r.from("127.0.0.1:5", "POST", "/v1/keys/k:reset", header); got.Code != want {
			t.Errorf("%s: reset: status %d, want %d", header, got.Code, want)
		}
	}
}

// The clock of these tests stands still unless it is told.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func TestGuard_pace(t *testing.T) {
	t.Parallel()
	file, shown := tokens(t, "kim viewer", "lee viewer", "pod pod")
	c := &clock{at: time.Unix(1_800_000_000, 0)}
	r := start(t, func(cfg *admin.Config) { cfg.Tokens, cfg.Rate, cfg.Burst, cfg.Now = file, 2, 5, c.now })
	count := func(address, path string, headers ...string) (passed int) {
		for range 20 {
			w := r.from(address, "GET", path, headers...)
			if w.Code != http.StatusTooManyRequests {
				passed++
			} else if w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"too_many_requests"`) {
				t.Errorf("%v: %s", w.Header(), w.Body)
			}
		}
		return passed
	}
	if got := count("192.0.2.1:1", "/v1/rules", bearer(shown["kim"])); got != 5 {
		t.Errorf("%d passed, want 5", got)
	}
	if got := count("192.0.2.1:1", "/v1/rules", bearer(shown["lee"])); got != 5 {
		t.Errorf("another token: %d passed, want 5", got)
	}
	c.step(time.Second)
	if got := count("192.0.2.2:1", "/v1/rules", bearer(shown["kim"])); got != 2 {
		t.Errorf("a second later, from elsewhere: %d passed, want 2", got)
	}
	// Who guesses is slowed by address, an IPv6 network being one.
	if got := count("192.0.2.3:1", "/v1/rules", bearer("tg_guess")); got != 5 {
		t.Errorf("guessing: %d passed, want 5", got)
	}
	if got := count("[2001:db8::1]:1", "/v1/rules", bearer("tg_guess")) + count("[2001:db8::2]:1", "/v1/rules", bearer("tg_guess")); got != 5 {
		t.Errorf("guessing from a network: %d passed, want 5", got)
	}
	if got := count("192.0.2.1:1", "/v1/changes", bearer(shown["pod"])); got != 20 {
		t.Errorf("long polls: %d passed, want all", got)
	}
	if got := count("192.0.2.1:1", "/metrics", bearer(shown["kim"])); got != 20 {
		t.Errorf("metrics: %d passed, want all", got)
	}
}

func TestGuard_bounds(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	large := bucket("a", 20, `"description":"`+strings.Repeat("x", 1<<20)+`"`)
	for name, tt := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               api.Code
	}{
		"a large rule":        {"PUT", "/v1/rules/a", large, []string{create}, 413, api.TooLarge},
		"a large bulk":        {"POST", "/v1/overrides", `{"overrides":[` + strings.Repeat(" ", 16<<20) + `]}`, nil, 413, api.TooLarge},
		"a long key":          {"GET", "/v1/keys/" + strings.Repeat("k", 4097) + "/usage", "", nil, 413, api.TooLarge},
		"compressed":          {"PUT", "/v1/rules/a", bucket("a", 20), []string{create, "Content-Encoding: gzip"}, 415, api.UnsupportedMediaType},
		"no such path":        {"GET", "/v2/rules", "", nil, 404, api.NotFound},
		"no such verb":        {"POST", "/v1/rules/a:explode", "", []string{ifMatch(1)}, 405, api.MethodNotAllowed},
		"another method":      {"POST", "/v1/rules/a", "", nil, 405, api.MethodNotAllowed},
		"a long why":          {"PUT", "/v1/rules/a", bucket("a", 20), []string{create, "Tallygate-Why: " + strings.Repeat("w", 4097)}, 400, api.BadRequest},
		"a why of two lines":  {"PUT", "/v1/rules/a?why=a%0Ab", bucket("a", 20), []string{create}, 400, api.BadRequest},
		"a long name":         {"PUT", "/v1/rules/a", bucket("a", 20), []string{create, "Tallygate-Who: " + strings.Repeat("w", 300)}, 400, api.BadRequest},
		"a broken query":      {"GET", "/v1/rules?q=%zz", "", nil, 400, api.BadRequest},
		"a query of NUL":      {"GET", "/v1/audit?who=%00", "", nil, 400, api.BadRequest},
		"a query of no UTF-8": {"GET", "/v1/rules?q=%ff", "", nil, 400, api.BadRequest},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			got := r.ask(t, tt.method, tt.path, tt.body, tt.headers...)
			if got.status != tt.status || got.problem(t).Code != tt.code {
				t.Errorf("status %d, want %d %s: %.300s", got.status, tt.status, tt.code, got.body)
			}
			if tt.status == 405 && got.header.Get("Allow") != "GET, PUT, DELETE" {
				t.Errorf("Allow: %s", got.header.Get("Allow"))
			}
		})
	}
}

func TestGuard_inflight(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	wait := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- struct{}{}; <-leave })
	r := start(t, func(c *admin.Config) { c.MaxInflight, c.MaxPolls, c.Metrics, c.Changes = 1, 1, wait, wait })
	var done sync.WaitGroup
	for _, path := range []string{"/metrics", "/v1/changes"} {
		done.Go(func() { r.from("127.0.0.1:1", "GET", path) })
		<-entered
	}
	for _, path := range []string{"/v1/rules", "/v1/changes"} {
		if got := r.from("127.0.0.1:1", "GET", path); got.Code != 503 || !strings.Contains(got.Body.String(), `"overloaded"`) || got.Header().Get("Retry-After") != "1" {
			t.Errorf("%s: status %d: %s", path, got.Code, got.Body)
		}
	}
	close(leave)
	done.Wait()
	if got := r.from("127.0.0.1:1", "GET", "/v1/rules"); got.Code != 200 {
		t.Errorf("status %d after it", got.Code)
	}
}

// away is a database that does not answer, whose error names a host.
type away struct{}

var errAway = errors.New("dial tcp db.internal:5432: connection refused")

func (away) Whole(context.Context) (rulestore.Set, error) { return rulestore.Set{}, errAway }

func (away) Since(context.Context, int64) (rulestore.Changes, error) {
	return rulestore.Changes{}, errAway
}

func (away) Rule(context.Context, string) (rulestore.Rule, error) { return rulestore.Rule{}, errAway }

func (away) Override(context.Context, string, []string) (rulestore.Override, error) {
	return rulestore.Override{}, errAway
}

func (away) Apply(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	return rulestore.Applied{}, errAway
}

func (away) DryRun(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	return rulestore.Applied{}, errAway
}

func (away) History(context.Context, string, int64, int) ([]rulestore.Version, error) {
	return nil, errAway
}

func (away) Version(context.Context, string, int64) (rulestore.Version, error) {
	return rulestore.Version{}, errAway
}

func (away) Audit(context.Context, rulestore.AuditFilter) ([]rulestore.Entry, error) {
	return nil, errAway
}

func TestGuard_databaseAway(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	r := start(t, func(c *admin.Config) {
		c.Reader, c.Writer, c.Records, c.Historian, c.Auditor = away{}, away{}, away{}, away{}, away{}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	for _, q := range [][]string{
		{"GET", "/v1/rules", ""},
		{"GET", "/v1/rules/a", ""},
		{"PUT", "/v1/rules/a", bucket("a", 20, `"description":"in-the-body"`)},
		{"GET", "/v1/rules/a/history", ""},
		{"GET", "/v1/rules/a/diff?from=1", ""},
		{"GET", "/v1/overrides?key=secret-key", ""},
		{"DELETE", "/v1/overrides?rule=a&key=secret-key", ""},
		{"POST", "/v1/keys/secret-key:reset", ""},
		{"GET", "/v1/audit", ""},
		{"GET", "/v1/pods", ""},
	} {
		got := r.ask(t, q[0], q[1], q[2], ifMatch(1))
		if p := got.problem(t); got.status != 503 || p.Code != api.StoreUnavailable || got.header.Get("Retry-After") != "1" || strings.Contains(string(got.body), "db.internal") {
			t.Errorf("%s %s: status %d: %s", q[0], q[1], got.status, got.body)
		}
	}
	if text := log.String(); !strings.Contains(text, "db.internal") || strings.Contains(text, "secret-key") || strings.Contains(text, "in-the-body") {
		t.Errorf("the log says %s", text)
	}
}

// busy is a writer that others go before.
type busy struct{ away }

func (busy) Apply(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	return rulestore.Applied{}, fmt.Errorf("%w: of db.internal", rulestore.ErrBusy)
}

func TestGuard_writersThatWait(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *admin.Config) { c.Writer = busy{} })
	for _, q := range [][]string{
		{"PUT", "/v1/rules/a", bucket("a", 20, `"owner":"kim"`)},
		{"POST", "/v1/overrides", `{"overrides":[{"rule":"a","key":"k","burst":5}]}`},
	} {
		got := r.ask(t, q[0], q[1], q[2], ifMatch(1))
		p := got.problem(t)
		if got.status != 503 || p.Code != api.Overloaded || got.header.Get("Retry-After") != "5" ||
			!strings.Contains(p.Detail, "nothing was changed") || strings.Contains(string(got.body), "db.internal") {
			t.Errorf("%s %s: status %d: %s", q[0], q[1], got.status, got.body)
		}
	}
}

// syncBuffer is a buffer for several writers.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestNew_refuses(t *testing.T) {
	t.Parallel()
	if _, err := admin.New(admin.Config{}); err == nil {
		t.Error("an API without a store")
	}
	if _, err := admin.New(admin.Config{Reader: away{}, Writer: away{}, Records: away{}, Historian: away{}, Auditor: away{}, Rate: -1}); err == nil {
		t.Error("a negative rate")
	}
}
