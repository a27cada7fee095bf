package sim_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/internal/sim/scenario"
	"github.com/tallygate/tallygate/internal/sim/scenarios"
	"github.com/tallygate/tallygate/limit"
)

// shipped returns a scenario that we ship, to run for so long.
func shipped(t testing.TB, name string, d time.Duration) sim.Config {
	t.Helper()
	data, ok := scenarios.Read(name)
	if !ok {
		t.Fatalf("there is no scenario %q", name)
	}
	c, err := scenario.Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	if d > 0 {
		c.Duration = d
	}
	c.Seed = 1
	return c
}

func mustRun(t testing.TB, c sim.Config) *sim.Result {
	t.Helper()
	r, err := sim.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkSums fails when a decision has no source or two, or when pods let pass
// more than was asked.
func checkSums(t testing.TB, r *sim.Result) {
	t.Helper()
	if got := r.Allowed + r.Denied + r.Unanswered; got != r.Checks || got == 0 {
		t.Errorf("%d checks ended, %d were counted", got, r.Checks)
	}
	for _, x := range r.Rules {
		if x.Admitted > x.Offered {
			t.Errorf("rule %s admitted %d tokens of %d offered", x.Rule, x.Admitted, x.Offered)
		}
	}
}

// small returns a fleet of 8 pods before one bucket, offered twice its limit.
func small() sim.Config {
	return sim.Config{
		Name: "small", Seed: 1, Pods: 8, Duration: 5 * time.Second,
		Network: sim.Network{Latency: time.Millisecond, Patience: 5 * time.Millisecond},
		Rules:   []sim.Rule{bucketRule("only", 1000, 2000, 1)},
		Traffic: []sim.Traffic{{Rules: []int{0}, Keys: 1, PerSecond: 2000, Cost: 1}},
	}
}

func bucketRule(id string, rate, burst, maxCost int64) sim.Rule {
	return sim.Rule{
		ID: id, MaxCost: maxCost, MaxLease: 1000,
		Limit: limit.Limit{Algorithm: limit.TokenBucket, Rate: rate, PeriodMS: 1000, Burst: burst, Revision: 1},
	}
}
