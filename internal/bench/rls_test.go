package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tallygate/tallygate/internal/rls"
)

// rlsServer names the server that a child process is to be.
const rlsServer = "TALLYGATE_BENCH_RLS"

// rlsCallers is how many calls are under way at a time, over rlsConns connections.
const (
	rlsCallers = 64
	rlsConns   = 4
)

// rlsEcho is the yardstick: a bare grpc-go service that says OK, in as many bytes.
type rlsEcho struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (rlsEcho) ShouldRateLimit(_ context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
	for range r.GetDescriptors() {
		response.Statuses = append(response.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{
			Code:         rlsv3.RateLimitResponse_OK,
			CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{Name: "growth-global", RequestsPerUnit: 1_000_000_000, Unit: rlsv3.RateLimitResponse_RateLimit_SECOND}, LimitRemaining: 999_999_999,
			DurationUntilReset: &durationpb.Duration{Seconds: 1},
		})
	}
	return response, nil
}

// rlsRequest is what is asked: a plan's key, as Envoy would send it.
func rlsRequest() *rlsv3.RateLimitRequest {
	entry := func(k, v string) *commonv3.RateLimitDescriptor_Entry {
		return &commonv3.RateLimitDescriptor_Entry{Key: k, Value: v}
	}
	return &rlsv3.RateLimitRequest{Domain: "public-api", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{entry("plan", "growth"), entry("api_key", "acct_7Q2")}},
	}}
}

// TestRLSServer is the child process: a server, until its input ends.
func TestRLSServer(t *testing.T) {
	which := os.Getenv(rlsServer)
	if which == "" {
		t.Skip("only in a child process of TestFigures")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(os.Stdout, "listening %s\n", l.Addr())
	if which == "echo" {
		s := grpc.NewServer()
		rlsv3.RegisterRateLimitServiceServer(s, rlsEcho{})
		go func() { _ = s.Serve(l) }()
		defer s.Stop()
	} else {
		s, err := rls.New(rls.Config{Limiter: lending(t)})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = s.Serve(context.Background(), l) }()
		defer func() { _ = s.Close() }()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// rlsChild is a server in a process of its own, and clients of it.
type rlsChild struct {
	pid     int
	clients []rlsv3.RateLimitServiceClient
}

func startRLS(t *testing.T, which string) *rlsChild {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestRLSServer$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), rlsServer+"="+which)
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
	c := &rlsChild{pid: cmd.Process.Pid}
	for range rlsConns {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c.clients = append(c.clients, rlsv3.NewRateLimitServiceClient(conn))
	}
	return c
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

// run calls for a while, and returns calls a second and the server's CPU in µs a call.
func (c *rlsChild) run(t *testing.T, span time.Duration) (rate, cpuUS float64) {
	t.Helper()
	var wg sync.WaitGroup
	var done [rlsCallers]int
	request := rlsRequest()
	before, start := c.cpu(t), time.Now()
	for i := range rlsCallers {
		wg.Go(func() {
			client := c.clients[i%rlsConns]
			for time.Since(start) < span {
				r, err := client.ShouldRateLimit(context.Background(), request)
				if err != nil || r.GetOverallCode() != rlsv3.RateLimitResponse_OK || r.GetStatuses()[0].GetCurrentLimit() == nil {
					t.Errorf("%v: %v", r, err)
					return
				}
				done[i]++
			}
		})
	}
	wg.Wait()
	took, cpu := time.Since(start), c.cpu(t)-before
	calls := 0
	for _, n := range done {
		calls += n
	}
	return float64(calls) / took.Seconds(), float64(cpu.Microseconds()) / float64(calls)
}

// testRLS measures Envoy's call where the pod answers from leases.
func testRLS(t *testing.T) {
	echo, ours := startRLS(t, "echo"), startRLS(t, "ours")
	length := span()
	if *figures {
		length = 2 * time.Second
	}
	var rates, cpus [2][]float64
	for round := range rounds() + 1 {
		for i, c := range []*rlsChild{echo, ours} {
			rate, cpu := c.run(t, length)
			if round > 0 { // the first is to get warm
				rates[i], cpus[i] = append(rates[i], rate), append(cpus[i], cpu)
			}
		}
	}
	median := func(list []float64) float64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	r, c := [2]float64{median(rates[0]), median(rates[1])}, [2]float64{median(cpus[0]), median(cpus[1])}
	row(t, "Envoy RLS call from leases / grpc-go echo", r[1], r[0], "calls/s", atLeast(0.85), r[1] >= 0.85*r[0])
	row(t, "Envoy RLS call from leases, server CPU / echo", c[1], c[0], "us", atMost(1.3), c[1] <= 1.3*c[0])
}
