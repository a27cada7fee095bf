package redistest_test

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// echo is a server that says what it hears, and counts it.
type echo struct {
	net.Listener
	mu    sync.Mutex
	heard strings.Builder
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: listener}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := e.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(io.MultiWriter(e, c), c) // counted before it is answered
			})
		}
	})
	t.Cleanup(func() { _ = e.Close(); group.Wait() })
	return e
}

func (e *echo) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard.Write(b)
}

func (e *echo) said() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard.String()
}

// behind returns a proxy in front of an echo.
func behind(t *testing.T) (*redistest.Proxy, *echo) {
	t.Helper()
	e := newEcho(t)
	return redistest.NewProxy(t, e.Addr().String()), e
}

func dialProxy(t *testing.T, p *redistest.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// hear reads so many bytes within d.
func hear(c net.Conn, n int, d time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, n)
	n, err := io.ReadFull(c, buf)
	return string(buf[:n]), err
}

func mustHear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	if got, err := hear(c, len(want), 5*time.Second); err != nil || got != want {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

func mustBeSilent(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := hear(c, 1, 50*time.Millisecond); !isTimeout(err) {
		t.Fatalf("heard %q, %v, want nothing", got, err)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func mustBeReset(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := hear(c, 1, 5*time.Second); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("heard %q, %v, want a reset", got, err)
	}
}

// soon polls until f says yes.
func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so: %s", what)
		}
	}
}

func TestProxy_passes(t *testing.T) {
	t.Parallel()
	p, _ := behind(t)
	a, b := dialProxy(t, p), dialProxy(t, p)
	for _, c := range []net.Conn{a, b} {
		say(t, c, "hello")
		mustHear(t, c, "hello")
	}
	if asked, answered := p.Bytes(); p.Accepted() != 2 || p.Open() != 2 || asked != 10 || answered != 10 {
		t.Errorf("%d accepted, %d open, %d and %d bytes; want 2, 2, 10, 10", p.Accepted(), p.Open(), asked, answered)
	}
	_ = a.Close()
	soon(t, "one connection is left", func() bool { return p.Open() == 1 })
}

func TestProxy_delays(t *testing.T) {
	t.Parallel()
	p, _ := behind(t)
	c := dialProxy(t, p)
	const d, n = 100 * time.Millisecond, 20
	p.Delay(d)
	start := time.Now()
	// A line that took one reply after the other would need n times d.
	for range n {
		say(t, c, "x")
		time.Sleep(time.Millisecond) // so that each is a read of its own
	}
	mustHear(t, c, strings.Repeat("x", n))
	if took := time.Since(start); took < d || took >= n*d {
		t.Errorf("%d replies took %s, want little above %s", n, took, d)
	}
	p.Pass(t)
	soon(t, "a reply comes without the delay", func() bool {
		start := time.Now()
		say(t, c, "y")
		mustHear(t, c, "y")
		return time.Since(start) < d
	})
}

func TestProxy_delaysSome(t *testing.T) {
	t.Parallel()
	p, _ := behind(t)
	c := dialProxy(t, p)
	const n = 100
	const d = 50 * time.Millisecond
	late := func() int {
		p.DelaySome(d, 0.2, 7)
		count := 0
		for range n {
			start := time.Now()
			say(t, c, "x")
			mustHear(t, c, "x")
			if time.Since(start) >= d {
				count++
			}
		}
		return count
	}
	// A busy machine is late by itself, in one run more than in another.
	least := n
	for range 5 {
		got := late()
		if least = min(least, got); got < 10 || least <= 50 {
			break
		}
	}
	if least < 10 || least > 50 {
		t.Errorf("%d of %d late, want about 20", least, n)
	}
}

func TestProxy_stalls(t *testing.T) {
	t.Parallel()
	p, e := behind(t)
	old := dialProxy(t, p)
	say(t, old, "a")
	mustHear(t, old, "a")
	p.Stall()
	fresh := dialProxy(t, p)
	say(t, old, "b")
	say(t, fresh, "c")
	mustBeSilent(t, old)
	mustBeSilent(t, fresh)
	if got := e.said(); got != "a" {
		t.Errorf("the server heard %q through a stall", got)
	}
	p.Pass(t)
	mustHear(t, old, "b")
	mustHear(t, fresh, "c")
}

func TestProxy_swallows(t *testing.T) {
	t.Parallel()
	p, e := behind(t)
	old, idle := dialProxy(t, p), dialProxy(t, p)
	say(t, idle, "i")
	mustHear(t, idle, "i")
	p.Swallow()
	fresh := dialProxy(t, p)
	say(t, old, "b")
	say(t, fresh, "c")
	mustBeSilent(t, old)
	mustBeSilent(t, fresh)
	p.Pass(t)
	mustBeReset(t, old)
	mustBeReset(t, fresh)
	say(t, idle, "j") // nothing of it is missing
	mustHear(t, idle, "j")
	if got := e.said(); got != "ij" {
		t.Errorf("the server heard %q, want ij", got)
	}
}

func TestProxy_losesReplies(t *testing.T) {
	t.Parallel()
	p, e := behind(t)
	c := dialProxy(t, p)
	p.LoseReplies(false)
	say(t, c, "a")
	soon(t, "the server heard a", func() bool { return e.said() == "a" })
	mustBeSilent(t, c)
	p.LoseReplies(true)
	mustBeReset(t, c) // or the reply to b would answer a
	c = dialProxy(t, p)
	say(t, c, "b")
	mustBeReset(t, c)
	if got := e.said(); got != "ab" {
		t.Errorf("the server heard %q, want ab", got)
	}
}

func TestProxy_cutsAndRefuses(t *testing.T) {
	t.Parallel()
	p, _ := behind(t)
	c := dialProxy(t, p)
	say(t, c, "a")
	mustHear(t, c, "a")
	p.Refuse()
	if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed port: %v, want refused", err)
	}
	say(t, c, "b")
	mustHear(t, c, "b")
	p.Cut()
	mustBeReset(t, c)
	p.Pass(t)
	c = dialProxy(t, p)
	say(t, c, "c")
	mustHear(t, c, "c")
}

func TestProxy_refusesForADeadServer(t *testing.T) {
	t.Parallel()
	p, e := behind(t)
	_ = e.Close()
	c, err := net.Dial("tcp", p.Addr)
	if err == nil {
		defer func() { _ = c.Close() }()
		_, err = hear(c, 1, 5*time.Second)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("err = %v, want a reset", err)
	}
}

// TestProxy_closes: in every weather, twice, and nothing stays.
func TestProxy_closes(t *testing.T) {
	e := newEcho(t)
	before := runtime.NumGoroutine()
	for name, fault := range map[string]func(*redistest.Proxy){
		"passing": func(*redistest.Proxy) {},
		"stalled": (*redistest.Proxy).Stall,
		"hole":    (*redistest.Proxy).Swallow,
		"losing":  func(p *redistest.Proxy) { p.LoseReplies(false) },
		"late":    func(p *redistest.Proxy) { p.Delay(time.Hour) },
		"refuses": (*redistest.Proxy).Refuse,
	} {
		p := redistest.NewProxy(t, e.Addr().String())
		c := dialProxy(t, p)
		soon(t, name+": a connection", func() bool { return p.Open() == 1 })
		fault(p)
		say(t, c, "x")
		for range 2 {
			if err := p.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := net.Dial("tcp", p.Addr); err == nil {
			t.Errorf("%s: a closed proxy accepts", name)
		}
		_ = c.Close()
	}
	soon(t, "all goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}
