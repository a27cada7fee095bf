package gateways_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	rateLimitService = "envoy.service.ratelimit.v3.RateLimitService"
	shouldRateLimit  = rateLimitService + "/ShouldRateLimit"
)

// three lets three hits of a key pass in a minute; a log has no boundary on which a
// test could fall.
const three = "rules:\n  - {id: three, domain: shop, match: {route: /v1/labels}, identity: [api_key], algorithm: sliding_log, limit: 3, window_s: 60, counting: exact}\n"

// hit is a request for one hit, as JSON of grpcurl and of POST /json.
func hit(domain string, entries ...string) string {
	var list []string
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		list = append(list, `{"key":"`+key+`","value":"`+value+`"}`)
	}
	return `{"domain":"` + domain + `","descriptors":[{"entries":[` + strings.Join(list, ",") + `]}]}`
}

// contains compares what a program said.
func contains(t testing.TB, what, said string, err error, wants ...string) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v\n%s", what, err, said)
		return
	}
	for _, want := range wants {
		if !strings.Contains(said, want) {
			t.Errorf("%s: got\n%s\nwant in it: %s", what, said, want)
		}
	}
}

func rlsPod(t testing.TB, args ...string) *pod {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", three)
	return start(t, dir, append([]string{"serve", "--rules", "file:rules.yaml"}, args...)...)
}

func TestGRPCurl(t *testing.T) {
	t.Parallel()
	grpcurl := client(t, "grpcurl")
	p := rlsPod(t, "--grpc", "127.0.0.1:0", "--grpc-reflection")
	said, err := tell(t, grpcurl, "-plaintext", p.grpc, "list")
	contains(t, "reflection", said, err, rateLimitService+"\n", "grpc.health.v1.Health\n")
	said, err = tell(t, grpcurl, "-plaintext", p.grpc, "describe", strings.ReplaceAll(shouldRateLimit, "/", "."))
	contains(t, "describe", said, err, "rpc ShouldRateLimit ( .envoy.service.ratelimit.v3.RateLimitRequest )")
	for _, service := range []string{"", rateLimitService} {
		said, err = tell(t, grpcurl, "-plaintext", "-d", `{"service":"`+service+`"}`, p.grpc, "grpc.health.v1.Health/Check")
		contains(t, "health of "+service, said, err, `"status": "SERVING"`)
	}
	for i := range 3 {
		said, err = tell(t, grpcurl, "-plaintext", "-d", hit("shop", "route=/v1/labels", "api_key=acct_7Q2"), p.grpc, shouldRateLimit)
		contains(t, "within the limit", said, err, `"overallCode": "OK"`, `"requestsPerUnit": 3`, `"unit": "MINUTE"`, `"name": "three"`)
		if i < 2 {
			contains(t, "what is left", said, err, `"limitRemaining": `+string(rune('2'-i)))
		}
	}
	said, err = tell(t, grpcurl, "-plaintext", "-d", hit("shop", "route=/v1/labels", "api_key=acct_7Q2"), p.grpc, shouldRateLimit)
	contains(t, "beyond the limit", said, err, `"overallCode": "OVER_LIMIT"`, `"code": "OVER_LIMIT"`, `"durationUntilReset": "`)
	said, err = tell(t, grpcurl, "-plaintext", "-d", hit("shop", "route=/v1/labels", "api_key=acct_other"), p.grpc, shouldRateLimit)
	contains(t, "another key", said, err, `"overallCode": "OK"`)
	if said, err = tell(t, grpcurl, "-plaintext", "-d", hit("shop", "route=/v1/labels"), p.grpc, shouldRateLimit); err == nil || !strings.Contains(said, "InvalidArgument") || !strings.Contains(said, "api_key") {
		t.Errorf("without an identity: %v\n%s", err, said)
	}
	p.stop(t)
	if said, err := tell(t, grpcurl, "-plaintext", "-connect-timeout", "2", p.grpc, "list"); err == nil {
		t.Errorf("after the end: %s", said)
	}
}

func TestGRPCurlWithoutReflection(t *testing.T) {
	t.Parallel()
	grpcurl := client(t, "grpcurl")
	p := rlsPod(t, "--grpc", "127.0.0.1:0")
	if said, err := tell(t, grpcurl, "-plaintext", p.grpc, "list"); err == nil || !strings.Contains(said, "does not support the reflection API") {
		t.Errorf("%v %s", err, said)
	}
}

