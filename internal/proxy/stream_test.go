package proxy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/proxy"
)

// echo is an upstream that takes the connection over, as a WebSocket does.
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

func upgrade(t *testing.T, f *front) (io.Writer, *bufio.Reader) {
	t.Helper()
	conn, in := f.dial(t)
	_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%d", resp.StatusCode)
	}
	if resp.Header.Get("X-RateLimit-Remaining") == "" {
		t.Errorf("no limit headers in %v", resp.Header)
	}
	return conn, in
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(echo), 10, proxy.Config{StallTimeout: 50 * time.Millisecond, Finish: 100 * time.Millisecond})
	out, in := upgrade(t, f)
	for i := range 3 {
		line := fmt.Sprintf("frame %d\n", i)
		if _, err := io.WriteString(out, line); err != nil {
			t.Fatal(err)
		}
		if got, err := in.ReadString('\n'); got != line || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		<-time.After(150 * time.Millisecond) // longer than a client may stall: this one does not
	}
	// At the end an open socket is cut off, or Serve would never return.
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the socket is still open")
	}
}

func TestEventStream(t *testing.T) {
	t.Parallel()
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2 in clear": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{}, 3) // with room: an upstream that gave up takes none
			f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := 0; ; i++ {
					if _, err := fmt.Fprintf(w, "data: %d\n", i); err != nil {
						return
					}
					_ = http.NewResponseController(w).Flush()
					select {
					case _, more := <-next:
						if !more {
							return
						}
					case <-r.Context().Done():
						return
					}
				}
			}), 10, proxy.Config{StallTimeout: 500 * time.Millisecond})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.addr, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&http.Client{Transport: protocol(h2)}).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if want := map[bool]int{false: 1, true: 2}[h2]; resp.ProtoMajor != want {
				t.Errorf("HTTP/%d, want %d", resp.ProtoMajor, want)
			}
			in := bufio.NewReader(resp.Body)
			for i := range 3 {
				if got, err := in.ReadString('\n'); got != fmt.Sprintf("data: %d\n", i) || err != nil {
					t.Fatalf("event %d: %q, %v", i, got, err)
				}
				<-time.After(600 * time.Millisecond) // a quiet stream is no stalled client
				if i < 2 {
					next <- struct{}{}
				}
			}
			close(next)
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("at the end %q, %v", rest, err)
			}
		})
	}
}

func protocol(h2 bool) *http.Transport {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return &http.Transport{Protocols: &p, DisableKeepAlives: !h2}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	lender := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(lender.Close)
	f := serve(t, http.HandlerFunc(show), 10, proxy.Config{TLS: &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12}})
	for major, h2 := range map[int]bool{1: false, 2: true} {
		transport := lender.Client().Transport.(*http.Transport).Clone() //nolint:forcetypeassert // httptest's is one
		var p http.Protocols
		p.SetHTTP1(!h2)
		p.SetHTTP2(h2)
		transport.Protocols, transport.TLSClientConfig.NextProtos = &p, nil
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.addr, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.ProtoMajor != major || err != nil || !strings.Contains(string(body), "X-Forwarded-Proto: https") {
			t.Errorf("HTTP/%d, want %d: %s, %v", resp.ProtoMajor, major, body, err)
		}
		transport.CloseIdleConnections()
	}
}

// gRPC needs HTTP/2 to the upstream, and trailers.
func TestTrailersOverHTTP2(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = fmt.Fprint(w, r.Proto)
		w.Header().Set("Grpc-Status", "0")
	}), 10, proxy.Config{Upstream: &url.URL{Scheme: "h2c"}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.addr, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: protocol(true)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(body) != "HTTP/2.0" || err != nil || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%s, %v, trailer %v", body, err, resp.Trailer)
	}
}

