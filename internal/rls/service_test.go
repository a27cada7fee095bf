package rls_test

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/store"
)

// step is a request and what is told.
type step struct {
	request *rlsv3.RateLimitRequest
	want    string
}

func addend(r *rlsv3.RateLimitRequest, n uint32) *rlsv3.RateLimitRequest {
	r.HitsAddend = n
	return r
}

func in(name string, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitRequest {
	r.Domain = name
	return r
}

// times repeats a step.
func times(n int, s step) []step {
	var list []step
	for range n {
		list = append(list, s)
	}
	return list
}

func TestShouldRateLimit(t *testing.T) {
	t.Parallel()
	const minute, year = typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit_YEAR
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"no addend is one hit", []step{
			{request(of("ten", "k")), "OK; OK 9 of 10/MINUTE ten in 1m0s"},
			{addend(request(of("ten", "k")), 1), "OK; OK 8 of 10/MINUTE ten in 1m0s"},
		}},
		{"no hits at the exact limit", []step{
			{addend(request(of("ten", "k")), 10), "OK; OK 0 of 10/MINUTE ten in 1m0s"},
			{request(hits(of("ten", "k"), 0)), "OK; OK 0 of 10/MINUTE ten in 1m0s"},
			{request(of("ten", "k")), "OVER_LIMIT; OVER_LIMIT 0 of 10/MINUTE ten in 1m0s"},
		}},
		{"five hits cross the limit and are not counted", []step{
			{addend(request(of("ten", "k")), 7), "OK; OK 3 of 10/MINUTE ten in 1m0s"},
			{addend(request(of("ten", "k")), 5), "OVER_LIMIT; OVER_LIMIT 0 of 10/MINUTE ten in 1m0s"},
			{addend(request(of("ten", "k")), 3), "OK; OK 0 of 10/MINUTE ten in 1m0s"},
		}},
		{"a descriptor's hits win over the request's", []step{
			{addend(request(hits(of("ten", "k"), 2), of("two", "k")), 1), "OK; OK 8 of 10/MINUTE ten in 1m0s; OK 1 of 2/MINUTE two in 1m0s"},
			{addend(request(hits(of("ten", "k"), 0)), 9), "OK; OK 8 of 10/MINUTE ten in 1m0s"},
		}},
		{"hits above max_cost are decided, above the limit denied", []step{
			{addend(request(of("costly", "k")), 9), "OK; OK 1 of 10/MINUTE costly in 1m0s"},
			{addend(request(of("costly", "k")), 11), "OVER_LIMIT; OVER_LIMIT 0 of 10/MINUTE costly"},
			{addend(request(of("costly", "k")), math.MaxUint32), "OVER_LIMIT; OVER_LIMIT"},
			{request(hits(of("costly", "k"), math.MaxUint64)), "OVER_LIMIT; OVER_LIMIT"},
			{request(of("costly", "k")), "OK; OK 0 of 10/MINUTE costly in 1m0s"},
		}},
		{"hits of one bucket add up, and never wrap", []step{
			{request(of("ten", "k"), hits(of("ten", "k"), math.MaxUint64)), "OVER_LIMIT; OK; OVER_LIMIT"},
			{request(of("ten", "k"), hits(of("ten", "k"), math.MaxUint64), hits(of("ten", "k"), math.MaxUint64)), "OVER_LIMIT; OK; OVER_LIMIT; OVER_LIMIT"},
			{request(of("ten", "k")), "OK; OK 9 of 10/MINUTE ten in 1m0s"},
		}},
		{"negative hits end at full", []step{
			{addend(request(of("ten", "k")), 4), "OK; OK 6 of 10/MINUTE ten in 1m0s"},
			{request(back(of("ten", "k"), 3)), "OK; OK 9 of 10/MINUTE ten in 1m0s"},
			{request(back(of("ten", "k"), math.MaxUint64)), "OK; OK 10 of 10/MINUTE ten in 1m0s"},
			{addend(request(of("ten", "k")), 10), "OK; OK 0 of 10/MINUTE ten in 1m0s"},
		}},
		{"negative hits are given back whatever another descriptor says", []step{
			{addend(request(of("ten", "k"), of("two", "k")), 2), "OK; OK 8 of 10/MINUTE ten in 1m0s; OK 0 of 2/MINUTE two in 1m0s"},
			{request(back(of("ten", "k"), 1), of("two", "k")), "OVER_LIMIT; OK 9 of 10/MINUTE ten in 1m0s; OVER_LIMIT 0 of 2/MINUTE two in 1m0s"},
		}},
		{"back and forth on one bucket", []step{
			{addend(request(of("two", "k")), 2), "OK; OK 0 of 2/MINUTE two in 1m0s"},
			{request(of("two", "k"), back(of("two", "k"), 1)), "OK; OK 0 of 2/MINUTE two in 1m0s; OK 1 of 2/MINUTE two in 1m0s"},
		}},
		{"all or nothing", []step{
			{addend(request(of("two", "k")), 2), "OK; OK 0 of 2/MINUTE two in 1m0s"},
			{request(of("ten", "k"), of("two", "k")), "OVER_LIMIT; OK 10 of 10/MINUTE ten in 1m0s; OVER_LIMIT 0 of 2/MINUTE two in 1m0s"},
			{request(of("ten", "k")), "OK; OK 9 of 10/MINUTE ten in 1m0s"},
		}},
		{"one bucket twice is charged twice", []step{
			{request(of("two", "k"), of("two", "k")), "OK; OK 0 of 2/MINUTE two in 1m0s; OK 0 of 2/MINUTE two in 1m0s"},
		}},
		{"a shadow beside an enforced rule", append(
			times(1, step{request(of("shadow", "k"), of("two", "k")), "OK; OK 0 of 1/MINUTE shadow in 1m0s; OK 1 of 2/MINUTE two in 1m0s"}),
			step{request(of("shadow", "k"), of("two", "k")), "OK; OK 0 of 1/MINUTE shadow in 1m0s; OK 0 of 2/MINUTE two in 1m0s"},
			step{request(of("shadow", "k"), of("two", "k")), "OVER_LIMIT; OK 0 of 1/MINUTE shadow in 1m0s; OVER_LIMIT 0 of 2/MINUTE two in 1m0s"},
		)},
		{"a report counts beyond its limit and denies nothing", []step{
			{addend(request(of("report", "k")), 5), "OK; OK 0 of 1/MINUTE report in 1m0s"},
			{addend(request(of("report", "k")), math.MaxUint32), "OK; OK 0 of 1/MINUTE report in 1m0s"},
		}},
		{"no rule matches", []step{{request(descriptor("type=example")), "OK; OK"}}},
		{"KEY-01 a key and its value are not one name", []step{{request(descriptor("plan_ten=x", "api_key=k")), "OK; OK"}}},
		{"an allow rule has no end", []step{{request(descriptor("plan=vip")), "OK; OK 4294967295"}}},
		{"a deny rule", []step{{request(descriptor("country=xx"), of("ten", "k")), "OVER_LIMIT; OVER_LIMIT; OK"}}},
		{"unknown domain", []step{
			{in("other", request(of("ten", "k"), of("two", "k"))), "OK; OK; OK"},
			{in("other", request(limited(of("ten", "k"), 1, minute, 0))), "OK; OK"},
		}},
		{"an override stands instead of rules", []step{
			{request(limited(of("ten", "k"), 3, minute, 0)), "OK; OK 2 of 3/MINUTE  in 1m0s"},
			{addend(request(limited(of("ten", "k"), 3, minute, 0)), 3), "OVER_LIMIT; OVER_LIMIT 0 of 3/MINUTE  in 1m0s"},
			{request(limited(of("ten", "other"), 3, minute, 0)), "OK; OK 2 of 3/MINUTE  in 1m0s"},
			{request(limited(of("ten", "k"), 7, minute, 5)), "OK; OK 6 of 7/MINUTE*5  in 5m0s"},
			{request(of("ten", "k")), "OK; OK 9 of 10/MINUTE ten in 1m0s"},
		}},
		{"an override of nothing denies", []step{{request(limited(of("ten", "k"), 0, minute, 0)), "OVER_LIMIT; OVER_LIMIT 0 of 0/MINUTE "}}},
		{"negative hits are never denied", []step{
			{request(back(descriptor("country=xx"), 1), back(limited(of("ten", "k"), 0, minute, 0), 1)), "OK; OK 4294967295; OK 0 of 0/MINUTE "},
			{addend(request(limited(of("ten", "k"), 3, minute, 0)), 3), "OK; OK 0 of 3/MINUTE  in 1m0s"},
			{request(back(limited(of("ten", "k"), 3, minute, 0), 2)), "OK; OK 2 of 3/MINUTE  in 1m0s"},
		}},
		{"the largest override", []step{
			{addend(request(limited(of("ten", "k"), math.MaxUint32, year, math.MaxUint32)), 1_000_000_000), "OK; OK 3294967295 of 4294967295/YEAR  in 3456h0m0s"},
		}},
		{"counts are clamped", []step{{request(of("large", "k")), "OK; OK 4294967295 of 4294967295/MINUTE large in 1m0s"}}},
		{"a bucket's time to full, and to pass", []step{
			{addend(request(of("bucket", "k")), 2), "OK; OK 1 of 3/SECOND*3 bucket in 2s"},
			{addend(request(of("bucket", "k")), 2), "OVER_LIMIT; OVER_LIMIT 0 of 3/SECOND*3 bucket in 1s"},
		}},
		{"a key that comes twice", []step{
			{request(descriptor("generic_key=a", "generic_key=b", "api_key=k")), "OK; OK 0 of 1/MINUTE second-key in 1m0s"},
			{request(descriptor("generic_key=b", "generic_key=a", "api_key=k")), "OK; OK"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
			walk(t, conn, test.steps)
		})
	}
}

