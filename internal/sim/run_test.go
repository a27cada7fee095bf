package sim_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/internal/sim/scenarios"
	"github.com/tallygate/tallygate/limit"
)

// Each run has tables of its own, with hashes of their own: what a pod decides must
// not depend on which entries such a table drops first. That takes a while to show.
func TestRun_sameSeedSameTrace(t *testing.T) {
	t.Parallel()
	for _, name := range scenarios.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := shipped(t, name, 3*time.Second)
			first, again := mustRun(t, c), mustRun(t, c)
			if first.TraceHash != again.TraceHash {
				t.Errorf("hashes %s and %s of the same seed", first.TraceHash, again.TraceHash)
			}
			c.Seed++
			if other := mustRun(t, c); other.TraceHash == first.TraceHash {
				t.Errorf("hash %s of two seeds", other.TraceHash)
			}
		})
	}
}

// Nothing is admitted above the envelope, whatever the scenario.
func TestRun_shippedScenarios(t *testing.T) {
	t.Parallel()
	for _, name := range scenarios.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := 3 * time.Second
			if name == "lossy" && !testing.Short() {
				d = 0 // its faults are spread over all of it
			}
			c := shipped(t, name, d)
			r := mustRun(t, c)
			checkSums(t, r)
			if r.Above() != 0 {
				t.Errorf("%d tokens above what may be", r.Above())
			}
			if bound := asyncBound(c); r.Rules[0].AboveEnvelope > bound {
				t.Errorf("%d tokens above the envelope, want at most %d of async", r.Rules[0].AboveEnvelope, bound)
			}
		})
	}
}

// asyncBound is what an async first rule may admit above its envelope: each pod
// what the rate brings between two syncs, rounded up.
func asyncBound(c sim.Config) int64 {
	r := &c.Rules[0]
	if r.Terms.Counting != pod.Async {
		return 0
	}
	brings := r.Limit.Rate * r.Terms.Sync.Milliseconds()
	return int64(c.Pods) * ((brings + r.Limit.PeriodMS - 1) / r.Limit.PeriodMS)
}

// Nor does it matter what goes wrong, or how rules, costs and keys are mixed.
func TestRun_faultsKeepTheEnvelope(t *testing.T) {
	t.Parallel()
	seeds := uint64(150)
	if *figures {
		seeds = 5_000
	}
	for seed := range seeds {
		c := anything(seed)
		r := mustRun(t, c)
		checkSums(t, r)
		if again := mustRun(t, c); again.TraceHash != r.TraceHash {
			t.Errorf("seed %d: hashes %s and %s of the same seed\n%+v", seed, r.TraceHash, again.TraceHash, c)
		}
		if r.Above() != 0 {
			t.Errorf("seed %d: %d tokens above what may be\n%+v", seed, r.Above(), c)
		}
	}
}

// anything returns a fleet under faults that a seed chooses.
func anything(seed uint64) sim.Config {
	rng := rand.New(rand.NewPCG(seed, 99))
	c := sim.Config{
		Name: fmt.Sprint("anything ", seed), Seed: seed, Pods: 1 + rng.IntN(12), Duration: 2 * time.Second,
		Network: sim.Network{
			Latency: time.Duration(1 + rng.IntN(3_000_000)), Jitter: time.Duration(rng.IntN(6_000_000)), Patience: 5 * time.Millisecond,
		},
	}
	windows := rng.IntN(4) == 0
	for i := range 1 + rng.IntN(3) {
		maxCost := int64(1 + rng.IntN(10))
		rule := bucketRule(fmt.Sprint("rule", i), 1+rng.Int64N(1<<rng.IntN(13)), maxCost+rng.Int64N(1<<rng.IntN(13)), maxCost)
		rule.Limit.PeriodMS *= []int64{1, 1, 3, 60}[rng.IntN(4)]
		rule.MaxLease = []int64{0, 5, 1000}[rng.IntN(3)]
		if windows {
			rule.Limit = limit.Limit{Algorithm: limit.Algorithm(2 + rng.IntN(3)), Capacity: rule.Limit.Burst, WindowMS: int64(50 + rng.IntN(1500)), Revision: 1}
		}
		if rule.Limit.Algorithm == limit.SlidingLog || rule.MaxLease == 0 {
			rule.MaxLease, rule.Terms.Counting = 0, pod.Exact
		}
		if rule.Terms.Counting == pod.Lease && rng.IntN(2) == 0 {
			rule.Terms.Before = pod.PreLimit{Milli: 1000, FairShare: rng.IntN(4) == 0}
		}
		c.Rules = append(c.Rules, rule)
	}
	for range 1 + rng.IntN(3) {
		t := sim.Traffic{Keys: 1 + rng.IntN(3), PerSecond: float64(1 + rng.IntN(2000)), Even: rng.IntN(2) == 0, Pinned: rng.IntN(c.Pods + 1)}
		t.Rules = rng.Perm(len(c.Rules))[:1+rng.IntN(len(c.Rules))]
		most := int64(10)
		for _, r := range t.Rules {
			most = min(most, c.Rules[r].MaxCost)
		}
		t.Cost = 1 + rng.Int64N(most)
		c.Traffic = append(c.Traffic, t)
	}
	c.Faults = someFaults(rng, c.Pods, windows)
	if rng.IntN(3) == 0 {
		c.Shards = 1 + rng.IntN(3)
		c.Faults.Store, _ = anyFaults(rng, c.Shards)
	}
	return c
}

