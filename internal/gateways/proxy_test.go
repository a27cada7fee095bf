package gateways_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/await"
)

// origin is the upstream of a proxy.
type origin struct {
	*httptest.Server
	reached atomic.Int64
	release chan struct{} // lets /slow end and /events go on
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	o := &origin{release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if cost := r.URL.Query().Get("cost"); cost != "" {
			w.Header().Set("X-Cost", cost)
		}
		w.Header().Set("X-RateLimit-Limit", "of the origin")
		_, _ = fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
		_ = r.Header.Write(w)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-o.release:
			_, _ = io.WriteString(w, "done")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-o.release:
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("/socket", echo)
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.reached.Add(1)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

// echo takes the connection over, as a WebSocket does.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		http.Error(w, "no upgrade", http.StatusUpgradeRequired)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, buf)
}

// proxyTo runs the command that docs/proxy.md prints in front of an origin.
func proxyTo(t testing.TB, o *origin, rules string, args ...string) *pod {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", "rules:\n"+rules)
	write(t, dir, "routes.txt", snippets(t, "api.md", "text")[0])
	args = append([]string{"--rules", "file:rules.yaml", "--upstream", o.URL}, args...)
	return start(t, dir, append(documented(t, "proxy.md"), args...)...)
}

func TestProxy(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	p := proxyTo(t, o, window("labels", "GET /v1/labels/{id}", "api_key", 3)+"}\n"+window("login", "POST /login", "ip", 2)+"}\n"+
		"  - {id: all, covers_all: true, identity: [ip], algorithm: token_bucket, rate: 1000, burst: 1000}\n")
	t.Run("limits by key and route", func(t *testing.T) { proxyLimits(t, o, p) })
	t.Run("the client's address", func(t *testing.T) {
		for i := range 3 {
			want := 200
			if i == 2 {
				want = 429
			}
			// SEC-01: nobody is trusted here, so the header is the client's text.
			if r, body := ask(t, p.http, http.MethodPost, "/login", "user=kim", "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i)); r.StatusCode != want {
				t.Errorf("request %d: %d %s, want %d", i+1, r.StatusCode, body, want)
			}
		}
	})
	t.Run("two keys", func(t *testing.T) {
		if r, body := ask(t, p.http, http.MethodGet, "/v1/labels/1", "", "X-Api-Key", "a", "X-Api-Key", "b"); r.StatusCode != 400 {
			t.Errorf("%d %s", r.StatusCode, body)
		}
	})
	t.Run("an event stream", func(t *testing.T) { proxyEvents(t, o, p) })
	t.Run("a WebSocket", func(t *testing.T) { proxySocket(t, p) })
	t.Run("curl, HTTP/2 in clear", func(t *testing.T) {
		said, err := tell(t, need(t, "curl", "on Debian: apt-get install curl"), "-sS", "-i", "--http2-prior-knowledge", "http://"+p.http+"/v1/labels/1")
		contains(t, "curl", said, err, "HTTP/2 ", "\nGET /v1/labels/1\n")
	})
	t.Run("the upstream is away", func(t *testing.T) {
		o.Close()
		r, body := ask(t, p.http, http.MethodGet, "/elsewhere", "")
		if r.StatusCode != 502 || !strings.Contains(body, `"code":"upstream_unavailable","detail":"`) || r.Header.Get("Retry-After") != "1" {
			t.Errorf("%d %v %s", r.StatusCode, r.Header, body)
		}
	})
}

// proxyLimits: SEC-09, HDR-09. Three requests of a key pass, whatever the parameter.
func proxyLimits(t *testing.T, o *origin, p *pod) {
	t.Helper()
	for i := range 3 {
		path := fmt.Sprintf("/v1/labels/%d?page=2", i)
		r, body := ask(t, p.http, http.MethodGet, path, "", "X-Api-Key", "acct_7Q2", "X-RateLimit-Remaining", "1000000")
		if r.StatusCode != 200 || !strings.HasPrefix(body, "GET "+path+"\n") || strings.Contains(body, "1000000") {
			t.Fatalf("%d %s", r.StatusCode, body)
		}
		for name, want := range map[string]string{
			"X-RateLimit-Limit": "3", "X-RateLimit-Remaining": fmt.Sprint(2 - i), "RateLimit-Policy": `"labels";q=3;w=60`,
		} {
			if got := r.Header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("request %d: %s %q, want %s", i+1, name, got, want)
			}
		}
	}
	before := o.reached.Load()
	r, body := ask(t, p.http, http.MethodGet, "/v1/labels/9", "", "X-Api-Key", "acct_7Q2")
	var problem struct {
		Status            int
		Code, Error       string
		RetryAfterSeconds int `json:"retry_after_seconds"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if r.StatusCode != 429 || problem.Status != 429 || problem.Error != "rate_limit_exceeded" || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, body)
	}
	if problem.RetryAfterSeconds < 50 || problem.RetryAfterSeconds > 60 || r.Header.Get("Retry-After") != fmt.Sprint(problem.RetryAfterSeconds) {
		t.Errorf("Retry-After %q, in the body %d, want about 60", r.Header.Get("Retry-After"), problem.RetryAfterSeconds)
	}
	if got := r.Header.Get("X-RateLimit-Remaining"); got != "0" {
		t.Errorf("X-RateLimit-Remaining %q", got)
	}
	if o.reached.Load() != before {
		t.Error("a refused request reached the origin")
	}
	if r, _ := ask(t, p.http, http.MethodGet, "/v1/labels/9", "", "X-Api-Key", "acct_other"); r.StatusCode != 200 {
		t.Errorf("another key: %d", r.StatusCode)
	}
}

func proxyEvents(t *testing.T, o *origin, p *pod) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.http+"/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	for i := range 3 { // each comes while the next one is still held back
		line, err := in.ReadString('\n')
		if want := fmt.Sprintf("data: %d\n", i); line != want || err != nil {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
		_, _ = in.ReadString('\n')
		o.release <- struct{}{}
	}
}

func proxySocket(t *testing.T, p *pod) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.http)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("X-RateLimit-Limit") != "1000" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	for i := range 3 {
		frame := fmt.Sprintf("frame %d\n", i)
		_, _ = io.WriteString(conn, frame)
		if got, err := in.ReadString('\n'); got != frame || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

// The estimate is reserved before, and what the answer told is spent after.
func TestProxyCosts(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	p := proxyTo(t, o, "  - {id: tokens, covers_all: true, identity: [api_key], algorithm: token_bucket, rate: 1, per_s: 3600, burst: 100, max_cost: 100, counting: exact}\n",
		"--cost", "10", "--cost-header", "X-Cost")
	get := func(cost string) reply {
		r, _ := ask(t, p.http, http.MethodGet, "/?cost="+cost, "", "X-Api-Key", "acct_7Q2")
		return r
	}
	// settled asks for nothing until what is left, with 10 set aside, is want.
	settled := func(what, want string) {
		t.Helper()
		var got string
		await.That(t, what, func() bool {
			got = get("0").Header.Get("X-RateLimit-Remaining")
			return got == want
		})
	}
	r := get("40")
	if r.StatusCode != 200 || r.Header.Get("X-RateLimit-Remaining") != "90" || r.Header["X-Cost"] != nil {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	settled("100 - 40 are left", "50")
	_ = get("") // tells nothing: the estimate stands
	settled("and 10 less", "40")
	if r := get("70"); r.StatusCode != 200 { // more than is left: what was used was used
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	await.That(t, "nothing is left", func() bool { return get("0").StatusCode == 429 })
	before := o.reached.Load()
	if r := get("0"); r.StatusCode != 429 || o.reached.Load() != before {
		t.Errorf("%d, %d more reached the origin", r.StatusCode, o.reached.Load()-before)
	}
}

func TestProxyDrains(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	p := proxyTo(t, o, "  - {id: all, covers_all: true, identity: [ip], algorithm: token_bucket, rate: 100, burst: 100}\n")
	type answer struct {
		reply
		body string
	}
	slow := make(chan answer, 1)
	go func() {
		r, body := ask(t, p.http, http.MethodGet, "/slow", "")
		slow <- answer{r, body}
	}()
	await.That(t, "the request is under way", func() bool { return o.reached.Load() == 1 })
	if err := p.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await.That(t, "nothing new is taken", func() bool { return !listens(t, p.http) })
	if p.ended(0) {
		t.Fatal("it ended with a request under way")
	}
	close(o.release)
	if got := <-slow; got.StatusCode != 200 || got.body != "done" {
		t.Errorf("%d %q", got.StatusCode, got.body)
	}
	p.ends(t)
}
