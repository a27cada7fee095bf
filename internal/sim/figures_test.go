package sim_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/internal/sim/scenarios"
)

var figures = flag.Bool("figures", false, "run the long simulations and print their figures")

// figureChecks is how many checks TestFigures makes at least, over all scenarios.
const figureChecks = 100_000_000

// TestFigures runs all scenarios for as long as they say, prints what
// docs/performance.md quotes and holds it to the goals; then it runs them on, each
// with seeds of its own, until enough has been checked for the envelope.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("takes minutes: -figures")
	}
	var results []*sim.Result
	var checks int64
	for _, name := range scenarios.Names() {
		r := timed(t, shipped(t, name, 0))
		results = append(results, r)
		checks += r.Checks
	}
	var table strings.Builder
	if err := sim.WriteTable(&table, results); err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString(table.String())
	for _, g := range goals() {
		for _, r := range results {
			if r.Scenario == g.scenario {
				g.check(t, r)
			}
		}
	}
	for seed := uint64(2); checks < figureChecks; seed++ {
		for _, name := range scenarios.Names() {
			c := shipped(t, name, 0)
			c.Seed = seed
			r := timed(t, c)
			checks += r.Checks
			checkSums(t, r)
			if r.Above() != 0 {
				t.Errorf("%s, seed %d: %d tokens above what may be", name, seed, r.Above())
			}
		}
	}
	t.Logf("%d checks in all", checks)
}

func timed(t testing.TB, c sim.Config) *sim.Result {
	t.Helper()
	start := time.Now()
	r := mustRun(t, c)
	r.Took(time.Since(start))
	return r
}

// goal is a number to reach.
type goal struct {
	scenario, what string
	of             func(*sim.Result) float64
	atLeast        bool
	bound          float64
}

func (g goal) check(t testing.TB, r *sim.Result) {
	t.Helper()
	got, sign := g.of(r), "≤"
	met := got <= g.bound
	if g.atLeast {
		sign, met = "≥", got >= g.bound
	}
	t.Logf("%-17s %-40s %12.2f %s %.2f %v", g.scenario, g.what, got, sign, g.bound, map[bool]string{true: "met", false: "MISSED"}[met])
	if !met {
		t.Errorf("%s: %s is %.2f, want %s %.2f", g.scenario, g.what, got, sign, g.bound)
	}
}

func goals() []goal {
	calls := func(r *sim.Result) float64 { return r.StoreCallsPerS }
	list := []goal{
		{"hot-key", "store calls a second", calls, false, 260},
		{"hot-key", "held unspent, mean % of the burst", func(r *sim.Result) float64 { return r.Rules[0].HeldMeanPct }, false, 10},
		{"hot-key-at-limit", "calls in flight of a pod and set", func(r *sim.Result) float64 { return float64(r.SetCallsOpenMax) }, false, 1},
		{"hot-key-at-limit", "calls of a pod in a second", func(r *sim.Result) float64 { return float64(r.PodCallsMaxPerS) }, false, 250},
		{"hot-key-at-limit", "served %", func(r *sim.Result) float64 { return r.Rules[0].ServedPct }, true, 99},
		{"published-mix", "calls per check %", func(r *sim.Result) float64 { return r.CallsPerChkPct }, false, 20},
		// pods × ceil(rate × sync)
		{"async-100", "tokens above the envelope", func(r *sim.Result) float64 { return float64(r.Rules[0].AboveEnvelope) }, false, 100 * 50},
		{"hot-key", "decisions a real second", func(r *sim.Result) float64 { return r.DecisionsPerRealS }, true, 1_000_000},
	}
	for _, name := range []string{"even", "pinned-1", "pinned-2"} {
		list = append(list, goal{name, "least admitted % of rate × d", leastOfRate, true, 99})
	}
	for _, name := range scenarios.Names() {
		if name == "async-100" {
			continue
		}
		list = append(list, goal{name, "tokens above the envelope", func(r *sim.Result) float64 { return float64(r.Above()) }, false, 0})
	}
	return list
}

// leastOfRate is the least of the rules' admitted tokens against rate × d.
func leastOfRate(r *sim.Result) float64 {
	least := 1e9
	for _, x := range r.Rules {
		least = min(least, x.OfRatePct)
	}
	return least
}