// What is told on a denial is rounded up, and true.
func TestToldRetryIsTrue(t *testing.T) {
	t.Parallel()
	c := newClock()
	_, conn := service(t, rls.Config{Limiter: limiterOf(t, c, nil)})
	ask(t, conn, addend(request(of("ten", "k")), 10))
	c.advance(57_001 * time.Millisecond)
	denied := ask(t, conn, request(of("ten", "k")))
	if got := denied.GetStatuses()[0].GetDurationUntilReset().AsDuration(); got != 3*time.Second {
		t.Errorf("told %v, want 3s: 2.999s rounded up", got)
	}
	c.advance(denied.GetStatuses()[0].GetDurationUntilReset().AsDuration())
	if got := ask(t, conn, request(of("ten", "k"))).GetOverallCode(); got != rlsv3.RateLimitResponse_OK {
		t.Errorf("after the wait: %v", got)
	}
}

func TestPerDescriptor(t *testing.T) {
	t.Parallel()
	_, conn := service(t, rls.Config{Limiter: limiterOf(t, newClock(), nil), PerDescriptor: true})
	ask(t, conn, addend(request(of("two", "k")), 2))
	for i, want := range []string{
		"OVER_LIMIT; OK 9 of 10/MINUTE ten in 1m0s; OVER_LIMIT 0 of 2/MINUTE two in 1m0s",
		"OVER_LIMIT; OK 8 of 10/MINUTE ten in 1m0s; OVER_LIMIT 0 of 2/MINUTE two in 1m0s",
	} {
		if got := told(ask(t, conn, request(of("ten", "k"), of("two", "k")))); got != want {
			t.Errorf("request %d: got %s, want %s", i, got, want)
		}
	}
}

