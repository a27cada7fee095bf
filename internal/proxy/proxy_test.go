package proxy_test

import (
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/proxy"
	"github.com/tallygate/tallygate/rules"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		// The upstream's own limit headers would be a second answer beside ours.
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Set("RateLimit", `"theirs";r=1;t=1`)
		w.Header().Set("X-Mine", "kept")
	}), 2, proxy.Config{})
	for range 2 {
		r, _ := f.get(t, "/")
		if got := r.Header.Values("X-RateLimit-Limit"); r.StatusCode != 200 || len(got) != 1 || got[0] != "2" {
			t.Fatalf("%d, X-RateLimit-Limit %q", r.StatusCode, got)
		}
		if got := r.Header.Values("RateLimit"); len(got) != 1 || !strings.HasPrefix(got[0], `"ip";`) {
			t.Errorf("RateLimit %q", got)
		}
		if r.Header.Get("X-Mine") != "kept" {
			t.Error("another header of the upstream is gone")
		}
	}
	r, body := f.get(t, "/")
	if r.StatusCode != 429 || r.Header.Get("Retry-After") != "60" || !strings.Contains(body, `"rate_limit_exceeded"`) {
		t.Errorf("HDR-09: %d %v %s", r.StatusCode, r.Header, body)
	}
	if served.Load() != 2 {
		t.Errorf("the upstream saw %d requests", served.Load())
	}
}

func TestWhatTheUpstreamIsTold(t *testing.T) {
	t.Parallel()
	sent := []string{
		"X-Forwarded-For", "198.51.100.1", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "example.org",
		"X-Forwarded-Port", "443", "X-Real-IP", "198.51.100.1", "X-Original-URI", "/admin", "Forwarded", "for=198.51.100.2",
		"X-RateLimit-Remaining", "1000000", "RateLimit", `"x";r=9;t=1`, "Retry-After", "9",
		"X_Forwarded_For", "192.0.2.66", "x_real-ip", "192.0.2.66", "X-Forwarded_User", "192.0.2.66",
		"Connection", "X-Forwarded-For, X-Hop", "X-Hop", "1", "Proxy-Authorization", "Basic eA==", "X-Stays", "1",
	}
	for _, tt := range []struct {
		name      string
		identity  *identity.Resolver
		want, not []string
	}{
		{
			"by a client", nil,
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", "X-Stays: 1"},
			[]string{"192.0.2.66", "198.51.100", "example.org", "443", "X-Original-Uri", "X-Ratelimit", "Ratelimit", "Retry-After", "X-Hop", "Proxy-Authorization"},
		},
		{
			"by a trusted proxy", trusting(t, identity.Config{}),
			[]string{"X-Forwarded-For: 198.51.100.1, 127.0.0.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: example.org", "X-Forwarded-Port: 443"},
			[]string{"192.0.2.66", "Forwarded: for", "X-Ratelimit", "Ratelimit", "Retry-After", "X-Hop"},
		},
		{
			"by a trusted proxy of RFC 7239", trusting(t, identity.Config{Forwarding: "Forwarded"}),
			[]string{"Forwarded: for=198.51.100.2", "Forwarded: for=127.0.0.1", "X-Forwarded-For: 127.0.0.1"},
			[]string{"198.51.100.1, ", "X-Forwarded-Host: example.org"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, http.HandlerFunc(show), 10, proxy.Config{Identity: tt.identity})
			_, body := f.get(t, "/", sent...)
			for _, want := range tt.want {
				if !strings.Contains(body, want+"\r\n") {
					t.Errorf("%q is not in\n%s", want, body)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(body, not) {
					t.Errorf("%q is in\n%s", not, body)
				}
			}
		})
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "the upstream's")
		w.Header().Set("X-Saw", r.Header.Get("X-Request-Id"))
	}), 100, proxy.Config{})
	for _, tt := range []struct {
		name string
		ids  []string
		kept bool
	}{
		{"none", nil, false},
		{"well-formed", []string{"req_7Q2.a-b:c"}, true},
		{"with a blank", []string{"a b"}, false},
		{"two", []string{"a", "b"}, false},
		{"129 bytes", []string{strings.Repeat("a", 129)}, false},
		{"128 bytes", []string{strings.Repeat("a", 128)}, true},
		{"quotes for a log", []string{`a"b`}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var header []string
			for _, id := range tt.ids {
				header = append(header, "X-Request-Id", id)
			}
			r, _ := f.get(t, "/", header...)
			got := r.Header.Values("X-Request-Id")
			if len(got) != 1 || got[0] == "" || got[0] != r.Header.Get("X-Saw") {
				t.Fatalf("the client has %q, the upstream %q", got, r.Header.Get("X-Saw"))
			}
			if kept := len(tt.ids) == 1 && got[0] == tt.ids[0]; kept != tt.kept {
				t.Errorf("kept %v, want %v", kept, tt.kept)
			}
		})
	}
}

