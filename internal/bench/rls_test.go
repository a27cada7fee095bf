package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tallygate/tallygate/internal/redistest"
)

// rlsCallers is how many calls are under way at a time, over rlsConns connections.
const (
	rlsCallers = 64
	rlsConns   = 4
)

// rlsRequest is what is asked: a plan's key, as Envoy would send it.
func rlsRequest() *rlsv3.RateLimitRequest {
	entry := func(k, v string) *commonv3.RateLimitDescriptor_Entry {
		return &commonv3.RateLimitDescriptor_Entry{Key: k, Value: v}
	}
	return &rlsv3.RateLimitRequest{Domain: "public-api", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{entry("plan", "growth"), entry("api_key", "acct_7Q2")}},
	}}
}

// rlsChild is a server in a process of its own, so that its CPU time is not its
// callers', and clients of it.
type rlsChild struct {
	pid     int
	redis   *redistest.Server // the one it asks; nil for none
	scripts bool              // it must run a script there each call
	ask     []func() error    // one a connection; an error if the call is not allowed
}

// startRLS starts a server. One with a Redis must ask it for each call.
func startRLS(t *testing.T, which string, redis *redistest.Server) *rlsChild {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRLSServer$", "-test.timeout=5m")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), rlsServer+"="+which)
	if redis != nil {
		cmd.Env = append(cmd.Env, rlsRedis+"="+redis.Addr)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	address, found := strings.CutPrefix(strings.TrimSpace(line), "listening ")
	if !found {
		t.Fatalf("the child said %q: %v", line, err)
	}
	c := &rlsChild{pid: cmd.Process.Pid, redis: redis, scripts: redis != nil}
	c.connect(t, address, askRLS)
	return c
}

// connect opens the connections and waits until the server answers.
func (c *rlsChild) connect(t *testing.T, address string, caller func(*grpc.ClientConn) func() error) {
	t.Helper()
	for range rlsConns {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c.ask = append(c.ask, caller(conn))
	}
	c.await(t)
}

// askRLS returns a caller of Envoy's service on a connection.
func askRLS(conn *grpc.ClientConn) func() error {
	client, request := rlsv3.NewRateLimitServiceClient(conn), rlsRequest()
	return func() error {
		r, err := client.ShouldRateLimit(context.Background(), request)
		if err != nil {
			return err
		}
		if r.GetOverallCode() != rlsv3.RateLimitResponse_OK || r.GetStatuses()[0].GetCurrentLimit() == nil {
			return errors.New("answer " + r.String())
		}
		return nil
	}
}

// await waits until the server answers.
func (c *rlsChild) await(t *testing.T) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := c.ask[0]()
		if err == nil {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("process %s: %v", strconv.Itoa(c.pid), err)
		}
	}
}

// cpu is what the child has used, in clock ticks of 10 ms.
func (c *rlsChild) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(c.pid) + "/stat")
	if err != nil {
		t.Skip(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// rlsFigures are of one server: calls a second, and the CPU of a call, of the server
// and of its Redis.
type rlsFigures struct{ rate, cpuUS, redisUS float64 }

// run calls for a while.
func (c *rlsChild) run(t *testing.T, span time.Duration) rlsFigures {
	t.Helper()
	var redisCPU float64
	var runs int64
	if c.redis != nil {
		redisCPU, runs = mainThreadCPU(t, c.redis), c.redis.ScriptRuns(t)
	}
	cpu, start := c.cpu(t), time.Now()
	calls := c.callFor(t, span)
	took := time.Since(start)
	f := rlsFigures{rate: float64(calls) / took.Seconds(), cpuUS: float64((c.cpu(t) - cpu).Microseconds()) / float64(calls)}
	if c.redis != nil {
		f.redisUS = (mainThreadCPU(t, c.redis) - redisCPU) / float64(calls) * 1e6
		if runs = c.redis.ScriptRuns(t) - runs; c.scripts && runs < int64(calls) {
			t.Errorf("%d calls asked Redis only %d times", calls, runs)
		}
	}
	return f
}

// callFor has all callers call for a while, at least once, and returns how often they
// did.
func (c *rlsChild) callFor(t *testing.T, span time.Duration) (calls int) {
	t.Helper()
	var wg sync.WaitGroup
	var done [rlsCallers]int
	start := time.Now()
	for i := range rlsCallers {
		wg.Go(func() {
			ask := c.ask[i%rlsConns]
			for again := true; again; again = time.Since(start) < span {
				if err := ask(); err != nil {
					t.Error(err)
					return
				}
				done[i]++
			}
		})
	}
	wg.Wait()
	for _, n := range done {
		calls += n
	}
	if calls == 0 {
		t.FailNow() // each has said why
	}
	return calls
}

// inTurn has servers called one after the other, in rounds, and returns the medians
// of each.
func inTurn(t *testing.T, servers ...*rlsChild) []rlsFigures {
	t.Helper()
	length := span()
	if *figures {
		length = 2 * time.Second
	}
	all := make([]struct{ rates, cpus, redis []float64 }, len(servers))
	for round := range rounds() + 1 {
		for i, c := range servers {
			f := c.run(t, length)
			if round > 0 { // the first is to get warm
				all[i].rates, all[i].cpus, all[i].redis = append(all[i].rates, f.rate), append(all[i].cpus, f.cpuUS), append(all[i].redis, f.redisUS)
			}
		}
	}
	list := make([]rlsFigures, len(servers))
	for i, a := range all {
		m := medians([][]float64{a.rates, a.cpus, a.redis})
		list[i] = rlsFigures{rate: m[0], cpuUS: m[1], redisUS: m[2]}
	}
	return list
}

// testRLS measures Envoy's call where the pod answers from leases.
func testRLS(t *testing.T) {
	got := inTurn(t, startRLS(t, rlsEchoes, nil), startRLS(t, rlsFromLease, nil))
	yard, ours := got[0], got[1]
	row(t, "Envoy RLS call from leases / grpc-go echo", ours.rate, yard.rate, "calls/s", atLeast(0.85), ours.rate >= 0.85*yard.rate)
	row(t, "Envoy RLS call from leases, server CPU / echo", ours.cpuUS, yard.cpuUS, "us", atMost(1.3), ours.cpuUS <= 1.3*yard.cpuUS)
}

// testRLSExact measures Envoy's call where the store answers each, all of one bucket.
func testRLSExact(t *testing.T) {
	redis := redistest.Standalone(t)
	got := inTurn(t, startRLS(t, rlsEvalshas, redis), startRLS(t, rlsExact, redis))
	yard, ours := got[0], got[1]
	row(t, "Envoy RLS call, exact / grpc-go with an EVALSHA", ours.rate, yard.rate, "calls/s", atLeast(0.9), ours.rate >= 0.9*yard.rate)
	row(t, "Envoy RLS call, exact, server CPU / with EVALSHA", ours.cpuUS, yard.cpuUS, "us", atMost(1.36), ours.cpuUS <= 1.36*yard.cpuUS)
	row(t, "Envoy RLS call, exact, Redis CPU / with EVALSHA", ours.redisUS, yard.redisUS, "us", "-", true)
}
