package httplimit_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// start is a full second, so that windows begin with it.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func clock() time.Time { return start }

func newLimiter(t testing.TB, list ...rules.Rule) *tallygate.Limiter {
	t.Helper()
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: list}, 1, start)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

// window is a rule of so many requests a minute.
func window(id, route, by string, n int64) rules.Rule {
	return rules.Rule{
		ID: id, Match: map[string]string{"route": route}, Identity: []string{by}, CoversAll: true,
		Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: n, WindowS: 60},
	}
}

// elsewhere is a rule of a domain that is not the default one.
func elsewhere() rules.Rule {
	r := window("r", "*", "ip", 5)
	r.Domain = "public-api"
	return r
}

func identities(t testing.TB, c identity.Config) *identity.Resolver {
	t.Helper()
	r, err := identity.NewResolver(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer is what a client gets.
type answer struct {
	StatusCode int
	Header     http.Header
	Body       string
}

// call sends a request from a peer.
func call(h http.Handler, path, peer string, header ...string) answer {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header[http.CanonicalHeaderKey(header[i])] = append(r.Header[http.CanonicalHeaderKey(header[i])], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// series sends the requests of a case and wants the first five to pass.
func series(t *testing.T, h http.Handler, requests [][]string) {
	t.Helper()
	for i, q := range requests {
		res := call(h, "/", q[0], q[1:]...)
		want := http.StatusOK
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		if res.StatusCode != want {
			t.Errorf("request %d %q: %d, want %d", i+1, q, res.StatusCode, want)
		}
	}
}

func TestWhoAsks(t *testing.T) {
	t.Parallel()
	one := identity.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}
	byKey := identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}}
	gate := func(t *testing.T, c identity.Config, by string) http.Handler {
		t.Helper()
		return httplimit.Handler(httplimit.Config{
			Limiter: newLimiter(t, window("r", "*", by, 5)), Identity: identities(t, c),
		})(http.HandlerFunc(ok))
	}
	through := func(forwarded ...string) [][]string {
		var list [][]string
		for _, s := range forwarded {
			list = append(list, []string{"10.0.0.1:40000", "X-Forwarded-For", s})
		}
		return list
	}
	t.Run("SEC-01 the left-most is attacker text", func(t *testing.T) {
		t.Parallel()
		var list []string
		for i := range 6 {
			list = append(list, fmt.Sprintf("198.51.100.%d, 203.0.113.9", i+1))
		}
		series(t, gate(t, one, "ip"), through(list...))
	})
	t.Run("SEC-03 a spoofed address locks nobody out", func(t *testing.T) {
		t.Parallel()
		h := gate(t, identity.Config{}, "ip")
		var list [][]string
		for i := range 50 {
			list = append(list, []string{fmt.Sprintf("203.0.113.9:%d", 40000+i), "X-Forwarded-For", "192.0.2.77"})
		}
		series(t, h, list)
		res := call(h, "/", "192.0.2.77:1")
		if left := res.Header.Get("X-RateLimit-Remaining"); res.StatusCode != http.StatusOK || left != "4" {
			t.Errorf("the real client: %d, %s left", res.StatusCode, left)
		}
	})
	t.Run("SEC-05 mapped addresses", func(t *testing.T) {
		t.Parallel()
		h := gate(t, one, "ip")
		series(t, h, through("::ffff:192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201", "::ffff:c000:201", "192.0.2.1", "::ffff:192.0.2.1"))
		res := call(h, "/", "10.0.0.1:1", "X-Forwarded-For", "::ffff:192.0.2.2")
		if left := res.Header.Get("X-RateLimit-Remaining"); left != "4" {
			t.Errorf("the neighbour has %s left, want 4", left)
		}
	})
	t.Run("SEC-07 ports, brackets and junk", func(t *testing.T) {
		t.Parallel()
		h := gate(t, one, "ip")
		for _, list := range [][]string{
			{"203.0.113.9:40001", "203.0.113.9:40002", "203.0.113.9:40003", "203.0.113.9:40004", "203.0.113.9:40005", "203.0.113.9:40006"},
			{"[2001:db8:1:2::1]:443", "[2001:db8:1:2::1]:444", "2001:db8:1:2::1", "2001:DB8:1:2:0:0:0:1", "[2001:db8:1:2::1]", "2001:0db8:1:2::1"},
			{"junk1", "junk2", "junk3", "junk4", "junk5", "junk6"},
		} {
			series(t, h, through(list...))
		}
	})
	t.Run("SEC-10 names in any case, values as they are", func(t *testing.T) {
		t.Parallel()
		h := gate(t, byKey, "api_key")
		var list [][]string
		for _, name := range []string{"x-api-key", "x-api-key", "X-API-KEY", "X-API-KEY", "X-Api-Key", "X-Api-Key"} {
			list = append(list, []string{"203.0.113.9:1", name, "K1"})
		}
		series(t, h, list)
		res := call(h, "/", "203.0.113.9:1", "X-Api-Key", "k1")
		if left := res.Header.Get("X-RateLimit-Remaining"); left != "4" {
			t.Errorf("k1 has %s left, want 4", left)
		}
	})
	t.Run("without a key by address", func(t *testing.T) {
		t.Parallel()
		var list [][]string
		for range 6 {
			list = append(list, []string{"203.0.113.9:1"})
		}
		series(t, gate(t, byKey, "api_key"), list)
	})
	t.Run("two keys are refused", func(t *testing.T) {
		t.Parallel()
		res := call(gate(t, byKey, "api_key"), "/", "203.0.113.9:1", "X-Api-Key", "K1", "x-api-key", "K2")
		wantProblem(t, res, http.StatusBadRequest, "ambiguous")
	})
	t.Run("KEY-04 a long key is refused", func(t *testing.T) {
		t.Parallel()
		res := call(gate(t, byKey, "api_key"), "/", "203.0.113.9:1", "X-Api-Key", strings.Repeat("k", 4<<10+1))
		wantProblem(t, res, http.StatusRequestEntityTooLarge, "too_large")
	})
}

// wantProblem checks an answer that is a problem and returns it.
func wantProblem(t *testing.T, res answer, status int, code string) map[string]any {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal([]byte(res.Body), &p); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != status || p["code"] != code || p["type"] != "urn:tallygate:problem:"+code || p["status"] != float64(status) {
		t.Errorf("got %d %v, want %d %s", res.StatusCode, p, status, code)
	}
	if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %q", got)
	}
	return p
}

