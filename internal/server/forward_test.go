package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

const (
	forwardPath = "/v1/ratelimit:forward"
	gatewayPeer = "10.0.0.1:4000"
)

// forwarding returns the endpoints that gateways ask, over s or on memory.
func forwarding(t testing.TB, s store.Store, list ...rules.Rule) http.Handler {
	t.Helper()
	c := newClock()
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: list}, 1, c.now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if s == nil {
		s = store.NewMemoryStore(store.MemoryConfig{Now: c.now})
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Now: c.now, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return newHandler(t, server.Config{Limiter: l, Forward: gateways(t)})
}

// gateways trusts 10.0.0.0/8, and loopback for tests on a socket.
func gateways(t testing.TB) *server.Forward {
	t.Helper()
	who, err := identity.NewResolver(identity.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8")},
		Sources:        map[string]string{"api_key": "header:X-Api-Key", "token": "query:token"},
	})
	if err != nil {
		t.Fatal(err)
	}
	routes, err := request.NewTemplates([]string{"POST /login", "GET /v1/labels/{id}"})
	if err != nil {
		t.Fatal(err)
	}
	return &server.Forward{Identity: who, Route: routes.Route}
}

// log is a rule of so many requests a minute on a route.
func log(id, route, by string, n int64) rules.Rule {
	return rules.Rule{
		ID: id, Match: map[string]string{"route": route}, Identity: []string{by}, CoversAll: true,
		Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: n, WindowS: 60},
	}
}

// forwardReply is what a gateway got.
type forwardReply struct {
	StatusCode int
	Header     http.Header
	body       string
}

// ask asks as a gateway does; headers are names and values by turns.
func ask(h http.Handler, query, peer string, header ...string) forwardReply {
	r := httptest.NewRequest(http.MethodGet, forwardPath+query, http.NoBody)
	r.RemoteAddr = peer
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return forwardReply{w.Code, w.Header(), w.Body.String()}
}

// login is the original request as Caddy and Traefik tell it.
func login(more ...string) []string {
	return append([]string{
		"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/login?next=%2F", "X-Forwarded-Host", "example.org",
		"X-Forwarded-Proto", "https", "X-Forwarded-For", "203.0.113.9",
	}, more...)
}

func TestForward(t *testing.T) {
	t.Parallel()
	nginx := []string{"X-Original-Method", "POST", "X-Original-URI", "/login", "X-Forwarded-For", "203.0.113.9"}
	for name, header := range map[string][]string{"Caddy and Traefik": login(), "NGINX": nginx} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := forwarding(t, nil, log("login-ip", "POST /login", "ip", 2))
			for i := range 2 {
				r := ask(h, "", gatewayPeer, header...)
				if r.StatusCode != http.StatusOK || r.Header.Get("X-RateLimit-Remaining") != fmt.Sprint(1-i) {
					t.Fatalf("request %d: %d, headers %v", i+1, r.StatusCode, r.Header)
				}
			}
			r := ask(h, "", gatewayPeer, header...)
			if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "60" || r.Header.Get("X-RateLimit-Remaining") != "0" {
				t.Errorf("HDR-09: %d, headers %v", r.StatusCode, r.Header)
			}
			const want = `"status":429,"code":"rate_limit_exceeded","error":"rate_limit_exceeded","verdict":"deny","denied_by":"login-ip","retry_after_seconds":60}`
			if got := r.body; !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
			// Another client, and another route, have budgets of their own.
			other := append([]string(nil), header...)
			other[len(other)-1] = "203.0.113.10"
			if r := ask(h, "", gatewayPeer, other...); r.StatusCode != http.StatusOK {
				t.Errorf("another client: %d", r.StatusCode)
			}
		})
	}
}