func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		change  func(*rls.Config)
		request *rlsv3.RateLimitRequest
		want    string
	}{
		{"open passes", nil, request(of("ten", "k")), "OK; OK"},
		{"closed does not", nil, request(of("closed", "k")), "OVER_LIMIT; OVER_LIMIT in 1s"},
		{"closed wins", nil, request(of("ten", "k"), of("closed", "k")), "OVER_LIMIT; OVER_LIMIT in 1s; OVER_LIMIT in 1s"},
		{"each by itself", func(c *rls.Config) { c.PerDescriptor = true }, request(of("ten", "k"), of("closed", "k")), "OVER_LIMIT; OK; OVER_LIMIT in 1s"},
		{"a limit of the request's own", nil, request(limited(of("own", "k"), 5, typev3.RateLimitUnit_HOUR, 0)), "OK; OK"},
		{"giving back is never denied", nil, request(back(of("closed", "k"), 1)), "OK; OK"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config := rls.Config{Limiter: limiterOf(t, newClock(), failing{store.Unavailable})}
			if test.change != nil {
				test.change(&config)
			}
			_, conn := service(t, config)
			if got := told(ask(t, conn, test.request)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	log := new(logged)
	s, conn := service(t, rls.Config{
		Limiter: limiterOf(t, newClock(), failing{store.Timeout}), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	ask(t, conn, in("other", request(of("ten", "k"))))
	ask(t, conn, in("other", request(of("ten", "k"))))
	ask(t, conn, request(of("closed", "k")))
	if got, want := s.Stats(), (rls.Stats{UnknownDomain: 2, FailClosed: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := log.String(); strings.Count(got, "requests pass unlimited") != 1 || !strings.Contains(got, "domain=other") {
		t.Errorf("a domain without rules is logged as %q", got)
	}
}

var _ rls.Decider = (*tallygate.Limiter)(nil)

// Where each descriptor is decided by itself and none is answered, nothing is left
// over from the request before.
func TestPerDescriptorAfterADenial(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	l, none := limiterOf(t, newClock(), nil), limiterOf(t, newClock(), failing{store.Timeout})
	_, conn := service(t, rls.Config{PerDescriptor: true, Metadata: true, Limiter: decide(func(ctx context.Context, c tallygate.Check, v *tallygate.Verdict) error {
		if away.Load() {
			return none.Decide(ctx, c, v)
		}
		return l.Decide(ctx, c, v)
	})})
	for range 3 {
		ask(t, conn, request(of("two", "k")))
	}
	away.Store(true)
	response := ask(t, conn, request(of("closed", "k")))
	if m := response.GetDynamicMetadata().AsMap(); m["verdict"] != "deny" || m["denied_by"] != nil {
		t.Errorf("%v", m)
	}
}

// Beyond what protobuf needs, a call allocates its answer, in one piece.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("counts allocations")
	}
	s := newServer(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
	for name, test := range map[string]struct {
		request *rlsv3.RateLimitRequest
		most    float64
	}{
		"one descriptor":  {request(hits(of("ten", "k"), 0)), 1},
		"two descriptors": {request(of("large", "k"), hits(of("two", "k"), 0)), 1},
	} {
		var err error
		if n := testing.AllocsPerRun(1000, func() { _, err = s.ShouldRateLimit(context.Background(), test.request) }); n > test.most || err != nil {
			t.Errorf("%s: %v allocations, want %v: %v", name, n, test.most, err)
		}
	}
}
