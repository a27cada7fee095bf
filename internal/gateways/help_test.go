package gateways_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
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

// need returns a gateway's program, or skips the test and says so; with CI=true in the
// environment the test fails instead.
func need(t testing.TB, name, install string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: needs Linux, where all of 127/8 is the machine's own")
	}
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path
		}
	}
	why := "NOT TESTED: " + name + " is not installed (" + install + ")"
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// snippets returns the blocks of one language in a page of docs/gateways.
func snippets(t testing.TB, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "gateways", page))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, part := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, closed := strings.Cut(part, "\n```\n")
		if !closed {
			t.Fatalf("%s: a block of %s is not closed", page, language)
		}
		found = append(found, block+"\n")
	}
	if len(found) == 0 {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return found
}

// flaky is a store that can be away.
type flaky struct {
	store.Store
	away atomic.Bool
}

func (f *flaky) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if f.away.Load() {
		return nil, &store.StoreError{Kind: store.Unavailable, Err: context.DeadlineExceeded}
	}
	return f.Store.Take(ctx, ops)
}

// setting is what a gateway stands between: Tallygate and an application.
type setting struct {
	tallygate, application string
	store                  *flaky
	// stop ends Tallygate.
	stop func()
	// reached counts the requests that came to the application.
	reached atomic.Int64
}

// window allows n requests of a route by a key in a minute.
func window(id, route, by string, n int64) rules.Rule {
	return rules.Rule{
		ID: id, Match: map[string]string{"route": route}, Identity: []string{by}, Counting: rules.CountingExact,
		Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: n, WindowS: 60},
	}
}

// start starts Tallygate and an application that shows what it got.
func start(t testing.TB) *setting {
	t.Helper()
	closed := window("closed", "GET /closed", "ip", 100)
	closed.FailMode = rules.FailClosed
	set := rules.Set{Rules: []rules.Rule{
		window("labels", "GET /v1/labels/{id}", "api_key", 3), window("login", "POST /login", "ip", 2),
		window("plain", "GET /open", "ip", 100), closed,
	}}
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	s := &setting{store: &flaky{Store: store.NewMemoryStore(store.MemoryConfig{})}}
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s.store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	who, err := identity.NewResolver(identity.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Sources:        map[string]string{"api_key": "header:X-Api-Key"},
	})
	if err != nil {
		t.Fatal(err)
	}
	routes, err := request.NewTemplates([]string{"GET /v1/labels/{id}", "POST /login", "GET /open", "GET /closed"})
	if err != nil {
		t.Fatal(err)
	}
	service, err := server.New(server.Config{Limiter: limiter, Forward: &server.Forward{Identity: who, Route: routes.Route}})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	s.tallygate = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- service.Serve(context.WithoutCancel(t.Context()), l) }()
	var stopped atomic.Bool
	s.stop = func() {
		if !stopped.Swap(true) {
			_ = service.Close()
			<-served
		}
	}
	t.Cleanup(s.stop)
	application := httptest.NewServer(http.HandlerFunc(s.show))
	t.Cleanup(application.Close)
	s.application = application.Listener.Addr().String()
	return s
}

// show shows the request that came.
func (s *setting) show(w http.ResponseWriter, r *http.Request) {
	s.reached.Add(1)
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %s\n%s\n", r.Method, r.RequestURI, body)
	_ = r.Header.Write(w)
}

func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// port returns an address that was free a moment ago.
func port(t testing.TB) string {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// place puts the test's addresses in place of the printed ones. Each must be there: a
// page that names others would be tested against nothing.
func (s *setting) place(t testing.TB, text, front string) string {
	t.Helper()
	_, number, _ := strings.Cut(front, ":")
	for _, pair := range [][2]string{{"127.0.0.1:8080", s.tallygate}, {"127.0.0.1:8000", s.application}, {"8088", number}} {
		if pair[1] != "" {
			text = strings.ReplaceAll(text, pair[0], pair[1])
		}
	}
	return text
}

// run starts a gateway and waits until it listens at addr.
func run(t testing.TB, dir, addr, program string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	cmd.SysProcAttr = dieWithParent()
	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the child dies with the thread that forked it
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("%s said:\n%s", program, text)
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
			tick.Stop()
			return
		}
		select {
		case <-done:
			err = errors.New("it ended")
		default:
		}
		if time.Now().After(deadline) || err.Error() == "it ended" {
			tick.Stop()
			t.Fatalf("%s does not listen: %v", program, err)
		}
	}
}

// reply is what a client got.
type reply struct {
	StatusCode int
	Header     http.Header
}

// ask sends a request to a gateway; headers are names and values by turns.
func ask(t testing.TB, addr, method, path, body string, header ...string) (r reply, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		name := http.CanonicalHeaderKey(header[i])
		q.Header[name] = append(q.Header[name], header[i+1])
	}
	// The client is not where the gateway is, which Tallygate trusts.
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header}, string(read)
}
