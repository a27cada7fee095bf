package proxy_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/proxy"
	"github.com/tallygate/tallygate/limit"
)

// says takes the connection over and writes text on it.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// logging is a config whose log is read.
func logging() (proxy.Config, *logged) {
	l := &logged{}
	return proxy.Config{Log: slog.New(slog.NewTextHandler(l, nil))}, l
}

// What net/http would not pass on is an upstream that did not answer.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"000", "001", "099"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			config, log := logging()
			f := serve(t, says("HTTP/1.1 "+status+" Odd\r\nContent-Length: 0\r\n\r\n"), 10, config)
			r, body := f.get(t, "/", "X-Request-Id", "req-7")
			if r.StatusCode != 502 || !strings.Contains(body, `"upstream_unavailable"`) {
				t.Errorf("%d %s", r.StatusCode, body)
			}
			if got := log.text(); strings.Contains(got, "panic") || !strings.Contains(got, "is not within 100 and 999") || !strings.Contains(got, "request_id=req-7") {
				t.Errorf("logged %s", got)
			}
		})
	}
}

// An answer that the upstream breaks off is counted and told of; one whose client goes is
// not the upstream's.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	config, log := logging()
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 64<<10))
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/breaks" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	}), 10, config)
	for _, path := range []string{"/breaks", "/waits"} {
		conn, in := f.dial(t)
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nX-Request-Id: of-it\r\n\r\n")
		if _, err := in.ReadByte(); err != nil {
			t.Fatal(err)
		}
		if path == "/breaks" {
			_, _ = io.Copy(io.Discard, in)
		}
		_ = conn.Close()
		await.That(t, "the request ends", func() bool { return f.Stats().Inflight == 0 })
	}
	if s := f.Stats(); s.Broken != 1 || s.Unreachable != 0 || s.Canceled != 0 {
		t.Errorf("stats %+v", s)
	}
	if got := log.text(); strings.Count(got, "it broke its answer off") != 1 || !strings.Contains(got, "request_id=of-it") || strings.Contains(got, "httputil") {
		t.Errorf("logged %s", got)
	}
}

// A client that goes before there is an answer is nobody's failure.
func TestClientsThatGo(t *testing.T) {
	t.Parallel()
	config, log := logging()
	asked := make(chan struct{})
	f := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}), 10, config)
	conn, _ := f.dial(t)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	<-asked
	_ = conn.Close()
	await.That(t, "it is counted", func() bool { return f.Stats().Canceled == 1 })
	if s := f.Stats(); s.Unreachable+s.Timeouts+s.Broken != 0 || log.text() != "" {
		t.Errorf("stats %+v, logged %s", s, log.text())
	}
}

// What a client does wrong is not counted as the upstream's failure.
func TestFaultsOfTheClient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, request, want string }{
		{"chunks that are none", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"chunks that break off", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n", "HTTP/1.1 400 Bad Request"},
		{"an upgrade that is no word", "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: \xff\xfe\r\n\r\n", "HTTP/1.1 200 OK"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config, log := logging()
			f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header["Upgrade"] != nil {
					t.Errorf("the upstream saw Upgrade %q", r.Header["Upgrade"])
				}
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = w.Write(nil)
			}), 10, config)
			conn, in := f.dial(t)
			_, _ = io.WriteString(conn, tt.request)
			text, err := io.ReadAll(in)
			if got, _, _ := strings.Cut(string(text), "\r\n"); got != tt.want || err != nil {
				t.Errorf("%q, %v, want %s", text, err, tt.want)
			}
			if low := strings.ToLower(string(text)); strings.Contains(low, "retry-after") || strings.Contains(low, "retry_after") {
				t.Errorf("it is told to send the same again: %q", text)
			}
			if s := f.Stats(); s.Unreachable+s.Timeouts+s.Broken != 0 || log.text() != "" {
				t.Errorf("stats %+v, logged %s", s, log.text())
			}
		})
	}
}

// HTTP/2 knows no Upgrade: such a request goes on without.
func TestUpgradeBeforeHTTP2(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(echo), 10, proxy.Config{Upstream: &url.URL{Scheme: "h2c"}})
	conn, in := f.dial(t)
	_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUpgradeRequired || f.Stats().Unreachable != 0 {
		t.Errorf("%d, want the upstream's own 426; stats %+v", resp.StatusCode, f.Stats())
	}
}

