package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/fleet"
)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time // guarded by mu
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// start is a moment at which a slice begins.
var start = time.UnixMilli(1_800_000_000_000)

func registry(revision int64) (*fleet.Registry, *clock) {
	c := &clock{at: start}
	return fleet.NewRegistry(fleet.RegistryConfig{Revision: func() int64 { return revision }, Now: c.now}), c
}

func report(t testing.TB, r *fleet.Registry, report fleet.Report) fleet.Receipt {
	t.Helper()
	receipt, err := r.Report(t.Context(), report)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

func TestPods(t *testing.T) {
	t.Parallel()
	r, clock := registry(7)
	if receipt := report(t, r, fleet.Report{Pod: "b", Revision: 6}); receipt.Known {
		t.Error("a new pod is known")
	}
	clock.add(20 * time.Second)
	report(t, r, fleet.Report{Pod: "a", Revision: 7, Trials: []candidate.Trial{{Rule: "x"}}})
	clock.add(10 * time.Second)
	pods := r.Pods()
	if len(pods) != 2 || pods[0].Pod != "a" || pods[0].Trials != nil {
		t.Fatalf("got %+v", pods)
	}
	if a, b := pods[0], pods[1]; !a.Live || a.Behind || !b.Live || !b.Behind || !b.SeenAt.Equal(start) {
		t.Errorf("got %+v", pods)
	}
	clock.add(time.Millisecond)
	if pods := r.Pods(); !pods[0].Live || pods[1].Live {
		t.Errorf("after 30 s and a bit: %+v", pods)
	}
	if receipt := report(t, r, fleet.Report{Pod: "b", Revision: 7}); !receipt.Known {
		t.Error("a pod that came back is not known")
	}
	clock.add(time.Hour - time.Second)
	report(t, r, fleet.Report{Pod: "b", Revision: 7})
	if pods := r.Pods(); len(pods) != 1 || pods[0].Pod != "b" {
		t.Errorf("after an hour: %+v", pods)
	}
}

// The one that has been silent longest goes.
func TestPodsAreBounded(t *testing.T) {
	t.Parallel()
	r, clock := registry(0)
	for i := range fleet.MaxPods + 5 {
		if i == fleet.MaxPods-1 {
			report(t, r, fleet.Report{Pod: "pod-0"}) // not the longest silent any more
		}
		report(t, r, fleet.Report{Pod: fmt.Sprintf("pod-%d", i)})
		clock.add(time.Millisecond)
	}
	known := map[string]bool{}
	for _, p := range r.Pods() {
		known[p.Pod] = true
	}
	if len(known) != fleet.MaxPods || !known["pod-0"] || known["pod-1"] || known["pod-5"] || !known["pod-6"] || !known[fmt.Sprintf("pod-%d", fleet.MaxPods+4)] {
		t.Errorf("%d pods, pod-0 %v, pod-1 %v, pod-5 %v, pod-6 %v", len(known), known["pod-0"], known["pod-1"], known["pod-5"], known["pod-6"])
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	r, clock := registry(0)
	rate := func(rule, key string, perSecond float64) fleet.KeyRate {
		return fleet.KeyRate{Domain: "default", Rule: rule, Key: key, PerSecond: perSecond}
	}
	report(t, r, fleet.Report{Pod: "a", Rates: []fleet.KeyRate{rate("x", "k", 2), rate("y", "k", 8)}})
	clock.add(20 * time.Second)
	report(t, r, fleet.Report{Pod: "b", Rates: []fleet.KeyRate{rate("x", "k", 0.5)}})
	for _, tt := range []struct {
		name, domain, rule, key string
		want                    float64
		known                   bool
	}{
		{"of two pods", "default", "x", "k", 2.5, true},
		{"of one", "default", "y", "k", 8, true},
		{"another key", "default", "x", "other", 0, false},
		{"another domain", "other", "x", "k", 0, false},
	} {
		if got, known := r.Rate(tt.domain, tt.rule, tt.key); got != tt.want || known != tt.known {
			t.Errorf("%s: %v %v, want %v %v", tt.name, got, known, tt.want, tt.known)
		}
	}
	clock.add(11 * time.Second)
	if got, known := r.Rate("default", "x", "k"); got != 0.5 || !known {
		t.Errorf("without the pod that went silent: %v %v", got, known)
	}
	report(t, r, fleet.Report{Pod: "b"})
	if _, known := r.Rate("default", "x", "k"); known {
		t.Error("a key that is no longer told is known")
	}
}

func slice(at time.Time, checks int64) candidate.Slice {
	return candidate.Slice{
		StartMS: at.UnixMilli(), Count: candidate.Count{Checks: checks},
		Keys: []candidate.KeyCount{{Key: "k", Count: candidate.Count{Checks: checks}}},
	}
}

func trial(rule string, sinceMS int64, slices ...candidate.Slice) []candidate.Trial {
	return []candidate.Trial{{Rule: rule, SinceMS: sinceMS, Slices: slices}}
}

// A slice that comes again takes the place of what came before.
func TestSlicesCountOnce(t *testing.T) {
	t.Parallel()
	r, clock := registry(0)
	first := start.Add(-30 * time.Second)
	report(t, r, fleet.Report{Pod: "a", Trials: trial("x", 1, slice(first, 5), slice(first.Add(10*time.Second), 6))})
	report(t, r, fleet.Report{Pod: "a", Trials: trial("x", 1, slice(first.Add(10*time.Second), 7))})
	report(t, r, fleet.Report{Pod: "b", Trials: trial("x", 1, slice(first, 100))})
	report(t, r, fleet.Report{Pod: "a", Trials: trial("x", 2, slice(first, 1000))}) // another trial
	report(t, r, fleet.Report{Pod: "a", Trials: trial("x", 1, slice(start.Add(-5*time.Minute), 1), slice(start.Add(time.Minute), 1))})
	sum := func(sinceMS int64) (checks []int64) {
		for _, s := range candidate.Merge(r.Trials("x", sinceMS)) {
			checks = append(checks, s.Checks)
		}
		return checks
	}
	if got := fmt.Sprint(sum(1), sum(2), sum(3)); got != "[105 7] [1000] []" {
		t.Errorf("got %s", got)
	}
	clock.add(3*time.Minute + 35*time.Second)
	report(t, r, fleet.Report{Pod: "a"})
	if got := fmt.Sprint(sum(1)); got != "[7]" {
		t.Errorf("after four minutes: %s", got)
	}
}

func TestReportsThatAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10_000)
	good := slice(start, 5)
	with := func(change func(*candidate.Slice)) []candidate.Trial {
		s := good
		s.Keys = append([]candidate.KeyCount(nil), good.Keys...)
		change(&s)
		return trial("x", 1, s)
	}
	for _, tt := range []struct {
		field  string
		report fleet.Report
	}{
		{"/pod", fleet.Report{}},
		{"/pod", fleet.Report{Pod: ".."}},
		{"/pod", fleet.Report{Pod: "a\nb"}},
		{"/pod", fleet.Report{Pod: long}},
		{"/revision", fleet.Report{Revision: -1}},
		{"/uptime_ms", fleet.Report{UptimeMS: -1}},
		{"/version", fleet.Report{Version: long}},
		{"/faults", fleet.Report{Faults: make([]string, fleet.MaxFaults+1)}},
		{"/faults/0", fleet.Report{Faults: []string{long}}},
		{"/shards", fleet.Report{Shards: make([]fleet.Shard, fleet.MaxShards+1)}},
		{"/shards/0", fleet.Report{Shards: []fleet.Shard{{Shard: "a"}}}},
		{"/trials", fleet.Report{Trials: make([]candidate.Trial, fleet.MaxTrials+1)}},
		{"/trials/0/rule", fleet.Report{Trials: trial("", 1)}},
		{"/trials/0/since_ms", fleet.Report{Trials: trial("x", -1)}},
		{"/trials/0/slices", fleet.Report{Trials: trial("x", 1, make([]candidate.Slice, fleet.MaxSlices+1)...)}},
		{"/trials/0/slices/0/start_ms", fleet.Report{Trials: with(func(s *candidate.Slice) { s.StartMS++ })}},
		{"/trials/0/slices/0", fleet.Report{Trials: with(func(s *candidate.Slice) { s.LiveDenied = 6 })}},
		{"/trials/0/slices/0", fleet.Report{Trials: with(func(s *candidate.Slice) { s.CandidateDenied = -1 })}},
		{"/trials/0/slices/0/keys", fleet.Report{Trials: with(func(s *candidate.Slice) { s.Keys = make([]candidate.KeyCount, candidate.MaxKeys+1) })}},
		{"/trials/0/slices/0/keys/0", fleet.Report{Trials: with(func(s *candidate.Slice) { s.Keys[0].Key = "" })}},
		{"/rates", fleet.Report{Rates: make([]fleet.KeyRate, fleet.MaxRates+1)}},
		{"/rates/0", fleet.Report{Rates: []fleet.KeyRate{{Domain: "d", Rule: "x", Key: "k", PerSecond: -1}}}},
	} {
		r, _ := registry(0)
		if tt.field != "/pod" {
			tt.report.Pod = "a"
		}
		_, err := r.Report(t.Context(), tt.report)
		if fault, ok := errors.AsType[*fleet.FaultError](err); !ok || fault.Field != tt.field || len(err.Error()) > 300 {
			t.Errorf("%s: %v", tt.field, err)
		}
		if pods := r.Pods(); len(pods) != 0 {
			t.Errorf("%s: a refused report left %+v", tt.field, pods)
		}
	}
	r, _ := registry(0)
	report(t, r, fleet.Report{Pod: "a", Trials: trial("x", 1, good)})
}