// Slowloris: a head that never ends is not waited for.
func TestSlowHead(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(show), 10, proxy.Config{})
	conn, in := f.dial(t)
	began := time.Now()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("the connection ended with %v", err)
	}
	if took := time.Since(began); took < 4*time.Second || took > 15*time.Second {
		t.Errorf("closed after %v, want 5 s", took)
	}
	if f.Stats().Inflight != 0 {
		t.Error("it counts as a request")
	}
}

// A client that asks for much and reads nothing is given up on.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				block := bytes.Repeat([]byte("x"), 64<<10)
				for {
					if _, err := w.Write(block); err != nil {
						return
					}
				}
			}), 10, proxy.Config{StallTimeout: 500 * time.Millisecond})
			conn, in := f.dial(t)
			if h2 {
				_, _ = conn.Write(append(preface(), get(1)...))
			} else {
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			}
			if _, err := in.ReadByte(); err != nil {
				t.Fatal(err)
			}
			await.That(t, "the request ends", func() bool { return f.Stats().Inflight == 0 })
		})
	}
}

// A client that stops in the middle of its body is given up on; one that is slow is not.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}), 10, proxy.Config{StallTimeout: time.Second})
	const head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
	conn, in := f.dial(t)
	for range 2 { // on one connection: nothing is left of the first
		_, _ = io.WriteString(conn, head)
		for _, b := range []string{"s", "l", "o", "w", "!"} {
			<-time.After(250 * time.Millisecond) // all of it takes longer than the timeout
			_, _ = io.WriteString(conn, b)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "slow!" || err != nil {
			t.Fatalf("%q, %v", body, err)
		}
		<-time.After(1100 * time.Millisecond) // an idle connection is no stalled client
	}
	_, _ = io.WriteString(conn, head+"st")
	text, err := io.ReadAll(in)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 408 ") || !strings.Contains(string(text), `"code":"request_timeout"`) {
		t.Errorf("%s, %v", text, err)
	}
	await.That(t, "the request ends", func() bool { return f.Stats().Inflight == 0 })
}

// preface opens a connection of HTTP/2, with empty SETTINGS.
func preface() []byte {
	return append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...)
}

// frame is a frame of HTTP/2 (RFC 9113, 4.1).
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	out := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(out, stream), payload...)
}

// get is a GET of / as HEADERS that end the stream: three fields of HPACK's static
// table and an authority.
func get(stream uint32) []byte {
	return frame(1, 5, stream, []byte{0x82, 0x86, 0x84, 0x01, 1, 'x'})
}

// Rapid reset: streams that are opened and canceled at once, as fast as one connection
// can, keep neither the upstream nor other clients busy for long.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Good") != "" {
			return
		}
		served.Add(1)
		<-r.Context().Done()
	}), 1_000_000, proxy.Config{})
	conn, in := f.dial(t)
	go func() { _, _ = io.Copy(io.Discard, in) }()
	burst := preface()
	const streams = 20_000
	for i := range uint32(streams) {
		burst = append(burst, get(2*i+1)...)
		burst = append(burst, frame(3, 0, 2*i+1, []byte{0, 0, 0, 8})...) // RST_STREAM, CANCEL
	}
	attack := make(chan error, 1)
	go func() {
		_, err := conn.Write(burst)
		attack <- err
	}()
	slow := 0
	for range 20 {
		began := time.Now()
		if r, _ := f.get(t, "/", "X-Good", "1"); r.StatusCode != 200 {
			t.Fatalf("another client got %d", r.StatusCode)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Logf("another client waited %v", took)
			slow++ // a machine that stands still may hold up one of them
		}
		if most := f.Stats().Inflight; most > 1_000 {
			t.Fatalf("%d requests under way of one connection", most)
		}
	}
	if slow > 1 {
		t.Errorf("%d of 20 requests of another client waited for more than 5 s", slow)
	}
	if err := <-attack; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Logf("the connection of the attack was closed: %v", err)
	}
	_ = conn.Close()
	await.That(t, "all of it ends", func() bool { return f.Stats().Inflight == 0 })
}
