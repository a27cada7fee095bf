package grpclimit_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/grpclimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

const (
	checkMethod = "/grpc.health.v1.Health/Check"
	watchMethod = "/grpc.health.v1.Health/Watch"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newLimiter(t testing.TB, list ...rules.Rule) *tallygate.Limiter {
	t.Helper()
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: list}, 1, start)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Now: func() time.Time { return start }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

// window is a rule of so many calls a minute.
func window(id, route, by string, n int64) rules.Rule {
	return rules.Rule{
		ID: id, Match: map[string]string{"route": route}, Identity: []string{by}, CoversAll: true,
		Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: n, WindowS: 60},
	}
}

// serve starts a server behind the interceptors and returns a client of it.
func serve(t testing.TB, c grpclimit.Config, extra ...grpc.ServerOption) healthpb.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(append(extra,
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(c)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(c)),
	)...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///bufconn",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// answer is what a caller sees.
type answer struct {
	code            codes.Code
	text            string
	header, trailer metadata.MD
	retry           *errdetails.RetryInfo
}

func (a *answer) read(err error) {
	s := status.Convert(err)
	a.code, a.text = s.Code(), s.Message()
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			a.retry = info
		}
	}
}

func (a *answer) get(name string) string { return strings.Join(a.header.Get(name), "|") }

func check(t testing.TB, client healthpb.HealthClient, md ...string) (a answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := client.Check(metadata.AppendToOutgoingContext(ctx, md...), &healthpb.HealthCheckRequest{}, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	a.read(err)
	return a
}

// watch opens a stream, reads one message and goes.
func watch(t testing.TB, client healthpb.HealthClient, md ...string) (a answer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := client.Watch(metadata.AppendToOutgoingContext(ctx, md...), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	a.header, _ = stream.Header()
	if err != nil {
		a.trailer = stream.Trailer()
	}
	a.read(err)
	return a
}

func identities(t testing.TB, c identity.Config) *identity.Resolver {
	t.Helper()
	r, err := identity.NewResolver(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCallsAreLimited(t *testing.T) {
	t.Parallel()
	byKey := identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}}
	for _, tt := range []struct {
		name, method string
		call         func(testing.TB, healthpb.HealthClient, ...string) answer
	}{{"unary", checkMethod, check}, {"stream", watchMethod, watch}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, grpclimit.Config{
				Limiter:  newLimiter(t, window("r", tt.method, "api_key", 2)),
				Identity: identities(t, byKey),
			})
			for i, left := range []string{"1", "0"} {
				a := tt.call(t, client, "x-api-key", "K1")
				if a.code != codes.OK || a.get("x-ratelimit-limit") != "2" || a.get("x-ratelimit-remaining") != left || a.get("retry-after") != "" {
					t.Errorf("call %d: %+v", i+1, a)
				}
			}
			a := tt.call(t, client, "x-api-key", "K1")
			if a.code != codes.ResourceExhausted || a.text != "rate_limit_exceeded: denied by rule r" {
				t.Errorf("the third: %v %q", a.code, a.text)
			}
			if a.retry.GetRetryDelay().AsDuration() != time.Minute {
				t.Errorf("RetryInfo is %v, want 1 min", a.retry)
			}
			if a.get("x-ratelimit-remaining") != "0" || a.get("ratelimit") != `"r";r=0;t=60` || a.get("retry-after") != "60" {
				t.Errorf("HDR-09 headers are %v", a.header)
			}
			if got := a.trailer.Get("retry-after"); len(got) != 1 || got[0] != "60" {
				t.Errorf("trailers are %v", a.trailer)
			}
			if a := tt.call(t, client, "x-api-key", "k1"); a.get("x-ratelimit-remaining") != "1" {
				t.Errorf("SEC-10 another key: %+v", a)
			}
			if a := tt.call(t, client, "x-api-key", "K1", "X-Api-Key", "K2"); a.code != codes.InvalidArgument || !strings.HasPrefix(a.text, "ambiguous: ") {
				t.Errorf("two keys: %v %q", a.code, a.text)
			}
		})
	}
}

// at gives calls a peer, as a listener would.
func at(addr net.Addr, info credentials.AuthInfo) grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(peer.NewContext(ctx, &peer.Peer{Addr: addr, AuthInfo: info}), req)
	})
}