// Reports from outside are JSON; whatever it is, taking it does not panic, and what is
// held stays within its bounds.
func FuzzReport(f *testing.F) {
	seed, err := json.Marshal(fleet.Report{Pod: "a", Trials: trial("x", 1, slice(start, 5)), Rates: []fleet.KeyRate{{Domain: "d", Rule: "x", Key: "k", PerSecond: 1}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"pod":"a","trials":[{"rule":"x","slices":[{"start_ms":-10000}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var in fleet.Report
		if json.Unmarshal(text, &in) != nil {
			return
		}
		r, _ := registry(0)
		_, err := r.Report(t.Context(), in)
		if fault, ok := errors.AsType[*fleet.FaultError](err); err != nil && (!ok || !strings.HasPrefix(fault.Field, "/")) {
			t.Errorf("got %v", err)
		}
		if err == nil && len(r.Pods()) != 1 {
			t.Error("the pod is not there")
		}
	})
}

func TestClient(t *testing.T) {
	t.Parallel()
	r, _ := registry(0)
	var path, token string
	answer := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path, token = req.URL.EscapedPath(), req.Header.Get("Authorization")
		if answer != http.StatusOK {
			w.WriteHeader(answer)
			return
		}
		var in fleet.Report
		if err := json.NewDecoder(req.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		receipt := report(t, r, in)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(receipt)
	}))
	defer server.Close()
	c, err := fleet.NewClient(fleet.ClientConfig{URL: server.URL + "/base", Token: "hidden"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i, known := range []bool{false, true} {
		receipt, err := c.Report(t.Context(), fleet.Report{Pod: "a/b c", Revision: int64(i)})
		if err != nil || receipt.Known != known {
			t.Errorf("got %+v, %v", receipt, err)
		}
	}
	if path != "/base/v1/pods/a%2Fb%20c/report" || token != "Bearer hidden" || r.Pods()[0].Revision != 1 {
		t.Errorf("path %s, token %s, pods %+v", path, token, r.Pods())
	}
	big := fleet.Report{Pod: "big"}
	for i := range 200 {
		big.Trials = append(big.Trials, trial(fmt.Sprint("rule-", i), 1, candidate.Slice{Keys: []candidate.KeyCount{{Key: strings.Repeat("x", 50_000)}}})...)
	}
	if _, err := c.Report(t.Context(), big); err == nil || !strings.Contains(err.Error(), "without its trials") || len(r.Pods()) != 2 {
		t.Errorf("a report that is too large: %v, pods %+v", err, r.Pods())
	}
	answer = http.StatusNoContent
	if receipt, err := c.Report(t.Context(), fleet.Report{Pod: "a"}); err != nil || !receipt.Known {
		t.Errorf("204: %+v, %v", receipt, err)
	}
	answer = http.StatusUnauthorized
	if _, err := c.Report(t.Context(), fleet.Report{Pod: "a"}); err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "hidden") {
		t.Errorf("401: %v", err)
	}
}

// Many pods report while others look, for the race detector.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r, _ := registry(1)
	var wg sync.WaitGroup
	for pod := range 20 {
		wg.Go(func() {
			for i := range 20 {
				_, err := r.Report(context.Background(), fleet.Report{
					Pod: fmt.Sprint(pod), Trials: trial("x", 1, slice(start.Add(-time.Duration(i%3)*10*time.Second), 1)),
					Rates: []fleet.KeyRate{{Domain: "d", Rule: "x", Key: "k", PerSecond: 1}},
				})
				if err != nil {
					t.Error(err)
				}
				r.Pods()
				r.Rate("d", "x", "k")
				candidate.Merge(r.Trials("x", 1))
			}
		})
	}
	wg.Wait()
	if rate, _ := r.Rate("d", "x", "k"); rate != 20 {
		t.Errorf("rate %v", rate)
	}
}