// One line a second says that the upstream is away, and how often it was not said.
func TestAnUpstreamThatIsAwayFillsNoLog(t *testing.T) {
	t.Parallel()
	config, log := logging()
	config.Upstream = &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	f := serve(t, http.NotFoundHandler(), 100, config)
	for i := range 4 {
		if i == 3 {
			f.clock.move(time.Second)
		}
		f.get(t, "/")
	}
	got := strings.Split(strings.TrimSpace(log.text()), "\n")
	if len(got) != 2 || !strings.HasSuffix(got[0], "unlogged=0") || !strings.HasSuffix(got[1], "unlogged=2") {
		t.Errorf("logged %q", got)
	}
}

// A cost that no rule takes is the proxy's own fault, which clients cannot mend.
func TestCostsThatDoNotFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, rule, want string
		header           string
	}{
		{"above max_cost", "window", "cost 5 is above max_cost 1 of rule window", ""},
		{"the estimate above max_cost", "window", "cost 5 is above max_cost 1 of rule window", "X-Tokens"},
		{"not reservable", "log", "sliding_log", "X-Tokens"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			config, log := logging()
			r := rule(tt.rule, "ip", 10)
			if tt.rule == "log" {
				r.Algorithm, r.MaxCost = limit.SlidingLog, 5
			}
			l := limiterOf(t, c, snapshotOf(t, c, r))
			config.Limit.Limiter, config.Limit.Cost = l, func(*http.Request) int64 { return 5 }
			if config.CostHeader = tt.header; tt.header != "" {
				config.Reserver = proxy.Reservations(l, 0)
			}
			f := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the upstream was asked") }), 0, config)
			for range 3 {
				if r, body := f.get(t, "/"); r.StatusCode != 500 || !strings.Contains(body, `"code":"internal"`) || strings.Contains(body, tt.rule) {
					t.Errorf("%d %s", r.StatusCode, body)
				}
			}
			if got := log.text(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, tt.want) {
				t.Errorf("logged %s, want one error with %s", got, tt.want)
			}
		})
	}
}

// A header that is misspelt is told of once many good answers had none.
func TestAnswersThatTellNoCost(t *testing.T) {
	t.Parallel()
	config, log := logging()
	c := newClock()
	config.Reserver, config.CostHeader = &ledger{}, "X-Token"
	config.Limit.Limiter = limiterOf(t, c, snapshotOf(t, c, rule("r", "ip", 1)))
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusBadGateway)
		case "/right":
			w.Header().Set("X-Token", "3")
		case "/wrong":
			w.Header().Set("X-Token", "three")
		default:
			w.Header().Set("X-Tokens", "3")
		}
	}), 0, config)
	ask := func(path string, n int) {
		t.Helper()
		for range n {
			f.get(t, path)
		}
		await.That(t, "all is settled", func() bool { return f.Stats().Inflight == 0 })
	}
	ask("/", 19)
	ask("/fails", 30)
	ask("/right", 1)
	ask("/", 19)
	if got := log.text(); got != "" {
		t.Fatalf("logged %s after 19 in a row and failures", got)
	}
	ask("/", 3)
	f.clock.move(time.Minute)
	ask("/", 1)
	ask("/wrong", 2)
	var got []string
	for line := range strings.Lines(log.text()) {
		_, end, _ := strings.Cut(line, " msg=")
		got = append(got, strings.TrimSpace(end))
	}
	const none = `"the last answers told no cost, so the estimates stood; is CostHeader (--cost-header) spelt as the upstream writes it?" header=X-Token answers=`
	want := []string{
		none + "20", none + "23",
		`"the cost that an answer told is none, so the estimate stood; a cost is one line, a whole number from 0 to 1000000000" header=X-Token value=three unlogged=0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("logged %q\nwant %q", got, want)
	}
	if s := f.Stats(); s.MissingCosts != 19+30+19+4 || s.BadCosts != 2 {
		t.Errorf("stats %+v", s)
	}
}

// Where the domain may change, each request asks for it.
func TestDomainOfNow(t *testing.T) {
	t.Parallel()
	c := newClock()
	here, there := rule("here", "ip", 10), rule("there", "ip", 20)
	here.Domain, there.Domain = "a", "b"
	names := make(chan string, 2)
	names <- "a"
	names <- "b"
	config := proxy.Config{Domain: func() string { return <-names }}
	config.Limit.Limiter = limiterOf(t, c, snapshotOf(t, c, here, there))
	f := serve(t, http.HandlerFunc(show), 0, config)
	for _, want := range []string{"10", "20"} {
		if r, _ := f.get(t, "/"); r.Header.Get("X-RateLimit-Limit") != want {
			t.Errorf("limit %s, want %s", fmt.Sprint(r.Header["X-Ratelimit-Limit"]), want)
		}
	}
}
