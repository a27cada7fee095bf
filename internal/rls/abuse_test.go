package rls_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/rls"
)

// Frames of HTTP/2, written by hand: no client of ours would send these.
const (
	frameData     = 0x0
	frameHeaders  = 0x1
	frameReset    = 0x3
	frameSettings = 0x4
	endStream     = 0x1
	endHeaders    = 0x4
	preface       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// opening are the headers of a call.
func opening(stream uint32) []byte {
	var block []byte
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":authority", "a"},
		{":path", rlsv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} { // literals that are not to be indexed
		block = append(append(block, 0, byte(len(f[0]))), f[0]...)
		block = append(append(block, byte(len(f[1]))), f[1]...)
	}
	return frame(frameHeaders, endHeaders, stream, block)
}

// message is a request as gRPC frames it.
func message(t testing.TB, r *rlsv3.RateLimitRequest) []byte {
	t.Helper()
	text, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// raw2 is a connection that speaks what it is told to. What comes back is thrown away.
func raw2(t testing.TB, address string, first ...byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write(first); err != nil {
		t.Fatal(err)
	}
	return c
}

func hello() []byte { return append([]byte(preface), frame(frameSettings, 0, 0, nil)...) }

// listening starts a server and returns its address.
func listening(t testing.TB, config rls.Config) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, config, l)
	return l.Addr().String()
}

// A client that opens calls and resets them at once (CVE-2023-44487) has no more of
// them under way than a connection may, and others are answered meanwhile.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	const streams = 8
	l := limiterOf(t, newClock(), nil)
	var now, most, begun atomic.Int64
	address := listening(t, rls.Config{MaxStreams: streams, Limiter: decide(func(ctx context.Context, c tallygate.Check, v *tallygate.Verdict) error {
		if c.Sets[0].Attributes["plan"] == "ten" {
			return l.Decide(context.WithoutCancel(ctx), c, v)
		}
		begun.Add(1)
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); {
			old = most.Load()
		}
		<-ctx.Done() // until its reset arrives
		return ctx.Err()
	})})
	c := raw2(t, address, hello()...)
	go func() { _, _ = io.Copy(io.Discard, c) }()
	flood := make(chan error, 1)
	go func() {
		text := message(t, request(of("two", "k")))
		var burst bytes.Buffer
		var err error
		for stream := uint32(1); stream < 40_000 && err == nil; stream += 2 {
			burst.Write(opening(stream))
			burst.Write(frame(frameData, endStream, stream, text))
			burst.Write(frame(frameReset, 0, stream, []byte{0, 0, 0, 8}))
			if stream%100 == 99 {
				_, err = c.Write(burst.Bytes())
				burst.Reset()
			}
		}
		flood <- err
	}()
	good := dial(t, address, nil)
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := rlsv3.NewRateLimitServiceClient(good).ShouldRateLimit(ctx, request(hits(of("ten", "k"), 0)))
		cancel()
		if err != nil {
			t.Fatalf("beside the flood: %v", err)
		}
	}
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	if err := <-flood; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server stopped reading for good")
	}
	if most.Load() > streams || begun.Load() == 0 {
		t.Errorf("%d calls of the connection were under way at a time, want at most %d of %d", most.Load(), streams, begun.Load())
	}
}

// Half of a request takes no place of those under way, however many there are.
func TestHalfRequestsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	address := listening(t, rls.Config{MaxInflight: 1, MaxStreams: 100, Limiter: limiterOf(t, newClock(), nil)})
	text := message(t, request(of("two", "k")))
	for range 5 {
		b := hello()
		for stream := uint32(1); stream < 200; stream += 2 {
			b = append(append(b, opening(stream)...), frame(frameData, 0, stream, text[:len(text)/2])...)
		}
		raw2(t, address, b...)
	}
	conn := dial(t, address, nil)
	for range 20 {
		if got := told(ask(t, conn, request(hits(of("ten", "k"), 0)))); got != "OK; OK 10 of 10/MINUTE ten in 1m0s" {
			t.Fatal(got)
		}
	}
}

