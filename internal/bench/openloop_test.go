package bench_test

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/load"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// openRates are the paces at which latency is measured, in calls a second.
func openRates() []float64 { return []float64{1000, 5000} }

// pace runs do in an open loop, for long enough to have a p99.
func pace(t *testing.T, rate float64, workers int, do func(n int64) error) *load.Result {
	t.Helper()
	length := 10 * time.Millisecond
	if *figures {
		length = 2 * time.Second
	}
	r, err := load.Run(t.Context(), load.Plan{Rate: rate, Workers: workers, Duration: length}, func(_ context.Context, _ int, n int64) load.Outcome {
		if err := do(n); err != nil {
			t.Error(err)
			return load.Failed
		}
		return load.Allowed
	})
	if err != nil {
		t.Fatal(err)
	}
	if *figures && r.Unsent > 0 {
		t.Errorf("%d calls were not sent", r.Unsent)
	}
	return r
}

// alternate runs functions in turn and returns the median of what each says.
func alternate(fs ...func() float64) []float64 {
	all := make([][]float64, len(fs))
	for range rounds() {
		for i, f := range fs {
			all[i] = append(all[i], f())
		}
	}
	return medians(all)
}

// beside measures two functions at the same time, half a pause apart, so that
// whatever else the machine does hits both; it returns the median of each.
func beside(rate float64, measure func(do func(int64) error) float64, a, b func(int64) error) []float64 {
	both := make([][]float64, 2)
	for range rounds() {
		var group sync.WaitGroup
		var first, second float64
		group.Go(func() { first = measure(a) })
		time.Sleep(time.Duration(float64(time.Second) / rate / 2))
		group.Go(func() { second = measure(b) })
		group.Wait()
		both[0], both[1] = append(both[0], first), append(both[1], second)
	}
	return medians(both)
}

// medians returns the median of each list.
func medians(lists [][]float64) []float64 {
	list := make([]float64, len(lists))
	for i := range lists {
		slices.Sort(lists[i])
		list[i] = lists[i][len(lists[i])/2]
	}
	return list
}

// testOpenLoopExact measures what the store client adds to one call of the script
// when calls come at a pace, whether or not earlier ones were answered.
func testOpenLoopExact(t *testing.T) {
	const workers = 64
	server := redistest.Standalone(t)
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: "redis://" + server.Addr, Tags: identity.NewHasher(nil), Deadline: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true, DisableRetry: true, PipelineMultiplex: 1, ClientSetInfo: rueidis.DisableClientSetInfo})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	checks := make([][]store.Op, 1000)
	keys, args := make([][]string, len(checks)), make([][]string, len(checks))
	var sha string
	for i := range checks {
		checks[i] = pair(i, 0)
		sha, keys[i], args[i] = s.Wire(checks[i])
	}
	take := func(n int64) error {
		_, err := s.Take(context.Background(), checks[n%int64(len(checks))])
		return err
	}
	bare := func(n int64) error {
		i := n % int64(len(checks))
		return client.Do(context.Background(), client.B().Evalsha().Sha1(sha).Numkeys(2).Key(keys[i]...).Arg(args[i]...).Build()).Error()
	}
	if err := take(0); err != nil { // loads the script
		t.Fatal(err)
	}
	for _, rate := range openRates() {
		got := beside(rate, func(do func(int64) error) float64 {
			return float64(pace(t, rate, workers, do).Percentile(99)) / float64(time.Microsecond)
		}, bare, take)
		row(t, "open loop, "+perSecond(rate)+", exact p99 / bare EVALSHA p99", got[1], got[0], "us", atMost(1.2), got[1] <= 1.2*got[0])
	}
}

// testOpenLoopLocal measures what a decision from leases takes when checks come
// at a pace, each on a processor that did something else meanwhile. It is the time
// of the call, not from when it was due: a timer is late by more than a decision
// takes. Between two calls a millisecond apart the caches go to others, so that
// nothing, a CAS bucket and a bucket of a map at the same pace are shown too, and
// decisions back to back.
func testOpenLoopLocal(t *testing.T) {
	l := lending(t)
	check := tallygate.Check{Domain: "public-api", Entries: []tallygate.Entry{{Rule: "growth-global", Key: []string{"acct_7Q2"}}}}
	var v tallygate.Verdict
	decide := func() { _ = l.Decide(context.Background(), check, &v) }
	nothing := func() {}
	cas := &casBucket{cost: 1, burst: int64(time.Hour)}
	bucket := func() {
		if !cas.take(time.Now().UnixNano()) {
			t.Error("the CAS bucket denies")
		}
	}
	table := &striped{seed: maphash.MakeSeed()}
	mapped := func() {
		if !table.take("acct_7Q2", time.Now().UnixNano(), 1, 1e9) {
			t.Error("the map denies")
		}
	}
	for _, rate := range openRates() {
		p99 := func(f func()) func() float64 {
			return func() float64 { return pacedP99(t, rate, f) }
		}
		got := alternate(p99(nothing), p99(bucket), p99(decide), p99(mapped))
		row(t, "open loop, "+perSecond(rate)+", CAS bucket p99 / nothing", got[1], got[0], "ns", "-", true)
		row(t, "open loop, "+perSecond(rate)+", striped map p99 / nothing", got[3], got[0], "ns", "-", true)
		row(t, "open loop, "+perSecond(rate)+", from a lease p99 / nothing", got[2], got[0], "ns", "<= 1 us", got[2] <= 1000)
	}
	hot := func(f func()) func() float64 { return func() float64 { return hotP99(f) } }
	got := alternate(hot(nothing), hot(bucket), hot(decide))
	row(t, "back to back, CAS bucket p99 / nothing", got[1], got[0], "ns", "-", true)
	row(t, "back to back, from a lease p99 / nothing", got[2], got[0], "ns", "<= 1 us", got[2] <= 1000)
}

// pacedP99 is the p99 of how long f takes at a pace, in ns.
func pacedP99(t *testing.T, rate float64, f func()) float64 {
	t.Helper()
	took := make([]time.Duration, 0, 20_000)
	pace(t, rate, 1, func(int64) error {
		start := time.Now()
		f()
		took = append(took, time.Since(start))
		return nil
	})
	return p99Of(took)
}

// hotP99 is the same, one call after the other.
func hotP99(f func()) float64 {
	took := make([]time.Duration, 0, 1_000_000)
	for end := time.Now().Add(span()); time.Now().Before(end) && len(took) < cap(took); {
		start := time.Now()
		f()
		took = append(took, time.Since(start))
	}
	return p99Of(took)
}

func p99Of(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)*99/100])
}

func perSecond(rate float64) string {
	if rate < 5000 {
		return "1,000/s"
	}
	return "5,000/s"
}