func TestForwardRefusesWhatItCannotBelieve(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, query, peer string
		header            []string
		status            int
		code              string
	}{
		{"from nobody it trusts", "", "192.0.2.1:1", login(), 403, "forbidden"},
		{"from nobody, mapped", "?deny_status=401", "192.0.2.1:1", login(), 401, "forbidden"},
		{"no path", "", gatewayPeer, []string{"X-Forwarded-Method", "GET"}, 400, "bad_request"},
		{"no method", "", gatewayPeer, []string{"X-Forwarded-Uri", "/"}, 400, "bad_request"},
		{"a method of the other family", "", gatewayPeer, []string{"X-Original-URI", "/", "X-Forwarded-Method", "GET"}, 400, "bad_request"},
		{"a path that is none", "", gatewayPeer, []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/%zz"}, 400, "bad_request"},
		{"a path twice", "", gatewayPeer, login("X-Forwarded-Uri", "/free"), 400, "ambiguous"},
		{"a method twice", "", gatewayPeer, login("X-Forwarded-Method", "GET"), 400, "ambiguous"},
		{"a client's NGINX header behind Caddy", "", gatewayPeer, login("X-Original-URI", "/free"), 400, "ambiguous"},
		{"a key twice", "", gatewayPeer, login("X-Api-Key", "a", "X-Api-Key", "b"), 400, "ambiguous"},
		{"a key twice, for NGINX", "?deny_status=403", gatewayPeer, login("X-Api-Key", "a", "X-Api-Key", "b"), 403, "ambiguous"},
		{"a key of 5 KiB", "", gatewayPeer, login("X-Api-Key", strings.Repeat("k", 5<<10)), 413, "too_large"},
		{"a status no gateway knows", "?deny_status=500", gatewayPeer, login(), 400, "bad_request"},
		{"two statuses", "?deny_status=403&deny_status=401", gatewayPeer, login(), 400, "bad_request"},
		{"an empty status", "?deny_status=", gatewayPeer, login(), 400, "bad_request"},
		{"a status in a malformed query", "?deny_status=403&%zz", gatewayPeer, login(), 400, "bad_request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := forwarding(t, nil, log("login-ip", "POST /login", "ip", 100))
			r := ask(h, tt.query, tt.peer, tt.header...)
			if got := r.body; r.StatusCode != tt.status || !strings.Contains(got, `"code":"`+tt.code+`"`) {
				t.Errorf("%d %s, want %d %s", r.StatusCode, got, tt.status, tt.code)
			}
		})
	}
}