func TestRequestID_namedInConnection(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Saw", r.Header.Get("X-Request-Id"))
	}), 100, proxy.Config{})
	r, _ := f.get(t, "/", "X-Request-Id", "mine", "Connection", "X-Request-Id")
	if r.Header.Get("X-Saw") != "mine" {
		t.Errorf("the upstream saw %q", r.Header.Get("X-Saw"))
	}
}

// SEC-03, SEC-10 and bad headers, by the proxy's own resolver.
func TestIdentity(t *testing.T) {
	t.Parallel()
	c := newClock()
	limiter := limiterOf(t, c, snapshotOf(t, c, rule("key", "api_key", 2)))
	var config proxy.Config
	config.Limit.Limiter = limiter
	config.Identity = resolver(t, identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}})
	f := serve(t, http.HandlerFunc(show), 0, config)
	for i, name := range []string{"X-Api-Key", "x-api-key", "X-API-KEY"} {
		want := 200
		if i == 2 {
			want = 429
		}
		if r, _ := f.get(t, "/", name, "a"); r.StatusCode != want {
			t.Errorf("SEC-10 request %d: %d, want %d", i+1, r.StatusCode, want)
		}
	}
	if r, _ := f.get(t, "/", "X-Api-Key", "a", "X-Api-Key", "c"); r.StatusCode != 400 {
		t.Errorf("two keys: %d, want 400", r.StatusCode)
	}
	if r, _ := f.get(t, "/", "X-Api-Key", "b", "Cookie", strings.Repeat("c", 16<<10)); r.StatusCode != 200 {
		t.Errorf("16 KiB of headers: %d, want 200", r.StatusCode)
	}
	if r, _ := f.get(t, "/", "X-Api-Key", "b", "Cookie", strings.Repeat("c", 64<<10)); r.StatusCode != 431 {
		t.Errorf("64 KiB of headers: %d, want 431", r.StatusCode)
	}
}

func TestUpstreamFails(t *testing.T) {
	t.Parallel()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := &url.URL{Scheme: "http", Host: closed.Addr().String()}
	_ = closed.Close()
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	aborts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, tt := range []struct {
		name     string
		upstream http.Handler
		config   proxy.Config
		status   int
		code     string
	}{
		{"nobody listens", aborts, proxy.Config{Upstream: nobody}, 502, "upstream_unavailable"},
		{"it hangs up", aborts, proxy.Config{}, 502, "upstream_unavailable"},
		{"it is silent", silent, proxy.Config{AnswerTimeout: 50 * time.Millisecond}, 504, "upstream_timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, tt.upstream, 10, tt.config)
			r, body := f.get(t, "/")
			if r.StatusCode != tt.status || !strings.Contains(body, `"code":"`+tt.code+`"`) || r.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %s", r.StatusCode, body)
			}
			if r.Header.Get("X-RateLimit-Remaining") != "9" || r.Header.Get("Retry-After") != "1" {
				t.Errorf("headers %v", r.Header)
			}
			if s := f.Stats(); s.Unreachable+s.Timeouts != 1 || s.Inflight != 0 && tt.status == 0 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestOverloadedByItself(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	f := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), 10, proxy.Config{MaxInflight: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.get(t, "/")
	}()
	await.That(t, "a request under way", func() bool { return f.Stats().Inflight == 1 })
	if r, body := f.get(t, "/"); r.StatusCode != 503 || !strings.Contains(body, `"overloaded"`) {
		t.Errorf("%d %s", r.StatusCode, body)
	}
	close(release)
	<-done
	if r, _ := f.get(t, "/"); r.StatusCode != 200 || f.Stats().Overloaded != 1 {
		t.Errorf("%d, %d refused", r.StatusCode, f.Stats().Overloaded)
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	host := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host + r.URL.Path)) })
	f := serve(t, host, 10, proxy.Config{PreserveHost: true, Upstream: &url.URL{Scheme: "http", Path: "/base"}})
	if _, body := f.get(t, "/x"); body != f.addr+"/base/x" {
		t.Errorf("got %s", body)
	}
	f = serve(t, host, 10, proxy.Config{})
	if _, body := f.get(t, "/x"); body == f.addr+"/x" {
		t.Errorf("got %s", body)
	}
}

