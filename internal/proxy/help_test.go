package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/proxy"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// clock is a clock that stands until it is moved.
type clock struct{ ns atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ns.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) now() time.Time        { return time.Unix(0, c.ns.Load()) }
func (c *clock) move(by time.Duration) { c.ns.Add(int64(by)) }

// rule allows n requests a minute of each key.
func rule(id, by string, n int64) rules.Rule {
	return rules.Rule{
		ID: id, CoversAll: true, Identity: []string{by},
		Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: n, WindowS: 60},
	}
}

func snapshotOf(t testing.TB, c *clock, list ...rules.Rule) *rules.Snapshot {
	t.Helper()
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: list}, 1, c.now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return snapshot
}

func limiterOf(t testing.TB, c *clock, snapshot *rules.Snapshot) *tallygate.Limiter {
	t.Helper()
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// trusting believes loopback, which tests come from.
func trusting(t testing.TB, c identity.Config) *identity.Resolver {
	t.Helper()
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return resolver(t, c)
}

func resolver(t testing.TB, c identity.Config) *identity.Resolver {
	t.Helper()
	r, err := identity.NewResolver(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// front is a proxy that listens, in front of an upstream.
type front struct {
	*proxy.Proxy
	addr  string
	clock *clock
	// stop ends Serve as a signal does, and returns what it returned.
	stop func() error
}

// serve starts a proxy of a config in front of upstream, with a limit of n requests a
// minute for each address, unless the config has a limiter of its own.
func serve(t testing.TB, upstream http.Handler, n int64, c proxy.Config) *front {
	t.Helper()
	behind := httptest.NewUnstartedServer(upstream)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	behind.Config.Protocols = &protocols
	behind.Start()
	t.Cleanup(behind.Close)
	if c.Upstream == nil {
		c.Upstream = parse(t, behind.URL)
	} else if c.Upstream.Host == "" {
		c.Upstream.Host = behind.Listener.Addr().String()
	}
	f := &front{clock: newClock()}
	if c.Limit.Limiter == nil {
		c.Limit = httplimit.Config{Limiter: limiterOf(t, f.clock, snapshotOf(t, f.clock, rule("ip", "ip", n)))}
	}
	if c.Now == nil {
		c.Now = f.clock.now
	}
	p, err := proxy.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Proxy, f.addr = p, l.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, l) }()
	var once atomic.Bool
	f.stop = func() error {
		if once.Swap(true) {
			return nil
		}
		cancel()
		return <-served
	}
	t.Cleanup(func() {
		_ = p.Close()
		_ = f.stop()
	})
	return f
}

func parse(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// reply is what a client got.
type reply struct {
	StatusCode int
	Header     http.Header
}

// get asks the front; headers are names and values by turns.
func (f *front) get(t testing.TB, path string, header ...string) (answer reply, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.addr+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[http.CanonicalHeaderKey(header[i])] = append(r.Header[http.CanonicalHeaderKey(header[i])], header[i+1])
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header}, string(text)
}

// dial opens a bare connection to the front.
func (f *front) dial(t testing.TB) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// show answers with the headers that came.
func show(w http.ResponseWriter, r *http.Request) {
	_ = r.Header.Write(w)
}
