package rls_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/rls"
)

var _ encoding.Codec = raw{}

func forceCodec() grpc.CallOption { return grpc.ForceCodec(raw{}) }

func TestHealth(t *testing.T) {
	t.Parallel()
	s, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
	check := func() healthv1.HealthCheckResponse_ServingStatus {
		t.Helper()
		r, err := healthv1.NewHealthClient(conn).Check(context.Background(), &healthv1.HealthCheckRequest{Service: "envoy.service.ratelimit.v3.RateLimitService"})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
	if got := check(); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("at first: %v", got)
	}
	s.SetServing(false)
	if got := check(); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("told otherwise: %v", got)
	}
	s.SetServing(true)
	if got := check(); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("and back: %v", got)
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil), Reflection: on})
		stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		answer, err := stream.Recv()
		_ = stream.CloseSend()
		if !on {
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("off: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range answer.GetListServicesResponse().GetService() {
			names = append(names, s.GetName())
		}
		if !slices.Contains(names, "envoy.service.ratelimit.v3.RateLimitService") {
			t.Errorf("it lists %v", names)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rls.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)}, l)
	if got := told(ask(t, dial(t, "unix:"+path, nil), request(of("ten", "k")))); !strings.HasPrefix(got, "OK; OK 9") {
		t.Error(got)
	}
}

// certificate is one for localhost, signed by itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	t.Parallel()
	own, pool := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, rls.Config{Limiter: limiterOf(t, newClock(), nil), TLS: &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}}, l)
	conn := dial(t, l.Addr().String(), credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS13}))
	if got := told(ask(t, conn, request(of("ten", "k")))); !strings.HasPrefix(got, "OK; OK 9") {
		t.Error(got)
	}
	plain := dial(t, l.Addr().String(), nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := rlsv3.NewRateLimitServiceClient(plain).ShouldRateLimit(ctx, request(of("ten", "k"))); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
}

// held is a server with one request under way, and what ends it.
func held(t *testing.T, config rls.Config) (stop func(), release chan struct{}, call, served chan error, conn *grpc.ClientConn) {
	t.Helper()
	enter := make(chan struct{})
	release = make(chan struct{})
	config.Limiter = decide(func(ctx context.Context, _ tallygate.Check, v *tallygate.Verdict) error {
		close(enter)
		select {
		case <-release:
		case <-ctx.Done():
		}
		v.Allow = true
		return nil
	})
	s := newServer(t, config)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	call, served = make(chan error, 1), make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	conn = dial(t, l.Addr().String(), nil)
	go func() {
		_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), request(of("ten", "k")))
		call <- err
	}()
	<-enter
	return stop, release, call, served, conn
}

func TestStopWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	stop, release, call, served, conn := held(t, rls.Config{Drain: time.Millisecond})
	watch, err := healthv1.NewHealthClient(conn).Watch(context.Background(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for { // until its health says so
		r, err := watch.Recv()
		if err != nil || r.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING {
			break
		}
	}
	select {
	case err := <-served:
		t.Fatalf("Serve returned %v with a request under way", err)
	case err := <-call:
		t.Fatalf("the request ended: %v", err)
	default:
	}
	close(release)
	if err := <-call; err != nil {
		t.Errorf("the request: %v", err)
	}
	_ = conn.Close() // and with it the watch of health, which never ends by itself
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	stop, release, call, served, _ := held(t, rls.Config{Finish: 50 * time.Millisecond})
	defer close(release)
	stop()
	if err := <-served; err == nil || !strings.Contains(err.Error(), "50ms") {
		t.Errorf("Serve: %v", err)
	}
	if err := <-call; err == nil {
		t.Error("the request was answered")
	}
}

func TestAdornments(t *testing.T) {
	t.Parallel()
	config := rls.Config{Limiter: limiterOf(t, newClock(), nil), Headers: &headers.Style{Reset: headers.ResetSeconds}, Body: true, Metadata: true}
	_, conn := service(t, config)
	fields := func(r *rlsv3.RateLimitResponse) string {
		var list []string
		for _, h := range r.GetResponseHeadersToAdd() {
			list = append(list, h.GetKey()+": "+h.GetValue())
		}
		return strings.Join(list, "; ")
	}
	ok := ask(t, conn, addend(request(of("two", "k"), of("ten", "k")), 2))
	if got, want := fields(ok), `X-RateLimit-Limit: 2; X-RateLimit-Remaining: 0; X-RateLimit-Reset: 60; RateLimit-Policy: "two";q=2;w=60; RateLimit: "two";r=0;t=60`; got != want {
		t.Errorf("HDR-06 headers of the tightest:\ngot  %s\nwant %s", got, want)
	}
	if len(ok.GetRawBody()) > 0 || ok.GetDynamicMetadata().AsMap()["verdict"] != "allow" {
		t.Errorf("allowed: %v", ok)
	}
	no := ask(t, conn, request(of("two", "k")))
	if got := fields(no); !strings.Contains(got, "Retry-After: 60") || !strings.Contains(got, "content-type: application/problem+json") {
		t.Errorf("denied: %s", got)
	}
	var problem map[string]any
	if err := json.Unmarshal(no.GetRawBody(), &problem); err != nil || problem["error"] != "rate_limit_exceeded" || problem["code"] != "rate_limit_exceeded" || problem["denied_by"] != "two" || problem["retry_after_seconds"] != 60.0 {
		t.Errorf("body %s: %v", no.GetRawBody(), err)
	}
	if m := no.GetDynamicMetadata().AsMap(); m["verdict"] != "deny" || m["denied_by"] != "two" || m["retry_ms"] != 60_000.0 {
		t.Errorf("metadata %v", m)
	}
}
