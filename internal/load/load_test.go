package load_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/load"
)

// plan is an open loop of one second.
func plan(rate float64, workers int) load.Plan {
	return load.Plan{Rate: rate, Workers: workers, Duration: time.Second}
}

func mustRun(t testing.TB, p load.Plan, do func(ctx context.Context, worker int, n int64) load.Outcome) *load.Result {
	t.Helper()
	r, err := load.Run(t.Context(), p, do)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// near reports whether a percentile, which is within 1 % of the truth, is d.
func near(got, d time.Duration) bool { return got >= d*98/100 && got <= d*102/100 }

// Checks are due at n/rate, each once, whatever the answers take.
func TestRun_open(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		sent := map[int64]time.Duration{}
		r := mustRun(t, plan(100, 4), func(_ context.Context, worker int, n int64) load.Outcome {
			mu.Lock()
			sent[n] = time.Since(start)
			mu.Unlock()
			if worker < 0 || worker >= 4 {
				t.Errorf("worker %d", worker)
			}
			time.Sleep(5 * time.Millisecond)
			return load.Outcome(n % 4)
		})
		for n := range int64(100) {
			if got, want := sent[n], time.Duration(n)*10*time.Millisecond; got != want {
				t.Errorf("check %d was sent after %s, want %s", n, got, want)
			}
		}
		if r.Checks() != 100 || r.Counts != [4]int64{25, 25, 25, 25} || r.Unsent != 0 {
			t.Errorf("%+v", r)
		}
		if r.Took != 995*time.Millisecond || r.Max != 5*time.Millisecond || !near(r.Percentile(99), 5*time.Millisecond) {
			t.Errorf("took %s, max %s, p99 %s", r.Took, r.Max, r.Percentile(99))
		}
	})
}

// A server that stalls for half a second is charged for all checks due meanwhile,
// not for the one it held: no coordinated omission.
func TestRun_stall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, plan(100, 1), func(_ context.Context, _ int, n int64) load.Outcome {
			if n == 0 {
				time.Sleep(500 * time.Millisecond)
			}
			return load.Allowed
		})
		if r.Checks() != 100 || !near(r.Percentile(75), 250*time.Millisecond) || r.Max != 500*time.Millisecond {
			t.Errorf("%d checks, p75 %s, max %s; want 100, 250 ms, 500 ms", r.Checks(), r.Percentile(75), r.Max)
		}
	})
}

// A server that does not keep up ends the run in time, and what was not sent is
// told.
func TestRun_overload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, plan(1000, 2), func(context.Context, int, int64) load.Outcome {
			time.Sleep(100 * time.Millisecond)
			return load.Allowed
		})
		if r.Checks() != 22 || r.Unsent != 978 || r.Took != 1101*time.Millisecond {
			t.Errorf("%d checks, %d unsent in %s; want 22, 978 and 1.101 s", r.Checks(), r.Unsent, r.Took)
		}
	})
}

// A closed loop sends as fast as it is answered.
func TestRun_closed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := mustRun(t, plan(0, 3), func(context.Context, int, int64) load.Outcome {
			time.Sleep(10 * time.Millisecond)
			return load.Denied
		})
		if r.Checks() != 300 || r.Unsent != 0 || r.Max != 10*time.Millisecond || r.Took != time.Second {
			t.Errorf("%d checks, %d unsent, max %s in %s", r.Checks(), r.Unsent, r.Max, r.Took)
		}
	})
}

