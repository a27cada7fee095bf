package rls_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// plans are limits by name; a shadow's denies nobody.
func plans() map[string]int64 { return map[string]int64{"shadow-3": 3, "five": 5, "nine": 9} }

// yearly are the rules of these plans, with windows that do not end during a test.
func yearly(counting rules.Counting) []rules.Rule {
	var list []rules.Rule
	for plan, n := range plans() {
		r := window(plan, plan, n)
		r.WindowS, r.Counting = 365*24*3600, counting
		if strings.HasPrefix(plan, "shadow") {
			r.Mode = rules.ModeShadow
		}
		list = append(list, r)
	}
	return list
}

// theirs counts as envoyproxy/ratelimit does: each hit is added to its counter, and who
// then finds it above the limit is over.
type theirs map[string]int64

// ask returns what they would tell of one descriptor.
func (counts theirs) ask(plan, key string, n int64, negative bool) string {
	c, most := counts[plan+"/"+key]+n, plans()[plan]
	if negative {
		c = max(0, c-2*n)
	}
	counts[plan+"/"+key] = c
	if c > most && !negative && plan != "shadow-3" {
		return "OVER_LIMIT 0"
	}
	return fmt.Sprint("OK ", max(0, most-c))
}

// redisOf is a store on the tests' Redis.
func redisOf(t testing.TB) store.Store {
	t.Helper()
	url := "redis://" + redistest.SharedStandalone(t).Addr
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: url, Tags: identity.NewHasher(nil), Deadline: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// With CountDenied a client sees the codes and counts of envoyproxy/ratelimit, whatever
// the rules' counting, on several pods of one store, in one call for all descriptors or
// one for each.
func TestCountDeniedIsTheirCount(t *testing.T) {
	t.Parallel()
	clock := newClock()
	memory := store.NewMemoryStore(store.MemoryConfig{Now: clock.now})
	first := time.Now().UnixNano() // Redis remembers the keys of another -count
	for _, test := range []struct {
		name     string
		counting rules.Counting
		store    func() store.Store
		pods     int
		each     bool
	}{
		{"memory", "", func() store.Store { return memory }, 2, false},
		{"memory, each by itself", "", func() store.Store { return memory }, 2, true},
		{"redis", rules.CountingLease, func() store.Store { return redisOf(t) }, 2, false},
		{"redis, each by itself", rules.CountingLease, func() store.Store { return redisOf(t) }, 2, true},
		{"redis, exact", rules.CountingExact, func() store.Store { return redisOf(t) }, 2, false},
		{"redis, async", rules.CountingAsync, func() store.Store { return redisOf(t) }, 2, false},
		{"redis, one pod alone", rules.CountingLocal, func() store.Store { return redisOf(t) }, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var pods []*rls.Server
			for range test.pods {
				l := limiterOf(t, clock, test.store(), yearly(test.counting)...)
				s := newServer(t, rls.Config{Limiter: l, CountDenied: true, PerDescriptor: test.each})
				pods = append(pods, s)
			}
			rng, counts, over := rand.New(rand.NewPCG(1, 2)), theirs{}, 0
			for i := range 400 {
				r, want := request(), []string{}
				for plan := range plans() { // each at most once: see docs/envoy.md
					if rng.IntN(3) == 0 {
						continue
					}
					key, n := fmt.Sprint(test.name, first, "-", i/20, "-", rng.IntN(2)), rng.IntN(4)
					d, negative := hits(of(plan, key), uint64(n)), n > 0 && rng.IntN(8) == 0
					d.IsNegativeHits = negative
					r.Descriptors = append(r.Descriptors, d)
					want = append(want, counts.ask(plan, key, int64(n), negative))
				}
				if len(want) == 0 {
					continue
				}
				response, err := pods[i%len(pods)].ShouldRateLimit(context.Background(), r)
				if err != nil {
					t.Fatal(err)
				}
				for j, s := range response.GetStatuses() {
					if got := fmt.Sprint(s.GetCode(), " ", s.GetLimitRemaining()); got != want[j] {
						t.Fatalf("request %d, descriptor %d: got %s, want %s: %v", i, j, got, want[j], r)
					}
				}
				if response.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
					over++
				}
			}
			if over < 20 {
				t.Errorf("only %d requests were over: this tests nothing", over)
			}
		})
	}
}

