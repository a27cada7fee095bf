package bench_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tallygate/tallygate/internal/redistest"
)

// testOthers measures two other limiters, each the way it is fastest on one node, beside
// ours, the bare echo and the bare EVALSHA. They are built by scripts/install-others.sh.
func testOthers(t *testing.T) {
	envoys, gubernator := other(t, "service_cmd"), other(t, "gubernator")
	redis := redistest.Standalone(t)
	got := inTurn(t,
		startRLS(t, rlsEchoes, nil), startGubernator(t, gubernator), startRLS(t, rlsFromLease, nil),
		startRLS(t, rlsEvalshas, redis), startEnvoys(t, envoys, redis), startRLS(t, rlsExact, redis))
	echo, guber, leases, evalsha, envoy, exact := got[0], got[1], got[2], got[3], got[4], got[5]
	row(t, "gubernator / grpc-go echo", guber.rate, echo.rate, "calls/s", "-", true)
	row(t, "gubernator, server CPU / echo", guber.cpuUS, echo.cpuUS, "us", "-", true)
	row(t, "envoyproxy/ratelimit / grpc-go with an EVALSHA", envoy.rate, evalsha.rate, "calls/s", "-", true)
	row(t, "envoyproxy/ratelimit, server CPU / with EVALSHA", envoy.cpuUS, evalsha.cpuUS, "us", "-", true)
	row(t, "envoyproxy/ratelimit, Redis CPU / with EVALSHA", envoy.redisUS, evalsha.redisUS, "us", "-", true)
	row(t, "Envoy RLS call from leases / gubernator", leases.rate, guber.rate, "calls/s", atLeast(1.5), leases.rate >= 1.5*guber.rate)
	row(t, "Envoy RLS call from leases / envoyproxy/ratelimit", leases.rate, envoy.rate, "calls/s", atLeast(2), leases.rate >= 2*envoy.rate)
	row(t, "Envoy RLS call, exact / envoyproxy/ratelimit", exact.rate, envoy.rate, "calls/s", "-", true)
	row(t, "gubernator, server CPU / ours from leases", guber.cpuUS, leases.cpuUS, "us", "-", true)
	row(t, "envoyproxy/ratelimit, server CPU / ours, exact", envoy.cpuUS, exact.cpuUS, "us", "-", true)
}

// other is another limiter's server, or the test is skipped: it is a yardstick of
// advertisements, not of correctness.
func other(t *testing.T, name string) string {
	t.Helper()
	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(home, "tallygate", "bin", name)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("NOT MEASURED: %s is not built (scripts/install-others.sh)", name)
	}
	return program
}

// startEnvoys starts envoyproxy/ratelimit with the limit of the other servers.
func startEnvoys(t *testing.T, program string, redis *redistest.Server) *rlsChild {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		t.Fatal(err)
	}
	limit := fmt.Sprintf("domain: public-api\ndescriptors:\n- key: plan\n  value: growth\n  descriptors:\n  - key: api_key\n    rate_limit: {unit: second, requests_per_unit: %d}\n", plenty)
	if err := os.WriteFile(filepath.Join(config, "config.yaml"), []byte(limit), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freePort(t)
	_, port, _ := net.SplitHostPort(address)
	c := startOther(t, program, "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port,
		"HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0", "DISABLE_STATS=true", "USE_STATSD=false", "LOG_LEVEL=ERROR",
		"RUNTIME_ROOT="+dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr, "REDIS_PIPELINE_WINDOW=150us")
	c.redis = redis
	c.connect(t, address, askRLS)
	return c
}

// startGubernator starts one node of gubernator, which keeps all keys itself.
func startGubernator(t *testing.T, program string) *rlsChild {
	t.Helper()
	address, gossip := freePort(t), freePort(t)
	c := startOther(t, program, "GUBER_GRPC_ADDRESS="+address, "GUBER_ADVERTISE_ADDRESS="+address, "GUBER_HTTP_ADDRESS="+freePort(t),
		"GUBER_MEMBERLIST_ADDRESS="+gossip, "GUBER_MEMBERLIST_BIND_ADDRESS="+gossip, "GUBER_MEMBERLIST_KNOWN_NODES="+gossip,
		"GUBER_LOG_LEVEL=error", "OTEL_TRACES_EXPORTER=none")
	c.connect(t, address, askGubernator)
	return c
}

func startOther(t *testing.T, program string, env ...string) *rlsChild {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &rlsChild{pid: cmd.Process.Pid}
}

// freePort is an address nobody listens on, for a program that cannot choose one.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// gubernatorRequest asks for one hit of the key that rlsRequest names, in the fields of
// gubernator's GetRateLimits: name, unique_key, hits, limit, duration in ms; a token
// bucket is the default.
func gubernatorRequest() []byte {
	var r []byte
	r = protowire.AppendString(protowire.AppendTag(r, 1, protowire.BytesType), "growth-global")
	r = protowire.AppendString(protowire.AppendTag(r, 2, protowire.BytesType), "acct_7Q2")
	for field, n := range map[protowire.Number]uint64{3: 1, 4: plenty, 5: 1000} {
		r = protowire.AppendVarint(protowire.AppendTag(r, field, protowire.VarintType), n)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), r)
}

// askGubernator returns a caller of gubernator on a connection.
func askGubernator(conn *grpc.ClientConn) func() error {
	request := gubernatorRequest()
	return func() error {
		var answer []byte
		if err := conn.Invoke(context.Background(), "/pb.gubernator.V1/GetRateLimits", &request, &answer, grpc.ForceCodec(rawCodec{})); err != nil {
			return err
		}
		return underLimit(answer)
	}
}

// underLimit reads the one response in an answer of GetRateLimits: its status (field 1, 0
// means under the limit) and its error (field 5).
func underLimit(answer []byte) error {
	_, _, tag := protowire.ConsumeTag(answer)
	if tag < 0 {
		return fmt.Errorf("answer %x", answer)
	}
	one, n := protowire.ConsumeBytes(answer[tag:])
	if n < 0 {
		return fmt.Errorf("answer %x", answer)
	}
	for len(one) > 0 {
		field, kind, n := protowire.ConsumeTag(one)
		if n < 0 {
			return fmt.Errorf("answer %x", answer)
		}
		if field == 1 || field == 5 {
			return fmt.Errorf("not under the limit: %x", answer)
		}
		value := protowire.ConsumeFieldValue(field, kind, one[n:])
		if value < 0 {
			return fmt.Errorf("answer %x", answer)
		}
		one = one[n+value:]
	}
	return nil
}

// rawCodec passes messages that are bytes already.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, errors.New("not bytes")
	}
	return *b, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errors.New("not bytes")
	}
	*b = append((*b)[:0], data...)
	return nil
}
