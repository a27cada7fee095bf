package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/server"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	loaded := false
	h := newHandler(t, server.Config{
		Limiter: newLimiter(t, newClock(), nil), Ready: func() bool { return loaded },
		Version: server.Version{Version: "v1.2.3", Revision: "abc", Go: "go1.26"},
	})
	if w := get(h, "/healthz"); w.Code != http.StatusOK || w.Body.String() != "{\"status\":\"ok\"}\n" {
		t.Errorf("healthz: %d %s", w.Code, w.Body)
	}
	if w := get(h, "/readyz"); w.Code != http.StatusServiceUnavailable || parse(t, w).Code != "not_ready" {
		t.Errorf("readyz before rules: %d %s", w.Code, w.Body)
	}
	loaded = true
	if w := get(h, "/readyz"); w.Code != http.StatusOK || w.Body.String() != "{\"status\":\"ready\"}\n" {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	want := "{\"version\":\"v1.2.3\",\"revision\":\"abc\",\"go\":\"go1.26\"}\n"
	if w := get(h, "/version"); w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("version: %d %s", w.Code, w.Body)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, newClock(), nil)
	for name, config := range map[string]server.Config{
		"no limiter":        {},
		"negative inflight": {Limiter: l, MaxInflight: -1},
		"much jitter":       {Limiter: l, Style: headers.Style{Jitter: 0.2}},
		"negative jitter":   {Limiter: l, Style: headers.Style{Jitter: -0.1}},
	} {
		if _, err := server.New(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// pipes is a listener in memory, so that a test's time can be virtual.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.closed:
	default:
		close(p.closed)
	}
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns a connection, or nil once the listener is closed.
func (p *pipes) dial() net.Conn {
	mine, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return mine
	case <-p.closed:
		return nil
	}
}

// status asks for path on a fresh connection.
func (p *pipes) status(path string) (int, error) {
	conn := p.dial()
	if conn == nil {
		return 0, net.ErrClosed
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// begin sends the head of a check and half of its body.
func begin(t *testing.T, conn net.Conn) (rest string) {
	t.Helper()
	body := `{"attributes":{"api_key":"k"}}`
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", checkPath, len(body), body[:9])
	if err != nil {
		t.Fatal(err)
	}
	return body[9:]
}

// A stop is graceful: not ready at once, answering through the drain, finishing
// what is under way, and then over.
func TestServeStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(server.Config{Limiter: newLimiter(t, newClock(), nil), Drain: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l) }()
		if code, err := l.status("/readyz"); code != http.StatusOK {
			t.Fatalf("readyz: %d, %v", code, err)
		}

		stop()
		synctest.Wait()
		if code, err := l.status("/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("readyz while draining: %d, %v", code, err)
		}
		if code, err := l.status("/healthz"); code != http.StatusOK {
			t.Errorf("healthz while draining: %d, %v", code, err)
		}
		under := l.dial()
		rest := begin(t, under)
		time.Sleep(3500 * time.Millisecond)
		if _, err := l.status("/healthz"); err == nil {
			t.Error("still taking connections after the drain")
		}
		select {
		case err := <-done:
			t.Fatalf("stopped with a request under way: %v", err)
		default:
		}
		if _, err := io.WriteString(under, rest); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(under), nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("request under way: %v, %v", response, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// A request that never ends is cut off in the end, and Serve says so.
func TestServeGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(server.Config{Limiter: newLimiter(t, newClock(), nil), Finish: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l) }()
		conn := l.dial()
		begin(t, conn)
		synctest.Wait()
		stop()
		if err := <-done; err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Serve: %v, want a deadline", err)
		}
	})
}

// Close ends Serve at once, before or during a drain.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(server.Config{Limiter: newLimiter(t, newClock(), nil), Drain: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l) }()
		synctest.Wait()
		stop()
		synctest.Wait()
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// Slow and large heads are cut off.
func TestHeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(server.Config{Limiter: newLimiter(t, newClock(), nil)})
		if err != nil {
			t.Fatal(err)
		}
		l := newPipes()
		done := make(chan error, 1)
		go func() { done <- s.Serve(t.Context(), l) }()

		large := l.dial()
		go func() {
			_, _ = io.WriteString(large, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 32<<10)+"\r\n\r\n")
		}()
		response, err := http.ReadResponse(bufio.NewReader(large), nil)
		if err != nil || response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Fatalf("head of 32 KiB: %v, %v", response, err)
		}
		_ = response.Body.Close()
		_ = large.Close()

		start := time.Now()
		slow := l.dial()
		_, _ = io.WriteString(slow, "GET /healthz HTTP/1.1\r\n")
		_, _ = io.Copy(io.Discard, slow)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("half a head was kept for %s, want 5 s", took)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}