// What the random requests above have not.
func TestCountDenied(t *testing.T) {
	t.Parallel()
	const minute = typev3.RateLimitUnit_MINUTE
	for _, test := range []struct {
		name  string
		steps []step
	}{
		{"a limit in the request", []step{
			{addend(request(limited(of("x", "k"), 3, minute, 0)), 2), "OK; OK 1 of 3/MINUTE  in 1m0s"},
			{addend(request(limited(of("x", "k"), 3, minute, 0)), 2), "OVER_LIMIT; OVER_LIMIT 0 of 3/MINUTE  in 1m0s"},
			{request(limited(of("x", "k"), 3, minute, 0)), "OVER_LIMIT; OVER_LIMIT 0 of 3/MINUTE  in 1m0s"},
			{addend(request(back(limited(of("x", "k"), 3, minute, 0), 3)), 0), "OK; OK 1 of 3/MINUTE  in 1m0s"},
		}},
		{"what stands beside a rule that always denies", []step{
			{request(descriptor("country=xx"), of("ten", "k"), limited(of("x", "k"), 0, minute, 0)), "OVER_LIMIT; OVER_LIMIT; OK 9 of 10/MINUTE ten in 1m0s; OVER_LIMIT 0 of 0/MINUTE "},
			{request(descriptor("country=xx"), of("ten", "k")), "OVER_LIMIT; OVER_LIMIT; OK 8 of 10/MINUTE ten in 1m0s"},
		}},
		{"more hits than an op can have count as many as it can", []step{
			{addend(request(of("large", "k")), math.MaxUint32), "OVER_LIMIT; OVER_LIMIT"},
			{request(hits(of("large", "k"), math.MaxUint64)), "OVER_LIMIT; OVER_LIMIT"},
			{addend(request(of("large", "k")), 1_000_000_000), "OK; OK 4294967295 of 4294967295/MINUTE large in 1m0s"},
			{request(hits(of("ten", "k"), math.MaxUint64), of("two", "k")), "OVER_LIMIT; OVER_LIMIT; OK 1 of 2/MINUTE two in 1m0s"},
			{request(of("ten", "k")), "OVER_LIMIT; OVER_LIMIT 0 of 10/MINUTE ten in 1m0s"},
			{request(hits(of("ten", "k"), 0)), "OVER_LIMIT; OVER_LIMIT 0 of 10/MINUTE ten in 1m0s"},
		}},
		{"one bucket twice, beyond what an op can have", []step{
			{request(hits(of("ten", "k"), math.MaxUint64), of("ten", "k"), hits(of("ten", "k"), math.MaxUint64)), "OVER_LIMIT; OVER_LIMIT; OVER_LIMIT; OVER_LIMIT"},
			{request(of("ten", "k")), "OVER_LIMIT; OVER_LIMIT 0 of 10/MINUTE ten in 1m0s"},
		}},
		{"a token bucket denies as ever, and what it tells is true", []step{
			{addend(request(of("bucket", "k")), 2), "OK; OK 1 of 3/SECOND*3 bucket in 2s"},
			{addend(request(of("bucket", "k"), of("ten", "k")), 2), "OVER_LIMIT; OVER_LIMIT 0 of 3/SECOND*3 bucket in 1s; OK 8 of 10/MINUTE ten in 1m0s"},
			{request(of("bucket", "k")), "OK; OK 0 of 3/SECOND*3 bucket in 3s"},
		}},
		{"a report counts once", []step{
			{addend(request(of("report", "k"), of("two", "k")), 3), "OVER_LIMIT; OK 0 of 1/MINUTE report in 1m0s; OVER_LIMIT 0 of 2/MINUTE two"},
			{request(back(of("report", "k"), 3)), "OK; OK 1 of 1/MINUTE report in 1m0s"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, conn := service(t, rls.Config{CountDenied: true, Limiter: limiterOf(t, newClock(), nil)})
			walk(t, conn, test.steps)
		})
	}
}

// A window's denied hits end with it.
func TestCountDeniedEndsWithTheWindow(t *testing.T) {
	t.Parallel()
	c := newClock()
	_, conn := service(t, rls.Config{CountDenied: true, Limiter: limiterOf(t, c, nil)})
	for range 5 {
		ask(t, conn, request(of("two", "k")))
	}
	c.advance(time.Minute)
	if got, want := told(ask(t, conn, request(of("two", "k")))), "OK; OK 1 of 2/MINUTE two in 1m0s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// calls counts how often a store is asked, and is away from the nth time on.
type calls struct {
	store.Store
	n, away atomic.Int64
}

func (c *calls) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if n, away := c.n.Add(1), c.away.Load(); away > 0 && n >= away {
		return nil, &store.StoreError{Kind: store.Unavailable}
	}
	return c.Store.Take(ctx, ops)
}

// It costs one more call, on a denial by a fixed window only. Without it a pod would
// answer most of these by itself.
func TestCountDeniedCalls(t *testing.T) {
	t.Parallel()
	clock := newClock()
	c := &calls{Store: store.NewMemoryStore(store.MemoryConfig{Now: clock.now})}
	s := newServer(t, rls.Config{CountDenied: true, Limiter: limiterOf(t, clock, c)})
	for i, test := range []struct {
		request *rlsv3.RateLimitRequest
		calls   int64
	}{
		{request(of("ten", "k"), of("two", "k")), 1},
		{request(of("ten", "k"), of("two", "k")), 1},
		{request(of("ten", "k"), of("two", "k")), 2},
		{request(of("ten", "k"), of("two", "k")), 2},
		{request(hits(of("two", "k"), 0)), 1},
		{addend(request(of("bucket", "k")), 4), 1},
		{request(descriptor("country=xx")), 0},
		{request(descriptor("country=xx"), of("ten", "k")), 1},
	} {
		before := c.n.Load()
		if _, err := s.ShouldRateLimit(context.Background(), test.request); err != nil {
			t.Fatal(err)
		}
		if got := c.n.Load() - before; got != test.calls {
			t.Errorf("request %d: %d calls, want %d", i, got, test.calls)
		}
	}
}

// A store that goes away between the two calls changes nothing of the answer; one that
// is away for both has the rules' fail modes as ever, and a deny rule denies.
func TestCountDeniedWithoutTheStore(t *testing.T) {
	t.Parallel()
	clock := newClock()
	c := &calls{Store: store.NewMemoryStore(store.MemoryConfig{Now: clock.now})}
	_, conn := service(t, rls.Config{CountDenied: true, Limiter: limiterOf(t, clock, c)})
	ask(t, conn, addend(request(of("two", "k")), 2))
	c.away.Store(c.n.Load() + 2)
	if got, want := told(ask(t, conn, request(of("two", "k")))), "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE two in 1m0s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, test := range []step{
		{request(of("closed", "k")), "OVER_LIMIT; OVER_LIMIT in 1s"},
		{request(of("ten", "k"), of("shadow", "k")), "OK; OK; OK"},
		{request(descriptor("country=xx"), of("closed", "k")), "OVER_LIMIT; OVER_LIMIT; OK"},
	} {
		if got := told(ask(t, conn, test.request)); got != test.want {
			t.Errorf("%v:\ngot  %s\nwant %s", test.request, got, test.want)
		}
	}
}

// The rules that count denied hits have a fixed window: of others nobody would be let
// in who keeps asking.
func TestCountDeniedOfOtherAlgorithms(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []limit.Algorithm{limit.SlidingWindow, limit.SlidingLog} {
		c := newClock()
		r := window("w", "w", 2)
		r.Algorithm = algorithm
		_, conn := service(t, rls.Config{CountDenied: true, Limiter: limiterOf(t, c, nil, r)})
		ask(t, conn, addend(request(of("w", "k")), 2))
		for range 100 {
			denied := ask(t, conn, request(of("w", "k")))
			wait := denied.GetStatuses()[0].GetDurationUntilReset().AsDuration()
			if denied.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT || wait > 2*time.Minute {
				t.Fatalf("%s: %v", algorithm, denied)
			}
		}
		c.advance(ask(t, conn, request(of("w", "k"))).GetStatuses()[0].GetDurationUntilReset().AsDuration())
		if got := ask(t, conn, request(of("w", "k"))).GetOverallCode(); got != rlsv3.RateLimitResponse_OK {
			t.Errorf("%s: after the wait that was told: %v", algorithm, got)
		}
	}
}