// logged is a log that is read while it is written.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestADomainWithoutRulesIsToldOf(t *testing.T) {
	t.Parallel()
	c := newClock()
	var config proxy.Config
	config.Limit.Limiter = limiterOf(t, c, snapshotOf(t, c, rule("r", "ip", 1)))
	config.Limit.Domain = "nowhere"
	log := &logged{}
	config.Log = slog.New(slog.NewTextHandler(log, nil))
	f := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 0, config)
	for range 3 {
		if r, _ := f.get(t, "/"); r.StatusCode != 200 {
			t.Errorf("%d", r.StatusCode)
		}
	}
	if s := log.text(); strings.Count(s, "requests pass unlimited") != 1 || !strings.Contains(s, "domain=nowhere") {
		t.Errorf("logged %q, want one warning that names the domain", s)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	c := newClock()
	limiter := limiterOf(t, c, snapshotOf(t, c, rule("r", "ip", 1)))
	good := parse(t, "http://127.0.0.1:1")
	for _, tt := range []struct {
		name   string
		change func(*proxy.Config)
		want   string
	}{
		{"no upstream", func(c *proxy.Config) { c.Upstream = nil }, "Upstream is required"},
		{"no scheme", func(c *proxy.Config) { c.Upstream = &url.URL{Path: "localhost"} }, `Upstream: "localhost" has a scheme "" that is none of http, https and h2c`},
		{"no host", func(c *proxy.Config) { c.Upstream = parse(t, "http://:80") }, `"http://:80" names no host; write http://HOST:PORT`},
		{"user", func(c *proxy.Config) { c.Upstream = parse(t, "http://u:secret@x") }, `"http://u:xxxxx@x" has a user`},
		{"scheme", func(c *proxy.Config) { c.Upstream = parse(t, "ftp://x") }, `scheme "ftp"`},
		{"query", func(c *proxy.Config) { c.Upstream = parse(t, "http://x/?a=b") }, "query"},
		{"limiter", func(c *proxy.Config) { c.Limit.Limiter = nil }, "Limiter is required"},
		{"cost", func(c *proxy.Config) { c.CostHeader = "X-Cost" }, "need each other"},
		{"port", func(c *proxy.Config) { c.Upstream = parse(t, "http://x:99999") }, `has a port "99999" that is not within 1 and 65535`},
		{"cost in no header", func(c *proxy.Config) { c.CostHeader, c.Reserver = "X Cost", new(ledger) }, `"X Cost" is no header's name: ' ' stands in none`},
		{"cost in a header of ours", func(c *proxy.Config) { c.CostHeader, c.Reserver = "ratelimit", new(ledger) }, `CostHeader: "ratelimit" says something else`},
		{"cost in the length", func(c *proxy.Config) { c.CostHeader, c.Reserver = "content-length", new(ledger) }, `CostHeader: "content-length" says something else`},
		{"cost in a long header", func(c *proxy.Config) { c.CostHeader, c.Reserver = strings.Repeat("x", 129), new(ledger) }, "has 129 bytes"},
		{"time", func(c *proxy.Config) { c.StallTimeout = -1 }, "below 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config := proxy.Config{Upstream: good}
			config.Limit.Limiter = limiter
			tt.change(&config)
			if _, err := proxy.New(config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// The plans of a back-pressure test: free gives way, paid does not before free.
func shedding() []rules.Rule {
	free, paid := rule("free", "ip", 10_000), rule("paid", "ip", 10_000)
	free.CoversAll, paid.CoversAll = false, false
	free.Match, free.ShedFloorMilli = map[string]string{"plan": "free"}, 500
	paid.Match, paid.ShedFloorMilli, paid.Priority = map[string]string{"plan": "paid"}, 900, 10
	return []rules.Rule{free, paid}
}

func TestBackPressure(t *testing.T) {
	t.Parallel()
	c := newClock()
	snapshot := snapshotOf(t, c, shedding()...)
	fixed := limiterOf(t, c, snapshot)
	var overloaded atomic.Bool
	config := proxy.Config{Rules: source{snapshot}, Now: c.now}
	config.Limit.Limiter = fixed
	config.Identity = resolver(t, identity.Config{Sources: map[string]string{"plan": "header:X-Plan"}})
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if overloaded.Load() {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}), 0, config)
	send := func(plan string, n int) (passed, shed int) {
		for range n {
			r, body := f.get(t, "/", "X-Plan", plan)
			switch {
			case r.StatusCode == 503 && strings.Contains(body, `"overloaded"`) && r.Header.Get("Retry-After") == "1":
				shed++
			case r.StatusCode == 503 && r.Header.Get("Retry-After") == "7", r.StatusCode == 200:
				passed++
			default:
				t.Fatalf("%d %s", r.StatusCode, body)
			}
		}
		return passed, shed
	}
	// Ten of each plan a second, for ten seconds.
	for range 10 {
		if _, shed := send("free", 10); shed > 0 {
			t.Fatal("shed without overload")
		}
		c.move(time.Second)
	}
	overloaded.Store(true)
	send("paid", 20) // the upstream says no: free gets 0.8 of its ten a second
	if got := f.Pressure(); !got.Overloaded || len(got.Factors) != 2 || got.Factors[0].Milli != 800 || got.Factors[1].Milli != 1_000 {
		t.Errorf("pressure %+v", got)
	}
	overloaded.Store(false)
	passed, shed := send("free", 10)
	if passed < 7 || passed > 8 || shed != 10-passed {
		t.Errorf("%d of 10 passed, want 8 of a second's", passed)
	}
	if passed, _ := send("paid", 10); passed != 10 {
		t.Errorf("%d of 10 of the higher priority passed", passed)
	}
	if got := f.Stats().Shed; got != int64(shed) {
		t.Errorf("%d shed in the figures, want %d", got, shed)
	}
	c.move(time.Minute)
	if passed, _ := send("free", 20); passed != 20 {
		t.Errorf("%d of 20 passed a minute later", passed)
	}
}

// An upstream that answers nothing in time is a slow one.
func TestBackPressureByLatency(t *testing.T) {
	t.Parallel()
	c := newClock()
	snapshot := snapshotOf(t, c, shedding()...)
	config := proxy.Config{Rules: source{snapshot}, Now: c.now, LatencyTarget: 100 * time.Millisecond, AnswerTimeout: 2 * time.Second}
	config.Limit.Limiter = limiterOf(t, c, snapshot)
	config.Identity = resolver(t, identity.Config{Sources: map[string]string{"plan": "header:X-Plan"}})
	f := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			c.move(101 * time.Millisecond)
		case "/silent":
			c.move(time.Second)
			<-r.Context().Done()
		}
	}), 0, config)
	if got := f.Pressure(); len(got.Factors) != 2 {
		t.Errorf("before the first request: %+v", got)
	}
	for range 18 {
		f.get(t, "/", "X-Plan", "paid")
	}
	f.get(t, "/slow", "X-Plan", "paid")
	if r, _ := f.get(t, "/silent", "X-Plan", "paid"); r.StatusCode != 504 {
		t.Errorf("%d", r.StatusCode)
	}
	if got := f.Pressure(); !got.Overloaded || got.Factors[0].Milli != 800 {
		t.Errorf("two of twenty are above the target: %+v", got)
	}
}

// source is a snapshot that stays.
type source struct{ snapshot *rules.Snapshot }

func (s source) Snapshot() *rules.Snapshot { return s.snapshot }
