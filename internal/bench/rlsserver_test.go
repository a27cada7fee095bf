package bench_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
)

// What a child process is told by its environment: the server to be, and the address
// of its Redis.
const (
	rlsServer = "TALLYGATE_BENCH_RLS"
	rlsRedis  = "TALLYGATE_BENCH_REDIS"
)

// The servers a child process can be: two yardsticks and ours.
const (
	rlsEchoes    = "echo"
	rlsEvalshas  = "evalsha"
	rlsFromLease = "leases"
	rlsExact     = "exact"
)

//go:embed bucket.lua
var oneBucket string

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
	switch which {
	case rlsEchoes:
		serveBare(t, l, rlsEcho{})
	case rlsEvalshas:
		serveBare(t, l, newRLSEvalsha(t, os.Getenv(rlsRedis)))
	case rlsFromLease:
		serveRLS(t, l, lending(t))
	case rlsExact:
		serveRLS(t, l, asking(t, os.Getenv(rlsRedis)))
	default:
		t.Fatalf("there is no server %q", which)
	}
	_, _ = fmt.Fprintf(os.Stdout, "listening %s\n", l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serveBare serves a yardstick on l until the test ends.
func serveBare(t *testing.T, l net.Listener, service rlsv3.RateLimitServiceServer) {
	t.Helper()
	s := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(s, service)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// serveRLS serves ours on l until the test ends.
func serveRLS(t *testing.T, l net.Listener, limiter rls.Decider) {
	t.Helper()
	s, err := rls.New(rls.Config{Limiter: limiter})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(context.Background(), l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// rlsEcho is the yardstick of what a pod answers by itself: a bare grpc-go service
// that says OK, in as many bytes.
type rlsEcho struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (rlsEcho) ShouldRateLimit(_ context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	response := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}
	for range r.GetDescriptors() {
		response.Statuses = append(response.Statuses, rlsStatus(rlsv3.RateLimitResponse_OK, plenty-1))
	}
	return response, nil
}

// rlsStatus is the status of a descriptor as yardsticks write it.
func rlsStatus(code rlsv3.RateLimitResponse_Code, remaining uint32) *rlsv3.RateLimitResponse_DescriptorStatus {
	return &rlsv3.RateLimitResponse_DescriptorStatus{
		Code:           code,
		CurrentLimit:   &rlsv3.RateLimitResponse_RateLimit{Name: "growth-global", RequestsPerUnit: plenty, Unit: rlsv3.RateLimitResponse_RateLimit_SECOND},
		LimitRemaining: remaining, DurationUntilReset: &durationpb.Duration{Seconds: 1},
	}
}

// rlsEvalsha is the yardstick of what the store answers: the same, of one call of a
// small script a request. It knows no rules, and what to count by from where it
// stands in the request.
type rlsEvalsha struct {
	rlsv3.UnimplementedRateLimitServiceServer

	client rueidis.Client
	sha    string
	args   []string
}

func newRLSEvalsha(t *testing.T, addr string) *rlsEvalsha {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true, PipelineMultiplex: 1, ClientSetInfo: rueidis.DisableClientSetInfo})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	sha, err := client.Do(context.Background(), client.B().ScriptLoad().Script(oneBucket).Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	most := strconv.Itoa(plenty)
	return &rlsEvalsha{client: client, sha: sha, args: []string{most, most, "1"}}
}

func (s *rlsEvalsha) ShouldRateLimit(ctx context.Context, r *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	entries := r.GetDescriptors()[0].GetEntries()
	key := r.GetDomain() + ":" + entries[len(entries)-1].GetValue()
	answer, err := s.client.Do(ctx, s.client.B().Evalsha().Sha1(s.sha).Numkeys(1).Key(key).Arg(s.args...).Build()).AsIntSlice()
	if err != nil {
		return nil, err
	}
	if len(answer) != 2 {
		return nil, errors.New("the script's answer is no pair")
	}
	code := rlsv3.RateLimitResponse_OK
	if answer[0] == 0 {
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return &rlsv3.RateLimitResponse{OverallCode: code, Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{rlsStatus(code, uint32(answer[1]))}}, nil
}

// asking is a limiter that asks Redis on every check.
func asking(t *testing.T, addr string) *tallygate.Limiter {
	t.Helper()
	// Patient, so that no busy moment of the machine is answered without the store.
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: "redis://" + addr, Tags: identity.NewHasher(nil), Deadline: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	set := growth()
	for i := range set.Rules {
		set.Rules[i].Counting = rules.CountingExact
	}
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Deadline: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