// A certificate is its own authority: both sides show and trust it.
func TestRLSOverTLS(t *testing.T) {
	t.Parallel()
	grpcurl, clientCmd := client(t, "grpcurl"), client(t, "client_cmd")
	cert, key := certificate(t)
	p := rlsPod(t, "--grpc", "127.0.0.1:0", "--grpc-reflection",
		"--grpc-cert-file", cert, "--grpc-key-file", key, "--grpc-client-ca-file", cert)
	said, err := tell(t, grpcurl, "-cacert", cert, "-cert", cert, "-key", key, p.grpc, "list")
	contains(t, "with a certificate", said, err, rateLimitService)
	// What they say depends on which side finds the connection closed first.
	if said, err := tell(t, grpcurl, "-connect-timeout", "1", "-cacert", cert, p.grpc, "list"); err == nil || !strings.Contains(said, "Failed to dial") {
		t.Errorf("without a certificate: %v\n%s", err, said)
	}
	ask := []string{"-dial_string", p.grpc, "-domain", "shop", "-descriptors", "route=/v1/labels,api_key=acct_tls"}
	said, err = tell(t, clientCmd, append(ask, "-grpc-use-tls", "-grpc-server-ca-file", cert)...)
	if err == nil || !strings.Contains(said, "request error") {
		t.Errorf("without a certificate: %v\n%s", err, said)
	}
	if said, err := tell(t, clientCmd, ask...); err == nil || !strings.Contains(said, "request error") {
		t.Errorf("without TLS: %v\n%s", err, said)
	}
	said, err = tell(t, clientCmd, append(ask, "-grpc-use-tls", "-grpc-server-ca-file", cert, "-grpc-cert-file", cert, "-grpc-key-file", key)...)
	contains(t, "client_cmd", said, err, "overall_code:OK", "limit_remaining:2")
}

func TestRLSOnASocket(t *testing.T) {
	t.Parallel()
	grpcurl, clientCmd := client(t, "grpcurl"), client(t, "client_cmd")
	socket := filepath.Join(t.TempDir(), "tallygate.sock")
	p := rlsPod(t, "--grpc", "unix:"+socket, "--grpc-reflection")
	if p.grpc != socket {
		t.Errorf("it tells %s, want %s", p.grpc, socket)
	}
	said, err := tell(t, grpcurl, "-plaintext", "-d", hit("shop", "route=/v1/labels", "api_key=acct_uds"), "unix://"+socket, shouldRateLimit)
	contains(t, "grpcurl", said, err, `"overallCode": "OK"`, `"limitRemaining": 2`)
	said, err = tell(t, clientCmd, "-dial_string", "unix://"+socket, "-domain", "shop", "-descriptors", "route=/v1/labels,api_key=acct_uds")
	contains(t, "client_cmd", said, err, "overall_code:OK", "limit_remaining:1")
	p.stop(t)
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// The configuration of docs/migrating-from-envoy-ratelimit.md, asked by the client of
// the service that it comes from, and by curl.
func TestEnvoyRatelimitConfiguration(t *testing.T) {
	t.Parallel()
	clientCmd := client(t, "client_cmd")
	p := migrated(t)
	ask := func(descriptors ...string) (string, error) {
		args := []string{"-dial_string", p.grpc, "-domain", "messaging"}
		for _, d := range descriptors {
			args = append(args, "-descriptors", d)
		}
		return tell(t, clientCmd, args...)
	}
	for _, left := range []string{"limit_remaining:4", "limit_remaining:3", "limit_remaining:2", "limit_remaining:1", "unit:DAY"} {
		said, err := ask("message_type=marketing,to_number=1")
		contains(t, "five a day", said, err, "overall_code:OK", "requests_per_unit:5", left)
	}
	said, err := ask("message_type=marketing,to_number=1")
	contains(t, "the sixth", said, err, "overall_code:OVER_LIMIT", "duration_until_reset:")
	said, err = ask("message_type=marketing,to_number=2", "to_number=2")
	contains(t, "two descriptors", said, err, "overall_code:OK", "requests_per_unit:5", "requests_per_unit:100")
	said, err = ask("message_type=marketing,to_number=1", "to_number=1")
	contains(t, "one of two over", said, err, "overall_code:OVER_LIMIT", "code:OVER_LIMIT", "code:OK")
	said, err = ask("plan=gold")
	contains(t, "unlimited", said, err, "overall_code:OK", "limit_remaining:4294967295")
	said, err = ask("nobody=knows")
	contains(t, "no limit", said, err, "overall_code:OK")
}

func TestEnvoyRatelimitConfigurationOverJSON(t *testing.T) {
	t.Parallel()
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("NOT TESTED: curl is not installed")
	}
	p := migrated(t)
	for i := range 6 {
		said, err := tell(t, curl, "-sS", "-i", "-d", hit("messaging", "message_type=marketing", "to_number=1"), "http://"+p.http+"/json")
		if i < 5 {
			contains(t, "five a day", said, err, "HTTP/1.1 200 OK", `"overallCode":"OK"`, `"requestsPerUnit":5`)
		} else {
			contains(t, "the sixth", said, err, "HTTP/1.1 429 Too Many Requests", "\nRetry-After: ", `"overallCode":"OVER_LIMIT"`)
		}
	}
	said, err := tell(t, curl, "-sS", "-i", "-d", `{"domain":`, "http://"+p.http+"/json")
	contains(t, "half a request", said, err, "HTTP/1.1 400 Bad Request")
}

// migrated serves the configuration as it is printed.
func migrated(t testing.TB) *pod {
	t.Helper()
	dir := t.TempDir()
	limits := filepath.Join(dir, "limits")
	if err := os.Mkdir(limits, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, limits, "messaging.yaml", snippets(t, "migrating-from-envoy-ratelimit.md", "yaml")[0])
	return start(t, dir, "serve", "--rules", "envoy:limits", "--grpc", "127.0.0.1:0")
}

// certificate makes a certificate for 127.0.0.1 that is its own authority.
func certificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gateways"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return write(t, dir, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, dir, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}