func TestWhichRoute(t *testing.T) {
	t.Parallel()
	limiter := func(t *testing.T) *tallygate.Limiter {
		t.Helper()
		return newLimiter(t, window("labels", "GET /v1/labels/{id}", "ip", 3), window("rest", "other", "ip", 1))
	}
	mux := func() *http.ServeMux {
		m := http.NewServeMux()
		m.HandleFunc("GET /v1/labels/{id}", ok)
		return m
	}
	router := func(limit func(http.Handler) http.Handler) http.Handler {
		r := chi.NewRouter()
		r.Route("/v1", func(r chi.Router) {
			r.With(limit).Get("/labels/{id}", ok)
		})
		return r
	}
	for _, tt := range []struct {
		name string
		wrap func(limit func(http.Handler) http.Handler) http.Handler
	}{
		{"in front of a mux", func(l func(http.Handler) http.Handler) http.Handler { return l(mux()) }},
		{"behind a mux", func(l func(http.Handler) http.Handler) http.Handler {
			m := http.NewServeMux()
			m.Handle("GET /v1/labels/{id}", l(http.HandlerFunc(ok)))
			return m
		}},
		{"in chi", router},
	} {
		t.Run("SEC-09 "+tt.name, func(t *testing.T) {
			t.Parallel()
			h := tt.wrap(httplimit.Handler(httplimit.Config{Limiter: limiter(t)}))
			for i := range 4 {
				res := call(h, "/v1/labels/"+strconv.Itoa(i+1), "203.0.113.9:1")
				if denied := res.StatusCode == http.StatusTooManyRequests; denied != (i == 3) {
					t.Errorf("/v1/labels/%d: %d", i+1, res.StatusCode)
				}
			}
		})
	}
	t.Run("no route is a route", func(t *testing.T) {
		t.Parallel()
		h := httplimit.Handler(httplimit.Config{Limiter: limiter(t)})(mux())
		for i, want := range []int{http.StatusNotFound, http.StatusTooManyRequests} {
			if res := call(h, "/scan/"+strconv.Itoa(i), "203.0.113.9:1"); res.StatusCode != want {
				t.Errorf("scan %d: %d, want %d", i, res.StatusCode, want)
			}
		}
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	h := httplimit.Handler(httplimit.Config{Limiter: newLimiter(t, window("r", "*", "ip", 2))})(http.HandlerFunc(ok))
	at := strconv.FormatInt(start.Unix()+60, 10)
	for i, want := range []map[string]string{
		{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": at, "RateLimit-Policy": `"r";q=2;w=60`, "RateLimit": `"r";r=1;t=60`},
		{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": at, "RateLimit": `"r";r=0;t=60`},
		{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": at, "RateLimit": `"r";r=0;t=60`, "Retry-After": "60"},
	} {
		res := call(h, "/", "203.0.113.9:1")
		for name, value := range want {
			if got := res.Header.Get(name); got != value {
				t.Errorf("HDR-09 request %d: %s is %q, want %q", i+1, name, got, value)
			}
		}
		if i == 2 {
			p := wantProblem(t, res, http.StatusTooManyRequests, "rate_limit_exceeded")
			if p["error"] != "rate_limit_exceeded" || p["retry_after_seconds"] != float64(60) || p["verdict"] != "deny" || p["denied_by"] != "r" {
				t.Errorf("the body is %v", p)
			}
		} else if res.Header.Get("Retry-After") != "" {
			t.Errorf("request %d: an allowed request has Retry-After", i+1)
		}
	}
	t.Run("where no waiting helps", func(t *testing.T) {
		t.Parallel()
		deny := rules.Rule{ID: "no", Match: map[string]string{"route": "*"}, CoversAll: true, Action: rules.ActionDeny}
		res := call(httplimit.Handler(httplimit.Config{Limiter: newLimiter(t, deny)})(http.HandlerFunc(ok)), "/", "203.0.113.9:1")
		p := wantProblem(t, res, http.StatusTooManyRequests, "rate_limit_exceeded")
		if _, there := p["retry_after_seconds"]; there || res.Header.Get("Retry-After") != "" {
			t.Errorf("a wait is told: %v", p)
		}
	})
	t.Run("other styles", func(t *testing.T) {
		t.Parallel()
		h := httplimit.Handler(httplimit.Config{
			Limiter: newLimiter(t, window("r", "*", "ip", 1)), ResetSeconds: true, NoIETF: true,
			RetryJitter: 0.1, Rand: func() float64 { return 0.999 },
		})(http.HandlerFunc(ok))
		call(h, "/", "203.0.113.9:1")
		res := call(h, "/", "203.0.113.9:1")
		if res.Header.Get("X-RateLimit-Reset") != "60" || res.Header.Get("RateLimit") != "" || res.Header.Get("Retry-After") != "66" {
			t.Errorf("got %v", res.Header)
		}
		if p := wantProblem(t, res, http.StatusTooManyRequests, "rate_limit_exceeded"); p["retry_after_seconds"] != float64(66) {
			t.Errorf("the body says another wait than the header: %v", p)
		}
	})
}

// A client's limit headers are nobody's numbers; the request it belongs to stays as
// it was.
func TestClientsCopiesAreDropped(t *testing.T) {
	t.Parallel()
	var seen http.Header
	h := httplimit.Handler(httplimit.Config{Limiter: newLimiter(t)})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, name := range []string{"X-RateLimit-Limit", "x-ratelimit-remaining", "X-RateLimit-Reset", "RateLimit", "ratelimit-policy", "Retry-After", "X-Other"} {
		r.Header.Set(name, "1")
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	if len(seen) != 1 || seen.Get("X-Other") != "1" {
		t.Errorf("the next handler sees %v", seen)
	}
	if len(r.Header) != 7 {
		t.Errorf("the caller's request was changed: %v", r.Header)
	}
}

// stub answers each check alike.
type stub struct {
	verdict tallygate.Verdict
	err     error
	check   *tallygate.Check
}

func (s stub) Decide(_ context.Context, check tallygate.Check, v *tallygate.Verdict) error {
	if s.check != nil {
		check.Attributes = maps.Clone(check.Attributes)
		*s.check = check
	}
	*v = s.verdict
	return s.err
}

func TestWithoutVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err        error
		status     int
		code       string
		retry, why string
	}{
		{&tallygate.Error{Code: tallygate.CodeStoreTimeout, Rule: "login-ip", Err: errors.New("10.1.1.1 is slow")}, 504, "store_timeout", "1", "deny"},
		{&tallygate.Error{Code: tallygate.CodeStoreUnavailable, Rule: "login-ip"}, 503, "store_unavailable", "1", "deny"},
		{tallygate.ErrClosed, 503, "closed", "1", ""},
		{&tallygate.Error{Code: tallygate.CodeCanceled}, 503, "canceled", "1", ""},
		{&tallygate.Error{Code: tallygate.CodeMissingIdentity}, 422, "missing_identity", "", ""},
		{&tallygate.Error{Code: tallygate.CodeInvalidCost}, 422, "invalid_cost", "", ""},
		{&tallygate.Error{Code: tallygate.CodeTooLarge}, 413, "too_large", "", ""},
		{&tallygate.Error{Code: tallygate.CodeBadRequest}, 400, "bad_request", "", ""},
		{&tallygate.Error{Code: "new"}, 500, "new", "", ""},
		{errors.New("10.1.1.1 said no"), 500, "internal", "", ""},
	} {
		t.Run(tt.code, func(t *testing.T) {
			t.Parallel()
			h := httplimit.Handler(httplimit.Config{Limiter: stub{err: tt.err}})(http.HandlerFunc(ok))
			res := call(h, "/", "203.0.113.9:1")
			p := wantProblem(t, res, tt.status, tt.code)
			if res.Header.Get("Retry-After") != tt.retry || res.Header.Get("X-RateLimit-Limit") != "" {
				t.Errorf("headers %v", res.Header)
			}
			if verdict, _ := p["verdict"].(string); verdict != tt.why {
				t.Errorf("verdict %q, want %q", verdict, tt.why)
			}
			if strings.Contains(fmt.Sprint(p), "10.1.1.1") {
				t.Errorf("the problem names a host: %v", p)
			}
		})
	}
}

// HDR-08: without the store there are no numbers, and none are made up.
func TestDegradedShowsNoNumbers(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{true, false} {
		var seen tallygate.Degraded
		h := httplimit.Handler(httplimit.Config{
			Limiter: stub{verdict: tallygate.Verdict{Allow: allow, RetryMS: 1500, Degraded: tallygate.DegradedTimeout, Tightest: -1}},
			Observe: func(_ *http.Request, v *tallygate.Verdict, _ error) { seen = v.Degraded },
		})(http.HandlerFunc(ok))
		res := call(h, "/", "203.0.113.9:1")
		if res.Header.Get("X-RateLimit-Remaining") != "" || res.Header.Get("RateLimit") != "" || (res.Header.Get("Retry-After") == "2") == allow {
			t.Errorf("allow %v: headers %v", allow, res.Header)
		}
		if seen != tallygate.DegradedTimeout {
			t.Errorf("Observe saw %q", seen)
		}
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	var check tallygate.Check
	denied := tallygate.Verdict{DeniedBy: "r", RetryMS: 100, Tightest: -1}
	t.Run("what is asked", func(t *testing.T) {
		h := httplimit.Handler(httplimit.Config{
			Limiter: stub{verdict: tallygate.Verdict{Allow: true, Tightest: -1}, check: &check}, Domain: "public-api",
			Cost:       func(r *http.Request) int64 { return r.ContentLength },
			Attributes: func(r *http.Request, attrs map[string]string) { attrs["plan"] = r.Header.Get("X-Plan") },
		})(http.HandlerFunc(ok))
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("12345"))
		r.Header.Set("X-Plan", "growth")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if check.Domain != "public-api" || check.Cost != 5 || fmt.Sprint(check.Attributes) != "map[ip:192.0.2.1 plan:growth route:other]" {
			t.Errorf("asked %+v", check)
		}
	})
	t.Run("skipped", func(t *testing.T) {
		h := httplimit.Handler(httplimit.Config{Limiter: stub{verdict: denied}, Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" }})(http.HandlerFunc(ok))
		if res := call(h, "/healthz", ""); res.StatusCode != 200 {
			t.Errorf("skipped: %d", res.StatusCode)
		}
		if res := call(h, "/", ""); res.StatusCode != 429 {
			t.Errorf("not skipped: %d", res.StatusCode)
		}
	})
	t.Run("an answer of one's own", func(t *testing.T) {
		h := httplimit.Handler(httplimit.Config{Limiter: stub{verdict: denied}, OnDeny: func(w http.ResponseWriter, _ *http.Request, v *tallygate.Verdict) {
			http.Error(w, "slow down: "+v.DeniedBy, http.StatusForbidden)
		}})(http.HandlerFunc(ok))
		res := call(h, "/", "")
		if res.StatusCode != 403 || res.Body != "slow down: r\n" || res.Header.Get("Retry-After") != "1" {
			t.Errorf("got %+v", res)
		}
	})
	t.Run("admitted without a verdict", func(t *testing.T) {
		h := httplimit.Handler(httplimit.Config{Limiter: stub{err: tallygate.ErrClosed}, OnError: func(w http.ResponseWriter, r *http.Request, next http.Handler, _ error) {
			next.ServeHTTP(w, r)
		}})(http.HandlerFunc(ok))
		if res := call(h, "/", ""); res.StatusCode != 200 {
			t.Errorf("got %d", res.StatusCode)
		}
	})
	t.Run("report only", func(t *testing.T) {
		for _, s := range []stub{{verdict: denied}, {err: tallygate.ErrClosed}} {
			var v *tallygate.Verdict
			var err error
			h := httplimit.Handler(httplimit.Config{Limiter: s, ReportOnly: true, Observe: func(_ *http.Request, seen *tallygate.Verdict, seenErr error) {
				v, err = seen, seenErr
			}})(http.HandlerFunc(ok))
			res := call(h, "/", "")
			if res.StatusCode != 200 || res.Header.Get("Retry-After") != "" || !errors.Is(err, s.err) || (v == nil) == (s.err == nil) {
				t.Errorf("got %d %v; observed %v, %v", res.StatusCode, res.Header, v, err)
			}
		}
	})
	t.Run("no rules", func(t *testing.T) {
		var seen error
		var logged bytes.Buffer
		h := httplimit.Handler(httplimit.Config{
			Limiter: newLimiter(t), Domain: "nowhere", Log: slog.New(slog.NewTextHandler(&logged, nil)),
			Observe: func(_ *http.Request, _ *tallygate.Verdict, err error) { seen = err },
		})(http.HandlerFunc(ok))
		for range 3 {
			if res := call(h, "/", ""); res.StatusCode != 200 || tallygate.CodeOf(seen) != tallygate.CodeUnknownDomain {
				t.Errorf("got %d; observed %v", res.StatusCode, seen)
			}
		}
		if s := logged.String(); strings.Count(s, "requests pass unlimited") != 1 || !strings.Contains(s, "domain=nowhere") {
			t.Errorf("logged %q, want one warning that names the domain", s)
		}
	})
	t.Run("rules of another domain are told of by default", func(t *testing.T) {
		before := slog.Default()
		defer slog.SetDefault(before)
		var logged bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
		limiter := newLimiter(t, elsewhere())
		for domain, want := range map[string]int{"": 1, "public-api": 0} {
			logged.Reset()
			h := httplimit.Handler(httplimit.Config{Limiter: limiter, Domain: domain})(http.HandlerFunc(ok))
			call(h, "/", "203.0.113.9:1")
			if got := strings.Count(logged.String(), "requests pass unlimited"); got != want {
				t.Errorf("domain %q: %d warnings, want %d: %s", domain, got, want, logged.String())
			}
		}
	})
	t.Run("no limiter", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("Handler without a Limiter did not panic")
			}
		}()
		httplimit.Handler(httplimit.Config{})
	})
}

// What a server's ResponseWriter can do, it can do behind the limiter.
func TestResponseWriterIsPassedOn(t *testing.T) {
	t.Parallel()
	limit := httplimit.Handler(httplimit.Config{Limiter: newLimiter(t, window("r", "*", "ip", 100))})
	can := make(chan string, 8)
	mux := http.NewServeMux()
	mux.HandleFunc("/can", func(w http.ResponseWriter, _ *http.Request) {
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, pusher := w.(http.Pusher)
		_, from := w.(io.ReaderFrom)
		can <- fmt.Sprint(flusher, hijacker, pusher, from)
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			can <- err.Error()
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 299 Mine\r\nContent-Length: 0\r\n\r\n")
	})
	mux.HandleFunc("/flush", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(limit(mux))
		server.EnableHTTP2 = http2
		server.StartTLS()
		t.Cleanup(server.Close)
		res, err := server.Client().Get(server.URL + "/can")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		want := "true true false true"
		if http2 {
			want = "true false true false"
		}
		if got := <-can; got != want {
			t.Errorf("%s: flusher, hijacker, pusher, reader from: %s, want %s", res.Proto, got, want)
		}
		if res.Header.Get("X-RateLimit-Limit") != "100" {
			t.Errorf("%s: headers %v", res.Proto, res.Header)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/flush", nil)
		stream, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(stream.Body).ReadString('\n'); line != "first\n" {
			t.Errorf("%s: the flushed line is %q, %v", res.Proto, line, err)
		}
		cancel()
		_ = stream.Body.Close()
		if http2 {
			continue
		}
		mine, err := server.Client().Get(server.URL + "/hijack")
		if err != nil {
			t.Fatal(err)
		}
		_ = mine.Body.Close()
		if mine.StatusCode != 299 {
			t.Errorf("hijacked: %d", mine.StatusCode)
		}
	}
}
