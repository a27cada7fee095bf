package main_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	tallygate "github.com/tallygate/tallygate/cmd/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/rules/yaml"
)

// A first start writes example rules and two lines to try, which work as printed;
// a second start takes the rules that are there.
func TestFirstStart(t *testing.T) {
	t.Chdir(t.TempDir())
	s := serveAt(t)
	lines := regexp.MustCompile(`(?m)^  (curl -s (\S+) -d '([^']*)')$`).FindAllStringSubmatch(s.stdout.String(), -1)
	if len(lines) != 2 {
		t.Fatalf("%d lines to try in:\n%s", len(lines), s.stdout)
	}
	for _, line := range lines {
		if line[2] != s.url+"/v1/ratelimit:check" {
			t.Errorf("%s is not where the service is", line[2])
		}
		if r := s.post(t, line[3]); r.Verdict != "allow" || len(r.Entries) == 0 {
			t.Errorf("%s: %+v", line[1], r)
		}
		if _, err := exec.LookPath("curl"); err == nil {
			out, err := exec.Command("sh", "-c", line[1]).CombinedOutput()
			if err != nil || !strings.Contains(string(out), `"verdict":"allow"`) {
				t.Errorf("%s: %v %s", line[1], err, out)
			}
		}
	}
	if code, stdout, stderr := run(t, nil, "rules", "list"); code != 0 || strings.Count(stdout, "\n") != 5 {
		t.Errorf("rules list: exit %d\n%s%s", code, stdout, stderr)
	}
	if again := serveAt(t); strings.Contains(again.stdout.String(), "curl") || !strings.Contains(again.stdout.String(), "4 rules from sqlite:tallygate.db") {
		t.Errorf("second start:\n%s", again.stdout)
	}
}

// A first start serves within a second. A machine that is too busy for it is slow with a
// start from a file too, of which a first one takes three.
func TestFirstStart_soon(t *testing.T) {
	var took, file time.Duration
	for range 5 { // of which one is not interrupted
		t.Chdir(t.TempDir())
		took, file = serveAt(t).took, serve(t, aRule).took
		if took <= max(time.Second, 8*file) {
			return
		}
	}
	t.Errorf("serving after %s, want within 1 s; from a file it took %s", took, file)
}

// Rules that were asked for and are not there are an error, not examples.
func TestMissingRules(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--rules", "file:"+path)
	if code != 1 || !strings.Contains(stderr, path+": no such file or directory; --rules (TALLYGATE_RULES) names another place") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()))
	for path, want := range map[string]string{"/healthz": `{"status":"ok"}`, "/readyz": `{"status":"ready"}`, "/version": `{"version":"`} {
		response, err := s.client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(response.Body).ReadString('\n')
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK || !strings.HasPrefix(line, want) {
			t.Errorf("%s: %d %s", path, response.StatusCode, line)
		}
	}
}

// The switches for headers reach the answers.
func TestHeaderSwitches(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+ruleLine("r", windowOf("fixed_window", 2, 60)), "--reset-style", "seconds", "--ietf-headers", "off", "--retry-jitter", "0.1")
	s.clock.at(20_000)
	_, last := s.allowed(t, "r", 3, 1)
	if got := fmt.Sprint(last.Headers["X-RateLimit-Reset"], last.Headers["RateLimit"]); got != "40" {
		t.Errorf("headers %v, want 40 seconds left and no RateLimit", last.Headers)
	}
	for range 50 {
		_, last = s.allowed(t, "r", 1, 1)
		if got := last.Headers["Retry-After"]; got < "40" || got > "44" || last.RetryMS != 40_000 {
			t.Fatalf("Retry-After %s for 40 s and a tenth of jitter", got)
		}
	}
}

// SIGTERM ends serve with 0 when all is answered; a second one ends it at once.
func TestSignals(t *testing.T) {
	t.Parallel()
	idle := serve(t, string(yaml.Example()))
	idle.signals <- syscall.SIGTERM
	if code := idle.wait(t); code != 0 {
		t.Errorf("exit %d when idle: %s", code, idle.stderr)
	}

	busy := serve(t, string(yaml.Example()))
	conn, err := net.Dial("tcp", strings.TrimPrefix(busy.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprint(conn, "POST /v1/ratelimit:check HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	// The server asks for the body: the request is under way.
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	busy.signals <- syscall.SIGINT
	await.That(t, "stopping", func() bool { return strings.Contains(busy.stderr.String(), "stopping; once more") })
	select {
	case code := <-busy.exited:
		t.Fatalf("exit %d with a request under way", code)
	default:
	}
	busy.signals <- syscall.SIGINT
	if code := busy.wait(t); code != 1 || !strings.Contains(busy.stderr.String(), "stopped before all requests were answered") {
		t.Errorf("exit %d: %s", code, busy.stderr)
	}
}

// A storm of SIGHUP takes no room from SIGTERM: a signal that finds none is lost.
func TestNotify(t *testing.T) {
	stops, reloads := tallygate.Notify()
	defer signal.Reset(syscall.SIGTERM, syscall.SIGINT) // not SIGHUP: a late one would end the tests
	kill := func(s syscall.Signal) {
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		kill(syscall.SIGHUP)
	}
	for _, want := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		kill(want)
		select {
		case got := <-stops:
			if got != want {
				t.Fatalf("%v, want %v", got, want)
			}
		case <-time.After(hangs):
			t.Fatalf("%v is lost", want)
		}
	}
	if got := <-reloads; got != syscall.SIGHUP {
		t.Errorf("%v, want SIGHUP", got)
	}
}

// While draining the service says that it is not ready, and still answers.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()), "--drain", "10m")
	s.signals <- syscall.SIGTERM
	await.That(t, "not ready", func() bool {
		response, err := s.client.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusServiceUnavailable
	})
	if r := s.post(t, `{"domain":"public-api","attributes":{"plan":"none"}}`); r.Verdict != "allow" {
		t.Errorf("%+v while draining", r)
	}
	s.signals <- syscall.SIGTERM
	if code := s.wait(t); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
}

// An address in use is an error, told at once.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()))
	code, _, stderr := run(t, nil, "serve", "--http", strings.TrimPrefix(s.url, "http://"), "--rules", "file:"+s.rules)
	if code != 1 || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
