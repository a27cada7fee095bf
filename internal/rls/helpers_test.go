package rls_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// clock is a clock that stands until it is moved; it starts with a minute, an hour
// and a day.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ms.Store(1_790_035_200_000)
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

const domain = "public-api"

// window is a rule of n requests a minute for each api_key of a plan.
func window(id, plan string, n int64) rules.Rule {
	return rules.Rule{
		ID: id, Domain: domain, Match: map[string]string{"plan": plan}, Identity: []string{"api_key"},
		Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: n, WindowS: 60},
	}
}

// with changes a rule.
func with(r rules.Rule, change func(*rules.Rule)) rules.Rule {
	change(&r)
	return r
}

func testRules() []rules.Rule {
	return []rules.Rule{
		window("ten", "ten", 10),
		window("two", "two", 2),
		with(window("shadow", "shadow", 1), func(r *rules.Rule) { r.Mode = rules.ModeShadow }),
		with(window("report", "report", 1), func(r *rules.Rule) { r.Counting = rules.CountingReport }),
		with(window("closed", "closed", 10), func(r *rules.Rule) { r.FailMode = rules.FailClosed }),
		with(window("costly", "costly", 10), func(r *rules.Rule) { r.MaxCost = 2 }),
		{
			ID: "bucket", Domain: domain, Match: map[string]string{"plan": "bucket"}, Identity: []string{"api_key"},
			Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 3},
		},
		{ID: "blocked", Domain: domain, Match: map[string]string{"country": "xx"}, Action: rules.ActionDeny},
		{ID: "vip", Domain: domain, Match: map[string]string{"plan": "vip"}, Action: rules.ActionAllow},
		{
			ID: "second-key", Domain: domain, Match: map[string]string{"generic_key": "a", "generic_key#2": "b"},
			Identity: []string{"api_key"}, Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: 1, WindowS: 60},
		},
		{
			ID: "large", Domain: domain, Match: map[string]string{"plan": "large"}, Identity: []string{"api_key"},
			Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: 1_000_000_000_000, WindowS: 60},
		},
	}
}

// limiterOf returns a limiter with the test rules.
func limiterOf(t testing.TB, c *clock, s store.Store, rs ...rules.Rule) *tallygate.Limiter {
	t.Helper()
	if s == nil {
		s = store.NewMemoryStore(store.MemoryConfig{Now: c.now})
	}
	if len(rs) == 0 {
		rs = testRules()
	}
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: rs}, 1, c.now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Now: c.now, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// service starts a server on loopback, and a client of it.
func service(t testing.TB, config rls.Config) (*rls.Server, *grpc.ClientConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, config, l)
	return s, dial(t, l.Addr().String(), nil)
}

// newServer returns a server that is closed at the end.
func newServer(t testing.TB, config rls.Config) *rls.Server {
	t.Helper()
	s, err := rls.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serve(t testing.TB, config rls.Config, l net.Listener) *rls.Server {
	t.Helper()
	s := newServer(t, config)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		_ = s.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func dial(t testing.TB, target string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// descriptor makes one of "key=value" entries.
func descriptor(entries ...string) *commonv3.RateLimitDescriptor {
	d := new(commonv3.RateLimitDescriptor)
	for _, e := range entries {
		k, v, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: k, Value: v})
	}
	return d
}

// of is a descriptor of a plan's key.
func of(plan, key string) *commonv3.RateLimitDescriptor {
	return descriptor("plan="+plan, "api_key="+key)
}

func hits(d *commonv3.RateLimitDescriptor, n uint64) *commonv3.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func back(d *commonv3.RateLimitDescriptor, n uint64) *commonv3.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(d, n)
}

func limited(d *commonv3.RateLimitDescriptor, n uint32, unit typev3.RateLimitUnit, times uint32) *commonv3.RateLimitDescriptor {
	d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	if times > 0 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(times)
	}
	return d
}

func request(descriptors ...*commonv3.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

// ask sends a request that must be answered.
func ask(t testing.TB, conn *grpc.ClientConn, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	t.Helper()
	response, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), r)
	if err != nil {
		t.Fatalf("ShouldRateLimit: %v", err)
	}
	return response
}

// told is a response in one line: the overall code, then code, remaining, limit and
// reset of each status.
func told(r *rlsv3.RateLimitResponse) string {
	parts := []string{r.GetOverallCode().String()}
	for _, s := range r.GetStatuses() {
		text := s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %d of %d/%s", s.GetLimitRemaining(), l.GetRequestsPerUnit(), l.GetUnit())
			if n := l.GetUnitMultiplier(); n != nil {
				text += fmt.Sprintf("*%d", n.GetValue())
			}
			text += " " + l.GetName()
		} else if n := s.GetLimitRemaining(); n > 0 {
			text += fmt.Sprintf(" %d", n)
		}
		if d := s.GetDurationUntilReset(); d != nil {
			text += fmt.Sprintf(" in %v", d.AsDuration())
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// failing is a store that is away.
type failing struct{ kind store.ErrorKind }

func (f failing) Take(context.Context, []store.Op) ([]store.Grant, error) {
	return nil, &store.StoreError{Kind: f.kind, Err: errors.New("no route to redis.internal")}
}

// walk sends the requests of steps in turn.
func walk(t *testing.T, conn *grpc.ClientConn, steps []step) {
	t.Helper()
	for i, s := range steps {
		if got := told(ask(t, conn, s.request)); got != s.want {
			t.Errorf("request %d:\ngot  %s\nwant %s", i, got, s.want)
		}
	}
}
