package rls_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/store"
)

func many[T any](n int, item T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = item
	}
	return list
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
	entry := &commonv3.RateLimitDescriptor_Entry{Key: "plan", Value: "ten"}
	var plans []*commonv3.RateLimitDescriptor
	for i := range 33 {
		plans = append(plans, of("ten", fmt.Sprint("k", i)))
	}
	for _, test := range []struct {
		name    string
		request *rlsv3.RateLimitRequest
		code    codes.Code
		says    string
	}{
		{"nothing", &rlsv3.RateLimitRequest{}, codes.InvalidArgument, "domain: is empty"},
		{"no domain", in("", request(of("ten", "k"))), codes.InvalidArgument, "domain: is empty"},
		{"a long domain", in(strings.Repeat("d", 129), request(of("ten", "k"))), codes.InvalidArgument, "has 129 bytes, at most 128"},
		{"no descriptors", request(), codes.InvalidArgument, "descriptors: is empty"},
		{"100,000 descriptors", request(many(100_000, descriptor())...), codes.InvalidArgument, "has 100000 items, at most 128"},
		{"100,000 entries", request(&commonv3.RateLimitDescriptor{Entries: many(100_000, entry)}), codes.InvalidArgument, "descriptors/0/entries: has 100000 items, at most 64"},
		{"an entry without key", request(of("ten", "k"), descriptor("=x")), codes.InvalidArgument, "descriptors/1/entries/0/key: is empty"},
		{"33 buckets", request(plans...), codes.InvalidArgument, "bad_request at descriptors: 33 rules match, more than 32"},
		{"no identity", request(descriptor("plan=ten")), codes.InvalidArgument, "api_key: is missing"},
		{"KEY-04 a key of 1 MiB", request(of("ten", strings.Repeat("k", 1<<20))), codes.InvalidArgument, "1048576 bytes are above 4096"},
		{"KEY-04 an override's key of 1 MiB", request(limited(of("ten", strings.Repeat("k", 1<<20)), 1, typev3.RateLimitUnit_DAY, 0)), codes.InvalidArgument, "bytes is above 4096"},
		{"an override of no unit", request(limited(of("ten", "k"), 1, typev3.RateLimitUnit_UNKNOWN, 0)), codes.InvalidArgument, "descriptors/0/limit/unit: UNKNOWN"},
		{"an override of a unit to come", request(limited(of("ten", "k"), 1, 99, 0)), codes.InvalidArgument, "descriptors/0/limit/unit: 99"},
		{"an override in a domain that is no name", in("no name", request(limited(of("ten", "k"), 1, typev3.RateLimitUnit_DAY, 0))), codes.InvalidArgument, "domain"},
		{"a message of 5 MiB", request(descriptor("a=" + strings.Repeat("v", 5<<20))), codes.ResourceExhausted, "larger than max"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), test.request)
			if got := status.Convert(err); got.Code() != test.code || !strings.Contains(got.Message(), test.says) {
				t.Errorf("got %v: %.200s, want %v that says %q", got.Code(), got.Message(), test.code, test.says)
			}
		})
	}
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil } //nolint:forcetypeassert // a test's own
func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...) //nolint:forcetypeassert // a test's own
	return nil
}
func (raw) Name() string { return "proto" }

func TestRefusesWhatIsNoText(t *testing.T) {
	t.Parallel()
	_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
	var answer []byte
	for name, bytes := range map[string][]byte{
		"a domain that is no UTF-8": {0x0a, 2, 0xff, 0xfe},
		"an entry that is no UTF-8": {0x0a, 1, 'd', 0x12, 8, 0x0a, 6, 0x0a, 1, 'k', 0x12, 1, 0xff},
		"no message":                {0xff, 0xff, 0xff},
	} {
		err := conn.Invoke(context.Background(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, &bytes, &answer, forceCodec())
		if err == nil || status.Code(err) == codes.OK || status.Code(err) == codes.Unknown {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The place is the descriptor's in the request, also where each is decided by itself.
func TestRefusalNamesTheDescriptor(t *testing.T) {
	t.Parallel()
	for _, each := range []bool{false, true} {
		_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil), PerDescriptor: each})
		_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), request(of("ten", "k"), descriptor("plan=ten")))
		if !strings.Contains(status.Convert(err).Message(), "missing_identity at descriptors/1: ") {
			t.Errorf("per descriptor %v: %v", each, err)
		}
	}
}