// Who says hello byte by byte, or nothing, is not waited for.
func TestSlowHelloIsClosed(t *testing.T) {
	t.Parallel()
	address := listening(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
	var all sync.WaitGroup
	for name, drip := range map[string]bool{"nothing": false, "drop by drop": true} {
		c := raw2(t, address)
		all.Go(func() {
			began, gone := time.Now(), make(chan struct{})
			_ = c.SetReadDeadline(began.Add(20 * time.Second))
			if drip {
				go func() {
					every := time.NewTicker(time.Second)
					defer every.Stop()
					for i := range len(preface) - 1 {
						_, _ = c.Write([]byte{preface[i]})
						select {
						case <-gone:
							return
						case <-every.C:
						}
					}
				}()
			}
			_, err := io.Copy(io.Discard, c)
			close(gone)
			if took := time.Since(began); errors.Is(err, os.ErrDeadlineExceeded) || took < 3*time.Second {
				t.Errorf("%s: ended after %v: %v; want about 5 s", name, took, err)
			}
		})
	}
	all.Wait()
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// What is refused is counted and logged, also what never becomes a request, and told
// with its field.
func TestRefusalsAreSeen(t *testing.T) {
	t.Parallel()
	// large is a request whose message has so many bytes.
	large := func(n int) *rlsv3.RateLimitRequest {
		r := request(of("ten", "k"), descriptor("a="))
		more := n - proto.Size(r)
		r.Descriptors[1].Entries[0].Value = strings.Repeat("v", more)
		r.Descriptors[1].Entries[0].Value = strings.Repeat("v", more-(proto.Size(r)-n))
		return r
	}
	for _, test := range []struct {
		name    string
		request *rlsv3.RateLimitRequest
		bytes   []byte // instead of it
		code    codes.Code
		says    []string
	}{
		{"no domain", &rlsv3.RateLimitRequest{}, nil, codes.InvalidArgument, []string{"domain: is empty"}},
		{"no descriptors", request(), nil, codes.InvalidArgument, []string{"descriptors: is empty"}},
		{"too many descriptors", request(many(100_000, descriptor())...), nil, codes.InvalidArgument, []string{"descriptors: ", "100000", "128"}},
		{"a message of 4 MiB and a byte", large(4<<20 + 1), nil, codes.ResourceExhausted, []string{"message", "4194305", "4194304"}},
		{"no UTF-8", nil, []byte{0x0a, 2, 0xff, 0xfe}, codes.Internal, []string{"RateLimitRequest.domain", "UTF-8"}},
		{"no token", request(of("ten", "k")), nil, codes.Unauthenticated, []string{"authorization: Bearer"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			log := new(logged)
			config := rls.Config{Limiter: limiterOf(t, newClock(), nil), Log: slog.New(slog.NewTextHandler(log, nil))}
			if test.code == codes.Unauthenticated {
				config.Authorize = func(string) bool { return false }
			}
			s, conn := service(t, config)
			var err error
			if test.request != nil {
				_, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), test.request)
			} else {
				err = conn.Invoke(context.Background(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, &test.bytes, new([]byte), forceCodec())
			}
			if status.Code(err) != test.code {
				t.Errorf("got %v, want %v", err, test.code)
			}
			// The sender of what could not be read is told first.
			for late := time.Now().Add(10 * time.Second); log.String() == "" && time.Now().Before(late); {
				time.Sleep(time.Millisecond)
			}
			if got := s.Stats().Failed; got != 1 {
				t.Errorf("counted %d times, want once", got)
			}
			for _, part := range test.says {
				if !strings.Contains(status.Convert(err).Message(), part) || !strings.Contains(log.String(), part) {
					t.Errorf("%q is not in %q, or not in the log: %s", part, status.Convert(err).Message(), log)
				}
			}
		})
	}
	t.Run("a message of 4 MiB is read", func(t *testing.T) {
		t.Parallel()
		_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
		if got := told(ask(t, conn, large(4<<20))); got != "OK; OK 9 of 10/MINUTE ten in 1m0s; OK" {
			t.Error(got)
		}
	})
}