func someFaults(rng *rand.Rand, pods int, windows bool) (f sim.Faults) {
	at := func() time.Duration { return time.Duration(rng.Int64N(int64(2 * time.Second))) }
	if rng.IntN(2) == 0 {
		f.LostReply, f.Late = rng.Float64()/5, rng.Float64()/5
	}
	for range rng.IntN(4) {
		if !windows {
			f.Steps = append(f.Steps, sim.Step{At: at(), By: -time.Duration(rng.IntN(1500)) * time.Millisecond})
		}
	}
	for range rng.IntN(3) {
		f.Crashes = append(f.Crashes, sim.Crash{At: at(), Pod: rng.IntN(pods)})
	}
	for range rng.IntN(4) {
		f.Pauses = append(f.Pauses, sim.Pause{At: at(), Pod: rng.IntN(pods), For: time.Duration(1 + rng.IntN(1_500_000_000))})
	}
	for range rng.IntN(3) {
		f.Scales = append(f.Scales, sim.Scale{At: at(), Pods: 1 + rng.IntN(16)})
	}
	return f
}

// A store that refills while tokens are out admits too much: whoever says that
// nothing was must see that.
func TestRun_findsAPlantedViolation(t *testing.T) {
	t.Parallel()
	// The level is full but for what is out, until all pods at once have much to do.
	c := small()
	c.Rules = []sim.Rule{bucketRule("only", 15_000, 3_000, 1)}
	c.Traffic[0].PerSecond = 12_000
	for p := range c.Pods {
		c.Faults.Pauses = append(c.Faults.Pauses, sim.Pause{At: 2 * time.Second, Pod: p, For: 400 * time.Millisecond})
	}
	for _, tt := range []struct {
		name  string
		spoil func(*algorithm.State)
		finds bool
	}{
		{"sound", nil, false},
		{"refills while tokens are out", func(s *algorithm.State) { s.Bucket.Out0, s.Bucket.Out1 = 0, 0 }, true},
		{"full again when it is empty", func(s *algorithm.State) {
			if s.Bucket.Level < s.Limit.PeriodMS {
				s.Bucket.Level = s.Limit.Burst * s.Limit.PeriodMS
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := sim.RunSpoiled(c, tt.spoil)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.AboveEnvelope > 0; got != tt.finds {
				t.Errorf("%d tokens above the envelope, want any: %v", r.AboveEnvelope, tt.finds)
			}
		})
	}
}

// A pod that stood still finds its leases ended: what it held went to others.
func TestRun_pauseLeavesNothingToSpend(t *testing.T) {
	t.Parallel()
	c := small()
	c.Faults.Pauses = []sim.Pause{{At: time.Second, Pod: 0, For: 2 * time.Second}}
	r := mustRun(t, c)
	if r.AboveEnvelope != 0 {
		t.Errorf("%d tokens above the envelope", r.AboveEnvelope)
	}
	if r.WaitMaxMS < 1 {
		t.Errorf("the longest wait was %g ms, though a pod stood still", r.WaitMaxMS)
	}
}

func TestRun_crashStrandsAtMostItsLeases(t *testing.T) {
	t.Parallel()
	c := small()
	c.Traffic[0].PerSecond = 800
	c.Faults.Crashes = []sim.Crash{{At: c.Duration - 20*time.Millisecond, Pod: 0}}
	r := mustRun(t, c)
	calm := small()
	calm.Traffic[0].PerSecond = 800
	if got := mustRun(t, calm).Stranded; r.Stranded < got {
		t.Errorf("%d tokens stranded by a crash, %d without one", r.Stranded, got)
	}
	if most := c.Rules[0].Limit.Burst / 4; r.Stranded > most {
		t.Errorf("%d tokens stranded, want at most %d", r.Stranded, most)
	}
}

// The loop allocates nothing of its own: what is left is the pods' calls.
func TestRun_allocatesNothingPerCheck(t *testing.T) {
	if testing.Short() {
		t.Skip("runs alone and for long")
	}
	c := small()
	c.Rules[0] = bucketRule("only", 1_000_000, 2_000_000, 1)
	c.Rules[0].MaxLease = 1_000_000
	c.Traffic[0].PerSecond = 50_000
	allocs := func(d time.Duration) (float64, int64) {
		c.Duration = d
		var checks int64
		n := testing.AllocsPerRun(1, func() { checks = mustRun(t, c).Checks })
		return n, checks
	}
	a, checksA := allocs(time.Second)
	b, checksB := allocs(3 * time.Second)
	if per := (b - a) / float64(checksB-checksA); per > 0.05 {
		t.Errorf("%.3f allocations a check, want next to none", per)
	}
}

func TestRun_refusesNonsense(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(*sim.Config)
	}{
		{"no pods", func(c *sim.Config) { c.Pods = 0 }},
		{"no time", func(c *sim.Config) { c.Duration = 0 }},
		{"a store that takes no time", func(c *sim.Config) { c.Network.Latency = 0 }},
		{"no patience", func(c *sim.Config) { c.Network.Patience = c.Network.Latency }},
		{"no rules", func(c *sim.Config) { c.Rules = nil }},
		{"a rule twice", func(c *sim.Config) { c.Rules = append(c.Rules, c.Rules[0]) }},
		{"a rule without numbers", func(c *sim.Config) { c.Rules[0].Limit = limit.Limit{} }},
		{"a cost above max_cost", func(c *sim.Config) { c.Traffic[0].Cost = 2 }},
		{"an unknown rule", func(c *sim.Config) { c.Traffic[0].Rules = []int{1} }},
		{"no traffic", func(c *sim.Config) { c.Traffic[0].PerSecond = 0 }},
		{"too many keys", func(c *sim.Config) { c.Traffic[0].Keys = sim.MaxBuckets + 1 }},
		{"pinned to more pods than there are", func(c *sim.Config) { c.Traffic[0].Pinned = c.Pods + 1 }},
		{"more faults than calls", func(c *sim.Config) { c.Faults.LostReply, c.Faults.Late = 0.6, 0.6 }},
		{"half a millisecond", func(c *sim.Config) { c.Faults.Steps = []sim.Step{{By: 1}} }},
		{"a crash of nobody", func(c *sim.Config) { c.Faults.Crashes = []sim.Crash{{Pod: c.Pods}} }},
		{"a pause for no time", func(c *sim.Config) { c.Faults.Pauses = []sim.Pause{{}} }},
		{"a fleet of none", func(c *sim.Config) { c.Faults.Scales = []sim.Scale{{}} }},
		{"too many shards", func(c *sim.Config) { c.Shards = sim.MaxShards + 1 }},
		{"less than no shards", func(c *sim.Config) { c.Shards = -1 }},
		{"an allowance above the limit", func(c *sim.Config) { c.Rules[0].Closed, c.Rules[0].AllowanceMilli = true, 1001 }},
		{"an allowance of a rule that fails open", func(c *sim.Config) { c.Rules[0].AllowanceMilli = 1 }},
		{"a shard that is not there", func(c *sim.Config) { c.Faults.Store.Restarts = []sim.Restart{{Shard: 1}} }},
		{"a shard down for no time", func(c *sim.Config) { c.Faults.Store.Downs = []sim.Down{{}} }},
		{"a flap that never comes back", func(c *sim.Config) { c.Faults.Store.Flaps = []sim.Flap{{Down: 1, Times: 1}} }},
		{"flaps without end", func(c *sim.Config) {
			c.Faults.Store.Flaps = []sim.Flap{{Down: 1, Up: 1, Times: sim.MaxFlaps + 1}}
		}},
		{"many flaps without end", func(c *sim.Config) {
			c.Faults.Store.Flaps = []sim.Flap{{Down: 1, Up: 1, Times: sim.MaxFlaps}, {Down: 1, Up: 1, Times: 1}}
		}},
		{"restarts without end", func(c *sim.Config) { c.Faults.Store.Restarts = make([]sim.Restart, sim.MaxLosses+1) }},
		{"a slow shard that is fast", func(c *sim.Config) { c.Faults.Store.Slows = []sim.Slow{{For: 1, Times: 0.5}} }},
		{"a slow shard that is not", func(c *sim.Config) { c.Faults.Store.Slows = []sim.Slow{{For: 1, Times: 1}} }},
		{"a failover to before the start", func(c *sim.Config) { c.Faults.Store.Failovers = []sim.Failover{{At: 1, Lost: 2}} }},
	} {
		c := small()
		tt.spoil(&c)
		if _, err := sim.Run(c); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
}