// A request that is refused charges nothing, also where each descriptor is charged by
// itself and those before the faulty one would pass.
func TestRefusalChargesNothing(t *testing.T) {
	t.Parallel()
	for _, config := range []rls.Config{{}, {PerDescriptor: true}, {CountDenied: true}, {PerDescriptor: true, CountDenied: true}} {
		config.Limiter = limiterOf(t, newClock(), nil)
		_, conn := service(t, config)
		for name, faulty := range map[string]*commonv3.RateLimitDescriptor{
			"no identity": descriptor("plan=ten"),
			"a long key":  of("ten", strings.Repeat("k", 4097)),
			"no unit":     limited(of("ten", "k"), 1, typev3.RateLimitUnit_UNKNOWN, 0),
			"no name":     descriptor("=x"),
		} {
			r := request(of("ten", "k"), back(of("two", "k"), 1), faulty)
			if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "descriptors/2") {
				t.Errorf("%s: %v", name, err)
			}
			if got := told(ask(t, conn, request(hits(of("ten", "k"), 0)))); got != "OK; OK 10 of 10/MINUTE ten in 1m0s" {
				t.Errorf("%s, per descriptor %v, every hit %v: %s", name, config.PerDescriptor, config.CountDenied, got)
			}
		}
	}
}

func TestErrorOnFailure(t *testing.T) {
	t.Parallel()
	for _, config := range []rls.Config{{}, {PerDescriptor: true}, {CountDenied: true}, {PerDescriptor: true, CountDenied: true}} {
		config.Limiter, config.ErrorOnFailure = limiterOf(t, newClock(), failing{store.Unavailable}), true
		_, conn := service(t, config)
		_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), request(of("ten", "k"), of("closed", "k")))
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "redis.internal") {
			t.Errorf("per descriptor %v, every hit %v: got %v, want UNAVAILABLE that names no host", config.PerDescriptor, config.CountDenied, err)
		}
		if got := told(ask(t, conn, request(of("ten", "another")))); got != "OK; OK" {
			t.Errorf("per descriptor %v, every hit %v: open: %s", config.PerDescriptor, config.CountDenied, got)
		}
	}
}

// decide is a Decider of one function.
type decide func(ctx context.Context, c tallygate.Check, v *tallygate.Verdict) error

func (d decide) Decide(ctx context.Context, c tallygate.Check, v *tallygate.Verdict) error {
	return d(ctx, c, v)
}

func (decide) Valid(tallygate.Check) error { return nil }

func TestPanicIsInternal(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	l := limiterOf(t, newClock(), nil)
	s, conn := service(t, rls.Config{Limiter: decide(func(ctx context.Context, c tallygate.Check, v *tallygate.Verdict) error {
		if calls.Add(1) == 1 {
			panic("boo")
		}
		return l.Decide(ctx, c, v)
	})})
	_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), request(of("ten", "k")))
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "boo") || s.Stats().Panics != 1 {
		t.Errorf("got %v, %+v", err, s.Stats())
	}
	if got := told(ask(t, conn, request(of("ten", "k")))); !strings.HasPrefix(got, "OK; OK 9") {
		t.Errorf("after the panic: %s", got)
	}
}

func TestShedsWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	enter, leave := make(chan struct{}), make(chan struct{})
	s, conn := service(t, rls.Config{MaxInflight: 1, Limiter: decide(func(context.Context, tallygate.Check, *tallygate.Verdict) error {
		close(enter)
		<-leave
		return nil
	})})
	client := rlsv3.NewRateLimitServiceClient(conn)
	first := make(chan error, 1)
	go func() {
		_, err := client.ShouldRateLimit(context.Background(), request(of("ten", "k")))
		first <- err
	}()
	<-enter
	_, err := client.ShouldRateLimit(context.Background(), request(of("ten", "k")))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "more than 1 ") || s.Stats().Shed != 1 {
		t.Errorf("got %v, %+v", err, s.Stats())
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestDeadlineAndEnd(t *testing.T) {
	t.Parallel()
	l := limiterOf(t, newClock(), nil)
	_, conn := service(t, rls.Config{Limiter: l})
	ctx, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request(of("ten", "k"))); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("late: %v", err)
	}
	_ = l.Close()
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), request(of("ten", "k"))); status.Code(err) != codes.Unavailable {
		t.Errorf("closed: %v", err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil), Authorize: func(token string) bool { return token == "tg_1" }})
	client := rlsv3.NewRateLimitServiceClient(conn)
	twice := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer tg_1", "authorization", "Bearer tg_1")
	if _, err := client.ShouldRateLimit(twice, request(of("ten", "k"))); status.Code(err) != codes.Unauthenticated {
		t.Errorf("two tokens: %v", err)
	}
	for header, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "Bearer tg_2": codes.Unauthenticated, "tg_1": codes.Unauthenticated,
		"Bearer tg_1": codes.OK, "bearer  tg_1": codes.OK,
	} {
		ctx := context.Background()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		if _, err := client.ShouldRateLimit(ctx, request(of("ten", "k"))); status.Code(err) != want {
			t.Errorf("%q: %v, want %v", header, err, want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	l := limiterOf(t, newClock(), nil)
	for name, config := range map[string]rls.Config{
		"Limiter":     {},
		"MaxInflight": {Limiter: l, MaxInflight: -1},
		"MaxStreams":  {Limiter: l, MaxStreams: -1},
		"Finish":      {Limiter: l, Finish: -1},
	} {
		if _, err := rls.New(config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