func TestWhoCalls(t *testing.T) {
	t.Parallel()
	one := identity.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	cert := &x509.Certificate{Subject: pkix.Name{CommonName: "svc"}}
	verified := credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}
	presented := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}}
	proxy := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}
	client := &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 40001}
	byCert := identity.Config{Sources: map[string]string{"service": "tls:cn"}}
	for _, tt := range []struct {
		name   string
		config identity.Config
		addr   net.Addr
		info   credentials.AuthInfo
		md     []string
		want   string
	}{
		{"the peer", one, client, nil, []string{"x-forwarded-for", "192.0.2.77"}, "map[ip:203.0.113.9 route:" + checkMethod + "]"},
		{"SEC-01 through a proxy", one, proxy, nil, []string{"x-forwarded-for", "192.0.2.77, 203.0.113.9"}, "map[ip:203.0.113.9 route:" + checkMethod + "]"},
		{"a certificate", byCert, client, verified, nil, "map[ip:203.0.113.9 route:" + checkMethod + " service:svc]"},
		{"a certificate nobody verified", byCert, client, presented, nil, "map[ip:203.0.113.9 route:" + checkMethod + "]"},
		{"no address", one, &net.UnixAddr{Name: "@"}, nil, nil, "map[route:" + checkMethod + "]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got string
			c := serve(t, grpclimit.Config{
				Limiter: stub{verdict: tallygate.Verdict{Allow: true, Tightest: -1}}, Identity: identities(t, tt.config),
				Attributes: func(_ context.Context, _ grpclimit.Call, attrs map[string]string) { got = fmt.Sprint(attrs) },
			}, at(tt.addr, tt.info))
			if a := check(t, c, tt.md...); a.code != codes.OK {
				t.Fatalf("got %+v", a)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// stub answers each check alike.
type stub struct {
	verdict tallygate.Verdict
	err     error
	cost    *int64
}

func (s stub) Decide(_ context.Context, check tallygate.Check, v *tallygate.Verdict) error {
	if s.cost != nil {
		*s.cost = check.Cost
	}
	*v = s.verdict
	return s.err
}

func TestWithoutVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		err   error
		code  codes.Code
		retry bool
	}{
		{"FLT-12 timeout", &tallygate.Error{Code: tallygate.CodeStoreTimeout, Err: errors.New("10.1.1.1")}, codes.Unavailable, true},
		{"unavailable", &tallygate.Error{Code: tallygate.CodeStoreUnavailable}, codes.Unavailable, true},
		{"overloaded", &tallygate.Error{Code: tallygate.CodeOverloaded}, codes.Unavailable, true},
		{"not reservable", &tallygate.Error{Code: tallygate.CodeNotReservable}, codes.InvalidArgument, false},
		{"closed", tallygate.ErrClosed, codes.Unavailable, false},
		{"canceled", &tallygate.Error{Code: tallygate.CodeCanceled}, codes.Canceled, false},
		{"missing identity", &tallygate.Error{Code: tallygate.CodeMissingIdentity}, codes.InvalidArgument, false},
		{"invalid cost", &tallygate.Error{Code: tallygate.CodeInvalidCost}, codes.InvalidArgument, false},
		{"unknown rule", &tallygate.Error{Code: tallygate.CodeUnknownRule}, codes.Internal, false},
		{"a new code", &tallygate.Error{Code: "new"}, codes.Internal, false},
		{"another error", errors.New("10.1.1.1"), codes.Internal, false},
		{"no rules", &tallygate.Error{Code: tallygate.CodeUnknownDomain}, codes.OK, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, grpclimit.Config{Limiter: stub{err: tt.err}})
			a := check(t, client)
			if a.code != tt.code || (a.retry.GetRetryDelay().AsDuration() == time.Second) != tt.retry || strings.Contains(a.text, "10.1.1.1") {
				t.Errorf("got %v %q, retry %v", a.code, a.text, a.retry)
			}
			if b := watch(t, client); b.code != a.code {
				t.Errorf("a stream gets %v", b.code)
			}
		})
	}
}

