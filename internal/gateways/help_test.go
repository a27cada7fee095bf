package gateways_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/internal/redistest"
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

// snippets returns the blocks of one language in a page of docs.
func snippets(t testing.TB, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
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

// setting is what a gateway stands between: Tallygate with its store, and an application.
type setting struct {
	*pod
	dir         string   // where Tallygate runs
	args        []string // and how, but for its ports
	redis       *redistest.Server
	application string
	// swap are words of a page and what stands for them in the test, by turns.
	swap []string
	// reached counts the requests that came to the application.
	reached atomic.Int64
}

// window is a rule that allows n requests of a route by a key in a minute.
func window(id, route, by string, n int) string {
	return fmt.Sprintf("  - {id: %s, match: {route: %q}, identity: [%s], algorithm: sliding_log, limit: %d, window_s: 60, counting: exact", id, route, by, n)
}

// patient is a deadline of the store for tests of counts: 5 ms are soon over on a busy
// machine, and an open rule then lets requests pass.
const patient = "2s"

// open starts Tallygate as docs/api.md says for gateways, and an application that shows
// what it got.
func open(t testing.TB) *setting {
	t.Helper()
	// A gateway's patience with Tallygate is swapped for the same reason as patient.
	s := &setting{redis: redistest.Standalone(t), swap: []string{"100ms", "5s", "50ms", "5s"}}
	dir := t.TempDir()
	write(t, dir, "routes.txt", snippets(t, "api.md", "text")[0]+"GET /open\nGET /closed\n")
	// With the store away a window lets two seconds' worth of its limit through at once.
	write(t, dir, "rules.yaml", "rules:\n"+window("labels", "GET /v1/labels/{id}", "api_key", 3)+"}\n"+
		window("login", "POST /login", "ip", 2)+"}\n"+window("plain", "GET /open", "ip", 1000)+"}\n"+
		window("closed", "GET /closed", "ip", 100)+", fail_mode: closed}\n")
	args := append(documented(t, "api.md"), "--rules", "file:rules.yaml", "--store", "redis://"+s.redis.Addr, "--store-deadline", patient, "--http", port(t))
	s.dir, s.args = dir, args
	s.pod = start(t, dir, args...)
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

// port returns an address of 127.0.0.1 for a test to listen at: nobody else does, and no
// connection is made from there, which the system does from ports above 32767. That no
// other test has it is held by the same port of UDP.
func port(t testing.TB) string {
	t.Helper()
	var config net.ListenConfig
	for range 100 {
		number := 10_000 + rand.IntN(10_000)
		addr := fmt.Sprintf("127.0.0.1:%d", number)
		held, err := config.ListenPacket(t.Context(), "udp", addr)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = held.Close() })
		l, err := config.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", number))
		if err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// place puts the test's addresses, and what it swaps, in place of what is printed.
func (s *setting) place(text, front string) string {
	_, number, _ := strings.Cut(front, ":")
	words := []string{"127.0.0.1:8080", s.http, "127.0.0.1:8000", s.application, "8088", number, "abns@tallygate", "abns@tallygate-" + number}
	return strings.NewReplacer(append(words, s.swap...)...).Replace(text)
}

// reply is what a client got.
type reply struct {
	StatusCode int
	Header     http.Header
}

// ask sends a request to a gateway; headers are names and values by turns.
func ask(t testing.TB, addr, method, path, body string, header ...string) (r reply, text string) {
	t.Helper()
	// The client is not where the gateway is, which Tallygate trusts.
	return askFrom(t, "127.0.0.2", addr, method, path, body, header...)
}

// askFrom is ask from an address.
func askFrom(t testing.TB, from, addr, method, path, body string, header ...string) (r reply, text string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		name := http.CanonicalHeaderKey(header[i])
		q.Header[name] = append(q.Header[name], header[i+1])
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := http.Client{Timeout: hangs, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
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
