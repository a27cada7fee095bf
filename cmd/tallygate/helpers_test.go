package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	tallygate "github.com/tallygate/tallygate/cmd/tallygate"
	"github.com/tallygate/tallygate/internal/await"
)

// clock is a clock that stands until it is moved. It starts at the start of an
// hour that is still to come, so that nothing the real clock wrote lies ahead.
type clock struct {
	base time.Time
	ms   atomic.Int64
}

func newClock() *clock {
	c := &clock{base: time.Now().Truncate(time.Hour).Add(time.Hour)}
	c.at(0)
	return c
}

func (c *clock) at(ms int64)    { c.ms.Store(c.base.UnixMilli() + ms) }
func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// hangs is when what is waited for will not come any more: a server that should have
// refused to start would run for ever. It is no bound on how long anything may take.
const hangs = time.Minute

// run runs a command to its end.
func run(t testing.TB, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs buffer
	m := &tallygate.Main{}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	code = m.Run(ctx, args, strings.NewReader(""), &out, &errs, env)
	return code, out.String(), errs.String()
}

// service is a running serve.
type service struct {
	url            string
	admin          string // address of the admin port
	client         *http.Client
	signals        chan os.Signal
	reloads        chan os.Signal
	exited         chan int
	stdout, stderr *buffer
	clock          *clock
	rules          string
	took           time.Duration
}

// serve starts serve with these rules on a free port; it is stopped with the test.
func serve(t testing.TB, rules string, args ...string) *service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := serveAt(t, append([]string{"--rules", "file:" + path}, args...)...)
	s.rules = path
	return s
}

// serveAt starts serve with these arguments.
func serveAt(t testing.TB, args ...string) *service {
	t.Helper()
	return serveOn(t, newClock(), args...)
}

// serveOn starts serve on a clock.
func serveOn(t testing.TB, on *clock, args ...string) *service {
	t.Helper()
	return start(t, on, append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", ""}, args...)...)
}

// front starts a proxy with these rules in front of an upstream, as serve does.
func front(t testing.TB, upstream, rules string, args ...string) *service {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := start(t, newClock(), append([]string{"proxy", "--listen", "127.0.0.1:0", "--upstream", upstream, "--rules", "file:" + path}, args...)...)
	s.rules = path
	return s
}

// start starts serve or proxy.
func start(t testing.TB, on *clock, args ...string) *service {
	t.Helper()
	s := &service{
		client:  &http.Client{Transport: &http.Transport{}, Timeout: hangs},
		signals: make(chan os.Signal, 8), reloads: make(chan os.Signal, 8), exited: make(chan int, 1),
		stdout: new(buffer), stderr: new(buffer), clock: on,
	}
	listening := make(chan string, 1)
	m := &tallygate.Main{
		Signals: s.signals, Reloads: s.reloads, Now: s.clock.now, ReportEvery: 100 * time.Millisecond,
		Listening:      func(address string) { listening <- address },
		AdminListening: func(address string) { s.admin = address }, // before Listening
	}
	args = append([]string{args[0], "--admin", "127.0.0.1:0", "--snapshot-file", ""}, args[1:]...)
	began := time.Now()
	go func() {
		s.exited <- m.Run(context.WithoutCancel(t.Context()), args, strings.NewReader(""), s.stdout, s.stderr, nil)
	}()
	select {
	case address := <-listening:
		s.took = time.Since(began)
		s.url = "http://" + address
	case code := <-s.exited:
		t.Fatalf("%s ended with %d: %s", args[0], code, s.stderr)
	case <-time.After(hangs):
		t.Fatalf("%s did not listen: %s", args[0], s.stderr)
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		s.signals <- syscall.SIGTERM
		s.wait(t)
	})
	return s
}

// wait waits for the end of serve and returns its exit code.
func (s *service) wait(t testing.TB) int {
	t.Helper()
	select {
	case code := <-s.exited:
		s.exited <- code // for the cleanup
		return code
	case <-time.After(hangs):
		t.Fatalf("serve did not end: %s", s.stderr)
		return -1
	}
}

// reload writes new rules and waits until the service has them.
func (s *service) reload(t testing.TB, rules string) {
	t.Helper()
	before := strings.Count(s.stderr.String(), "rules reloaded")
	write(t, s.rules, rules)
	s.reloads <- syscall.SIGHUP
	await.That(t, "reload", func() bool { return strings.Count(s.stderr.String(), "rules reloaded") > before })
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reply is an answer or a problem.
type reply struct {
	HTTP     int               `json:"-"`
	Verdict  string            `json:"verdict"`
	DeniedBy string            `json:"denied_by"`
	Degraded string            `json:"degraded"`
	RetryMS  int64             `json:"retry_ms"`
	Headers  map[string]string `json:"headers"`
	Code     string            `json:"code"`
	Detail   string            `json:"detail"`
	Entries  []struct {
		Rule      string `json:"rule"`
		Verdict   string `json:"verdict"`
		Limit     int64  `json:"limit"`
		Remaining int64  `json:"remaining"`
		ResetMS   int64  `json:"reset_ms"`
	} `json:"entries"`
}

// post asks the check API.
func (s *service) post(t testing.TB, body string) reply {
	t.Helper()
	response, err := s.client.Post(s.url+"/v1/ratelimit:check", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{HTTP: response.StatusCode}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return r
}

// ask checks one rule for the key "k".
func (s *service) ask(t testing.TB, rule string, cost int64) reply {
	t.Helper()
	body, err := json.Marshal(map[string]any{"entries": []any{map[string]any{"rule": rule, "key": "k", "cost": cost}}})
	if err != nil {
		t.Fatal(err)
	}
	return s.post(t, string(body))
}

// allowed counts how many of n checks of one rule pass.
func (s *service) allowed(t testing.TB, rule string, n int, cost int64) (count int, last reply) {
	t.Helper()
	for range n {
		last = s.ask(t, rule, cost)
		if last.HTTP != http.StatusOK {
			t.Fatalf("%s: %+v", rule, last)
		}
		if last.Verdict == "allow" {
			count++
		}
	}
	return count, last
}

// golden compares text with a file of testdata; UPDATE_GOLDEN=1 writes it.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		write(t, path, text)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (UPDATE_GOLDEN=1 writes it):\ngot:\n%s\nwant:\n%s", path, text, want)
	}
}