func TestADomainWithoutRulesIsToldOf(t *testing.T) {
	t.Parallel()
	elsewhere := window("r", "*", "ip", 5)
	elsewhere.Domain = "public-api"
	limiter := newLimiter(t, elsewhere)
	for _, tt := range []struct {
		name, domain string
		want         int
	}{
		{"one line for several calls", "", 1},
		{"none where there are rules", "public-api", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			config := grpclimit.Config{Limiter: limiter, Domain: tt.domain, Log: slog.New(slog.NewTextHandler(&logged, nil))}
			admit := grpclimit.UnaryServerInterceptor(config)
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 1}})
			for range 3 {
				if _, err := admit(ctx, nil, &grpc.UnaryServerInfo{FullMethod: checkMethod}, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
					t.Fatal(err)
				}
			}
			if s := logged.String(); strings.Count(s, "requests pass unlimited") != tt.want || tt.want > 0 && !strings.Contains(s, "domain=default") {
				t.Errorf("logged %q, want %d warnings", s, tt.want)
			}
		})
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	denied := stub{verdict: tallygate.Verdict{DeniedBy: "r", RetryMS: 1500, Tightest: -1}}
	t.Run("HDR-08 no numbers without the store", func(t *testing.T) {
		a := check(t, serve(t, grpclimit.Config{Limiter: denied}))
		if a.get("x-ratelimit-limit") != "" || a.get("retry-after") != "2" || a.retry.GetRetryDelay().AsDuration() != 1500*time.Millisecond {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("spread", func(t *testing.T) {
		a := check(t, serve(t, grpclimit.Config{
			Limiter:     stub{verdict: tallygate.Verdict{DeniedBy: "r", RetryMS: 60_000, Tightest: -1}},
			RetryJitter: 0.1, Rand: func() float64 { return 0.999 },
		}))
		if a.get("retry-after") != "66" || a.retry.GetRetryDelay().AsDuration() != 66*time.Second {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("no waiting helps", func(t *testing.T) {
		a := check(t, serve(t, grpclimit.Config{Limiter: stub{verdict: tallygate.Verdict{DeniedBy: "no", Tightest: -1}}}))
		if a.code != codes.ResourceExhausted || a.retry != nil || a.get("retry-after") != "" {
			t.Errorf("got %+v", a)
		}
	})
	t.Run("cost, skip, report only, own errors", func(t *testing.T) {
		var cost int64
		var seen []string
		c := grpclimit.Config{
			Limiter: stub{verdict: denied.verdict, cost: &cost},
			Cost: func(_ context.Context, call grpclimit.Call) int64 {
				if _, ok := call.Request.(*healthpb.HealthCheckRequest); ok {
					return 7
				}
				return 3
			},
			Skip: func(ctx context.Context, _ grpclimit.Call) bool {
				md, _ := metadata.FromIncomingContext(ctx)
				return md.Get("skip") != nil
			},
			Observe: func(_ context.Context, call grpclimit.Call, v *tallygate.Verdict, err error) {
				seen = append(seen, fmt.Sprint(call.Method, v == nil, err))
			},
			OnDeny: func(_ context.Context, _ grpclimit.Call, v *tallygate.Verdict) error {
				return status.Error(codes.PermissionDenied, "slow down: "+v.DeniedBy)
			},
		}
		if a := check(t, serve(t, c)); a.code != codes.PermissionDenied || a.text != "slow down: r" || cost != 7 {
			t.Errorf("own error: %+v, cost %d", a, cost)
		}
		if a := watch(t, serve(t, c)); a.code != codes.PermissionDenied || cost != 3 {
			t.Errorf("own error of a stream: %+v, cost %d", a, cost)
		}
		if a := check(t, serve(t, c), "skip", "1"); a.code != codes.OK {
			t.Errorf("skipped: %+v", a)
		}
		c.ReportOnly = true
		if a := check(t, serve(t, c)); a.code != codes.OK || a.get("retry-after") != "" {
			t.Errorf("report only: %+v", a)
		}
		c.ReportOnly, c.Limiter = false, stub{err: tallygate.ErrClosed}
		c.OnError = func(context.Context, grpclimit.Call, error) error { return nil }
		if a := check(t, serve(t, c)); a.code != codes.OK {
			t.Errorf("admitted: %+v", a)
		}
		if got := strings.Join(seen, " "); got != checkMethod+"false <nil> "+watchMethod+"false <nil> "+checkMethod+"false <nil> "+checkMethod+"true closed: the limiter is closed" {
			t.Errorf("observed %s", got)
		}
	})
	t.Run("no limiter", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("an interceptor without a Limiter did not panic")
			}
		}()
		grpclimit.UnaryServerInterceptor(grpclimit.Config{})
	})
}

// A client's limit headers are nobody's numbers.
func TestClientsCopiesAreDropped(t *testing.T) {
	t.Parallel()
	var seen metadata.MD
	look := func(ctx context.Context) { seen, _ = metadata.FromIncomingContext(ctx) }
	c := grpclimit.Config{Limiter: stub{verdict: tallygate.Verdict{Allow: true, Tightest: -1}}}
	unary, stream := grpclimit.UnaryServerInterceptor(c), grpclimit.StreamServerInterceptor(c)
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-ratelimit-limit", "1", "ratelimit", "1", "retry-after", "1", "x-other", "1"))
	_, err := unary(ctx, nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) { look(ctx); return nil, nil })
	if err != nil || seen.Len() != 1 {
		t.Errorf("a unary handler sees %v, %v", seen, err)
	}
	seen = nil
	err = stream(nil, fakeStream{ctx: ctx}, &grpc.StreamServerInfo{}, func(_ any, s grpc.ServerStream) error { look(s.Context()); return nil })
	if err != nil || seen.Len() != 1 {
		t.Errorf("a stream handler sees %v, %v", seen, err)
	}
}

type fakeStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream is asked for its context
}

func (s fakeStream) Context() context.Context { return s.ctx }

func BenchmarkUnary(b *testing.B) {
	bucket := rules.Rule{
		ID: "r", Match: map[string]string{"route": checkMethod}, Identity: []string{"api_key"},
		Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1e9, Burst: 1e9},
	}
	interceptor := grpclimit.UnaryServerInterceptor(grpclimit.Config{
		Limiter:  newLimiter(b, bucket),
		Identity: identities(b, identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}}),
	})
	ctx := peer.NewContext(b.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 40001}})
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("x-api-key", "acct_7Q2", "user-agent", "test"))
	info := &grpc.UnaryServerInfo{FullMethod: checkMethod}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := interceptor(ctx, nil, info, handler); err != nil {
			b.Fatal(err)
		}
	}
}