// A gateway that is not trusted refuses all its clients: whoever runs it must be able to
// find out why.
func TestForwardTellsOfStrangers(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	s, err := server.New(server.Config{
		Limiter: newLimiter(t, newClock(), nil), Forward: gateways(t), Log: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := s.Handler()
	if r := ask(h, "", gatewayPeer, login()...); r.StatusCode != 200 || s.Untrusted() != 0 || logged.Len() != 0 {
		t.Fatalf("a trusted one: %d, %d counted, logged %q", r.StatusCode, s.Untrusted(), logged.String())
	}
	for peer, fix := range map[string]string{
		"192.0.2.1:4000": "--trusted-proxies 192.0.2.1/32", "[2001:db8::1%eth0]:4000": "--trusted-proxies 2001:db8::1/128",
		"[::ffff:192.0.2.1]:4000": "--trusted-proxies 192.0.2.1/32",
	} {
		r := ask(h, "?deny_status=401", peer, login()...)
		if r.StatusCode != 401 || r.Header.Get("X-Tallygate-Status") != "403" || r.Header.Get("X-Tallygate-Code") != "forbidden" {
			t.Errorf("%s: %d, headers %v", peer, r.StatusCode, r.Header)
		}
		if !strings.Contains(r.body, `"code":"forbidden"`) || !strings.Contains(r.body, fix+`"`) {
			t.Errorf("%s: %s\nwant the fix in it: %s", peer, r.body, fix)
		}
	}
	if got := s.Untrusted(); got != 3 {
		t.Errorf("%d counted, want 3", got)
	}
	if got := logged.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") ||
		!strings.Contains(got, "--trusted-proxies") || !strings.Contains(got, "peer=") {
		t.Errorf("logged %q, want one warning with the flag and the peer", got)
	}
}

func TestForwardMapsEveryRefusal(t *testing.T) {
	t.Parallel()
	closed := log("login-ip", "POST /login", "ip", 1)
	closed.FailMode = rules.FailClosed
	keyed := log("keyed", "*", "user", 1)
	for _, tt := range []struct {
		name  string
		store store.Store
		rule  rules.Rule
		query string
		peer  string
		want  int
		real  string
	}{
		{"closed, store timed out", failing{store.Timeout}, closed, "", gatewayPeer, 504, "504"},
		{"closed, store away", failing{store.Unavailable}, closed, "", gatewayPeer, 503, "503"},
		{"for NGINX", failing{store.Unavailable}, closed, "?deny_status=403", gatewayPeer, 403, "503"},
		{"timed out, for NGINX", failing{store.Timeout}, closed, "?deny_status=401", gatewayPeer, 401, "504"},
		{"the address stands for the identity", nil, keyed, "", gatewayPeer, 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := forwarding(t, tt.store, tt.rule)
			r := ask(h, tt.query, tt.peer, login()...)
			if r.StatusCode != tt.want || r.Header.Get("X-Tallygate-Status") != tt.real {
				t.Errorf("%d, behind it %q; want %d, %q", r.StatusCode, r.Header.Get("X-Tallygate-Status"), tt.want, tt.real)
			}
			if tt.want >= 500 && r.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q", r.Header.Get("Retry-After"))
			}
		})
	}
	t.Run("denied, for NGINX", func(t *testing.T) {
		t.Parallel()
		h := forwarding(t, nil, closed)
		ask(h, "?deny_status=403", gatewayPeer, login()...)
		r := ask(h, "?deny_status=403", gatewayPeer, login()...)
		if r.StatusCode != 403 || r.Header.Get("X-Tallygate-Status") != "429" || r.Header.Get("Retry-After") != "60" {
			t.Errorf("%d, headers %v", r.StatusCode, r.Header)
		}
	})
	t.Run("a client's query is passed over", func(t *testing.T) {
		t.Parallel()
		if r := ask(forwarding(t, nil, closed), "?page=2&a;b=%zz", gatewayPeer, login()...); r.StatusCode != 200 {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	})
	t.Run("no rules at all let pass", func(t *testing.T) {
		t.Parallel()
		var logged bytes.Buffer
		asking := gateways(t)
		asking.Domain = func() string { return "nowhere" }
		h := newHandler(t, server.Config{
			Limiter: newLimiter(t, newClock(), nil), Forward: asking, Log: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		for range 3 {
			if r := ask(h, "", gatewayPeer, login()...); r.StatusCode != 200 {
				t.Errorf("%d", r.StatusCode)
			}
		}
		if s := logged.String(); strings.Count(s, "requests pass unlimited") != 1 || !strings.Contains(s, "domain=nowhere") {
			t.Errorf("logged %q, want one warning that names the domain", s)
		}
	})
	t.Run("a limiter that is closed", func(t *testing.T) {
		t.Parallel()
		l := newLimiter(t, newClock(), nil)
		_ = l.Close()
		r := ask(newHandler(t, server.Config{Limiter: l, Forward: gateways(t)}), "", gatewayPeer, login()...)
		if r.StatusCode != 503 {
			t.Errorf("%d", r.StatusCode)
		}
	})
}

// deciding is a limiter that does as it is told.
type deciding func(v *tallygate.Verdict) error

func (d deciding) Decide(_ context.Context, _ tallygate.Check, v *tallygate.Verdict) error {
	return d(v)
}

func TestForwardIsNeverAServerError(t *testing.T) {
	t.Parallel()
	h := newHandler(t, server.Config{Forward: gateways(t), Limiter: deciding(func(*tallygate.Verdict) error {
		return errors.New("nobody thought of this")
	})})
	r := ask(h, "", gatewayPeer, login()...)
	if r.StatusCode != 503 || r.Header.Get("Retry-After") != "1" || strings.Contains(r.body, "thought") {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, r.body)
	}
}

func TestForwardIsBounded(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	h := newHandler(t, server.Config{Forward: gateways(t), MaxInflight: 1, Limiter: deciding(func(v *tallygate.Verdict) error {
		close(began)
		<-end
		*v = tallygate.Verdict{Allow: true, Tightest: -1}
		return nil
	})})
	first := make(chan int, 1)
	go func() { first <- ask(h, "", gatewayPeer, login()...).StatusCode }()
	<-began
	r := ask(h, "?deny_status=403", gatewayPeer, login()...)
	close(end)
	if r.StatusCode != 403 || r.Header.Get("X-Tallygate-Status") != "503" || !strings.Contains(r.body, `"overloaded"`) {
		t.Errorf("the second: %d %s", r.StatusCode, r.body)
	}
	if got := <-first; got != 200 {
		t.Errorf("the first: %d", got)
	}
}

// SEC-01, SEC-07, SEC-09: what the client writes does not choose its bucket.
func TestForwardIdentity(t *testing.T) {
	t.Parallel()
	ask3 := func(t *testing.T, h http.Handler, requests [3][]string) {
		t.Helper()
		for i, header := range requests {
			want := 200
			if i == 2 {
				want = 429
			}
			if r := ask(h, "", gatewayPeer, header...); r.StatusCode != want {
				t.Errorf("request %d: %d, want %d", i+1, r.StatusCode, want)
			}
		}
	}
	get := func(uri string, more ...string) []string {
		return append([]string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", uri}, more...)
	}
	t.Run("SEC-01 the left of X-Forwarded-For", func(t *testing.T) {
		t.Parallel()
		ask3(t, forwarding(t, nil, log("r", "*", "ip", 2)), [3][]string{
			get("/", "X-Forwarded-For", "198.51.100.1, 203.0.113.9"),
			get("/", "X-Forwarded-For", "198.51.100.2, 203.0.113.9:40001"),
			get("/", "X-Forwarded-For", "198.51.100.3", "X-Forwarded-For", "203.0.113.9"),
		})
	})
	t.Run("SEC-09 path parameters and spelling", func(t *testing.T) {
		t.Parallel()
		ask3(t, forwarding(t, nil, log("r", "GET /v1/labels/{id}", "api_key", 2)), [3][]string{
			get("/v1/labels/1", "X-Api-Key", "a"),
			get("//v1/./%6Cabels/2?x=1", "X-Api-Key", "a"),
			get("/v1/labels/3/", "x-api-key", "a"),
		})
	})
	t.Run("the original query, not this one's", func(t *testing.T) {
		t.Parallel()
		ask3(t, forwarding(t, nil, log("r", "*", "token", 2)), [3][]string{
			get("/?token=a", "X-Forwarded-For", "203.0.113.1"),
			get("/?token=a", "X-Forwarded-For", "203.0.113.2"),
			get("/?token=a", "X-Forwarded-For", "203.0.113.3"),
		})
	})
}

// A client of the gateway may send as many headers as that takes: a refusal here would
// be an error page there.
func TestForwardTakesLargeHeaders(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{Limiter: newLimiter(t, newClock(), nil), Forward: gateways(t)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), l) }()
	defer func() {
		_ = s.Close()
		<-served
	}()
	for size, want := range map[int]int{16 << 10: 200, 32 << 10: 200, 96 << 10: 431} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+forwardPath, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-Method", "GET")
		r.Header.Set("X-Forwarded-Uri", "/")
		r.Header.Set("X-Api-Key", "a")
		r.Header.Set("Cookie", strings.Repeat("c", size))
		client := http.Client{Timeout: 10 * time.Second}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d KiB: %d, want %d", size>>10, resp.StatusCode, want)
		}
	}
}

func FuzzForward(f *testing.F) {
	h := forwarding(f, nil, log("login-ip", "POST /login", "ip", 1))
	f.Add("deny_status=403", "POST", "/login", "203.0.113.9")
	f.Add("", "GET", "//%2e/../x?a=b;c", `for="[::1]`)
	f.Add("deny_status=%", "G T", "http://[::1/", ",,,")
	f.Fuzz(func(t *testing.T, query, method, uri, from string) {
		r := httptest.NewRequest(http.MethodGet, forwardPath, http.NoBody)
		r.RemoteAddr, r.URL.RawQuery = gatewayPeer, query
		r.Header["X-Forwarded-Method"] = []string{method}
		r.Header["X-Forwarded-Uri"] = []string{uri}
		r.Header["X-Forwarded-For"] = []string{from}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case 200, 400, 401, 403, 413, 429:
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
