package main_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/rules/yaml"
)

// scrape gets a path of the admin port.
func (s *service) scrape(t testing.TB, path string) (status int, body string) {
	t.Helper()
	response, err := s.client.Get("http://" + s.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// MET-03 and SHD-01 over HTTP: the figures are what happened.
func TestAdmin_metrics(t *testing.T) {
	t.Parallel()
	s := serve(t, `rules:
  - {id: site, covers_all: true, identity: api_key, algorithm: token_bucket, rate: 1, per_s: 3600, burst: 100}
  - {id: user, covers_all: true, identity: api_key, algorithm: token_bucket, rate: 1, per_s: 3600, burst: 2}
  - {id: quiet, covers_all: true, identity: api_key, algorithm: token_bucket, rate: 1, per_s: 3600, burst: 5, mode: shadow}
`)
	for range 10 {
		s.post(t, `{"entries":[{"rule":"site","key":"k"},{"rule":"user","key":"k"}]}`)
	}
	for range 20 {
		s.post(t, `{"entries":[{"rule":"quiet","key":"k"}]}`)
	}
	status, text := s.scrape(t, "/metrics")
	for _, want := range []string{
		`tallygate_checks_total{source="store",verdict="allow"} 22`,
		`tallygate_checks_total{source="store",verdict="deny"} 8`,
		`tallygate_spent_tokens_total{rule="site"} 2`,
		`tallygate_spent_tokens_total{rule="user"} 2`,
		`tallygate_denied_checks_total{rule="site"} 0`,
		`tallygate_denied_checks_total{rule="user"} 8`,
		`tallygate_denied_checks_total{rule="quiet"} 0`,
		`tallygate_shadow_denied_total{rule="quiet"} 15`,
		"go_goroutines ",
		"process_resident_memory_bytes ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%d: %s is not in\n%s", status, want, text)
		}
	}
	if status, body := s.scrape(t, "/healthz"); status != http.StatusOK || !strings.Contains(body, "ok") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.scrape(t, "/v1/rules"); status != http.StatusOK || !strings.Contains(body, `"quiet"`) {
		t.Errorf("%d %s", status, body)
	}
	// The check port has none of it.
	response, err := s.client.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("%d for /metrics on the check port", response.StatusCode)
	}
}

// The figures can be had until the last check is answered, and not after.
func TestAdmin_stops(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()), "--drain", "10m")
	s.signals <- syscall.SIGTERM
	await.That(t, "stopping", func() bool { return strings.Contains(s.stderr.String(), "stopping; once more") })
	if status, _ := s.scrape(t, "/metrics"); status != http.StatusOK {
		t.Errorf("%d while draining", status)
	}
	s.signals <- syscall.SIGTERM
	s.wait(t)
	if conn, err := net.Dial("tcp", s.admin); err == nil {
		_ = conn.Close()
		t.Error("the admin port is open after the end")
	}
}

// Empty is off.
func TestAdmin_off(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()), "--admin", "")
	if s.admin != "" || strings.Contains(s.stdout.String(), "admin API") {
		t.Errorf("listens on %q: %s", s.admin, s.stdout)
	}
}

// The default address may be taken by another pod of this machine; one that was
// asked for may not.
func TestAdmin_inUse(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()))
	code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--rules", "file:"+s.rules, "--admin", s.admin)
	if code != 1 || !strings.Contains(stderr, "admin: ") || !strings.Contains(stderr, "address already in use; --admin (TALLYGATE_ADMIN) sets another address") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// Until there are tokens nobody else may ask.
func TestAdmin_loopbackOnly(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":8090", "0.0.0.0:8090", "[::]:8090", "10.0.0.1:8090", "example.com:8090"} {
		code, _, stderr := run(t, nil, "serve", "--admin", address)
		if code != 2 || !strings.Contains(stderr, fmt.Sprintf("--admin: %q is not this machine alone", address)) {
			t.Errorf("%s: exit %d, %s", address, code, stderr)
		}
	}
	for _, address := range []string{"localhost:0", "[::1]:0", "127.1.2.3:0", ""} {
		if code, _, stderr := run(t, nil, "config", "print", "--admin", address); code != 0 {
			t.Errorf("%s: exit %d, %s", address, code, stderr)
		}
	}
}
