package gateways_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
)

// soon is how long a request may take while Tallygate is away. What the pages set is a
// tenth of it; a machine that runs other tests needs the rest.
const soon = time.Second

// TestAway: with the timeouts of the pages, a Tallygate that is away costs a request next to
// nothing, however it is away, and limits again once it is back.
func TestAway(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]struct {
		start gateway
		away  []int
	}{
		"NGINX":   {nginx, []int{http.StatusOK}},
		"HAProxy": {haproxy, []int{http.StatusOK}},
		"Caddy":   {caddy, []int{http.StatusBadGateway, http.StatusGatewayTimeout}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.swap = nil
			addr := b.start(t, s)
			back := func() {
				t.Helper()
				await.That(t, "it limits", func() bool {
					r, _ := ask(t, addr, http.MethodGet, "/open", "")
					return r.StatusCode == http.StatusOK && r.Header.Get("X-RateLimit-Limit") == "1000"
				})
			}
			back()
			s.stop(t)
			t.Run("it refuses connections", func(t *testing.T) { passes(t, addr, b.away) })
			end := mute(t, s.http, 128)
			t.Run("it takes them and does not answer", func(t *testing.T) { passes(t, addr, b.away) })
			end()
			s.returns(t)
			back()
			if err := s.signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			await.That(t, "all its threads are stopped", s.stopped)
			t.Run("it is stopped with connections open", func(t *testing.T) { passes(t, addr, b.away) })
			if err := s.signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			back()
			s.stop(t)
			mute(t, s.http, 0)
			full(t, s.http)
			t.Run("it drops connections", func(t *testing.T) { passes(t, addr, b.away) })
		})
	}
}

// passes asks for a while, in which health checks find out.
func passes(t *testing.T, addr string, want []int) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); <-tick.C {
		start := time.Now()
		r, body := ask(t, addr, http.MethodGet, "/open", "")
		took := time.Since(start)
		switch {
		case !slices.Contains(want, r.StatusCode):
			t.Fatalf("%d %s, want one of %d", r.StatusCode, body, want)
		case r.Header["X-Ratelimit-Limit"] != nil:
			t.Fatalf("it is away, and limits: %v", r.Header)
		case took > soon:
			t.Fatalf("a request took %v, want at most %v", took, soon)
		}
	}
}

// TestAwayAndClosed: what the pages say makes a gateway refuse while Tallygate is away.
func TestAwayAndClosed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start gateway
		swap  []string
		want  int
	}{
		"NGINX":   {nginx, []string{"error_page 502 504 = @open;", ""}, http.StatusInternalServerError},
		"HAProxy": {haproxy, []string{"pass_while_away = true", "pass_while_away = false"}, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			s.swap = append(s.swap, c.swap...)
			addr := c.start(t, s)
			if r, body := ask(t, addr, http.MethodGet, "/open", ""); r.StatusCode != http.StatusOK {
				t.Errorf("before: %d %s", r.StatusCode, body)
			}
			s.stop(t)
			before := s.reached.Load()
			if r, body := ask(t, addr, http.MethodGet, "/open", ""); r.StatusCode != c.want || s.reached.Load() != before {
				t.Errorf("%d %s, and %d requests reached the application; want %d and none", r.StatusCode, body, s.reached.Load()-before, c.want)
			}
		})
	}
}

// returns starts Tallygate again where it was.
func (s *setting) returns(t *testing.T) {
	t.Helper()
	s.pod = start(t, s.dir, s.args...)
}

// stopped reports whether no thread of Tallygate runs: a signal takes its time.
func (s *setting) stopped() bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.process.Pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T ") {
			return false
		}
	}
	return len(threads) > 0
}

// mute listens at addr and never answers; end it with what is returned. The kernel takes
// as many connections as the backlog has room for, and drops what else comes.
func mute(t *testing.T, addr string, backlog int) (end func()) {
	t.Helper()
	to, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = syscall.Close(fd) })
	t.Cleanup(end)
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}),
		syscall.Listen(fd, backlog),
	)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// full takes the places of a backlog until connections are dropped.
func full(t *testing.T, addr string) {
	t.Helper()
	dialer := net.Dialer{Timeout: 300 * time.Millisecond}
	for range 20 {
		conn, err := dialer.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("nothing drops connections")
}