func TestRun_cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Millisecond)
		defer cancel()
		r, err := load.Run(ctx, plan(100, 2), func(context.Context, int, int64) load.Outcome { return load.Allowed })
		if err != nil || r.Checks() != 10 || r.Took != 95*time.Millisecond || r.Unsent != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestRun_refuses(t *testing.T) {
	for name, p := range map[string]load.Plan{
		"rate below 0":  plan(-1, 1),
		"rate too high": plan(1e7, 1),
		"no rate":       plan(math.NaN(), 1),
		"no worker":     plan(1, 0),
		"many workers":  plan(1, 5000),
		"no time":       {Rate: 1, Workers: 1},
		"a day":         {Rate: 1, Workers: 1, Duration: 24 * time.Hour},
	} {
		if _, err := load.Run(t.Context(), p, nil); !errors.Is(err, load.ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bucket answers checks as a server of one rule would: so many a key, then no.
type bucket struct {
	mu     sync.Mutex
	seen   map[string]int
	most   int
	answer func(n int64, w http.ResponseWriter) bool // whether it answered
	n      atomic.Int64
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Domain  string
		Entries []struct {
			Rule, Key string
			Cost      int
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/ratelimit:check" || len(q.Entries) != 1 || q.Entries[0].Rule != "r" || q.Domain != "d" {
		http.Error(w, fmt.Sprintf("%s %+v %v", r.URL, q, err), http.StatusBadRequest)
		return
	}
	if b.answer != nil && b.answer(b.n.Add(1), w) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[string]int{}
	}
	verdict := "allow"
	if b.seen[q.Entries[0].Key] += q.Entries[0].Cost; b.seen[q.Entries[0].Key] > b.most {
		verdict = "deny"
	}
	_, _ = fmt.Fprintf(w, `{"verdict":%q,"entries":[]}`, verdict)
}

// within reports whether two figures are the same, but for rounding.
func within(a, b float64) bool { return math.Abs(a-b) < 1e-6 }

func target(servers ...*httptest.Server) load.Target {
	t := load.Target{Domain: "d", Rule: "r", Key: "k", Keys: 1, Cost: 1, Timeout: 5 * time.Second}
	for _, s := range servers {
		t.Servers = append(t.Servers, s.URL+"/")
	}
	return t
}

func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// driven is the report of a run in which the machine kept up, so that no check is unsent:
// a busy one takes several runs. start makes the servers of one.
func driven(t *testing.T, p load.Plan, l load.Limit, start func() load.Target) *load.Report {
	t.Helper()
	for range 20 {
		r, err := load.Drive(t.Context(), p, start(), l)
		if err != nil {
			t.Fatal(err)
		}
		if r.Unsent == 0 {
			return r
		}
	}
	t.Fatal("checks were unsent in each of 20 runs")
	return nil
}

// Every key goes to every server, and what is admitted is compared with the
// limit, by key and in total.
func TestDrive(t *testing.T) {
	var one, two *bucket
	r := driven(t, load.Plan{Rate: 400, Workers: 8, Duration: time.Second}, load.Limit{Rate: 1, Burst: 20}, func() load.Target {
		one, two = &bucket{most: 20}, &bucket{most: 10}
		to := target(serve(t, one), serve(t, two))
		to.Keys, to.Cost = 5, 2
		return to
	})
	for i, b := range []*bucket{one, two} {
		if len(b.seen) != 5 || b.seen["k0"] != 80 || b.seen["k4"] != 80 {
			t.Errorf("server %d saw %v, want 40 checks of 2 tokens of each of 5 keys", i, b.seen)
		}
	}
	if r.Checks != 400 || r.Allowed != 75 || r.Denied != 325 || r.Errors != 0 || r.Degraded != 0 || r.Loop != "open" {
		t.Errorf("%+v", r)
	}
	e, most := r.Envelope, 20+r.DurationS+0.001
	if e.Admitted != 150 || e.AdmittedByOneKey != 30 || !within(e.Over, 30-most) || !within(e.Part, 30/most) || !within(e.Most, 5*most) {
		t.Errorf("%+v, want 30 of %f tokens a key", e, most)
	}
	if r.Latency.P50US <= 0 || r.Latency.P50US > r.Latency.P99US || r.Latency.P999US > r.Latency.MaxUS {
		t.Errorf("latencies %+v", r.Latency)
	}
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"open, 400/s due", "allowed          75\n", "denied           325\n", "p99.9", "admitted         150 of at most "} {
		if !strings.Contains(table.String(), part) {
			t.Errorf("no %q in\n%s", part, &table)
		}
	}
}

// What is no verdict is an error, told once; what passed without being counted is
// told apart.
func TestDrive_errors(t *testing.T) {
	b := &bucket{most: 1000, answer: func(n int64, w http.ResponseWriter) bool {
		switch n % 5 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"verdict":"deny","code":"store_unavailable"}`))
		case 1:
			_, _ = w.Write([]byte(`{"verdict":"allow","degraded":"store_timeout"}`))
		case 2:
			_, _ = w.Write([]byte(`hello`))
		case 3:
			_, _ = w.Write([]byte(`{"verdict":"maybe"}`))
		default:
			return false
		}
		return true
	}}
	gone := httptest.NewServer(b)
	gone.Close()
	p := load.Plan{Rate: 200, Workers: 4, Duration: 500 * time.Millisecond}
	r := driven(t, p, load.Limit{}, func() load.Target {
		b.n.Store(0)
		return target(serve(t, b))
	})
	if r.Checks != 100 || r.Errors != 60 || r.Degraded != 20 || r.Allowed != 20 || r.FirstError == "" || r.Envelope != nil {
		t.Errorf("%+v", r)
	}
	r, err := load.Drive(t.Context(), p, target(gone), load.Limit{})
	if err != nil || r.Errors != r.Checks || !strings.Contains(r.FirstError, "refused") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDrive_refuses(t *testing.T) {
	s := serve(t, new(bucket))
	for name, change := range map[string]func(*load.Target){
		"no server":  func(t *load.Target) { t.Servers = nil },
		"no rule":    func(t *load.Target) { t.Rule = "" },
		"no key":     func(t *load.Target) { t.Key = "" },
		"no keys":    func(t *load.Target) { t.Keys = 0 },
		"many keys":  func(t *load.Target) { t.Keys = 1e7 },
		"no cost":    func(t *load.Target) { t.Cost = 0 },
		"no timeout": func(t *load.Target) { t.Timeout = 0 },
	} {
		to := target(s)
		change(&to)
		if _, err := load.Drive(t.Context(), plan(1, 1), to, load.Limit{}); !errors.Is(err, load.ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := load.Drive(t.Context(), load.Plan{}, target(s), load.Limit{}); !errors.Is(err, load.ErrPlan) {
		t.Errorf("no plan: %v", err)
	}
}
