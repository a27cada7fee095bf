package sim_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/limit"
)

// checkBounds fails when anything is above what may be, whoever admitted it.
func checkBounds(t testing.TB, r *sim.Result) {
	t.Helper()
	checkSums(t, r)
	if r.Above() != 0 || r.OutageMaxPct > 100 {
		t.Errorf("above: envelope %d, fallback %d, any span %d, closed %d; %.2f %% of an outage's bound",
			r.AboveEnvelope, r.AboveFallback, r.AboveSpan, r.AboveClosed, r.OutageMaxPct)
	}
	if r.Charged > r.Told || r.Told > r.FallbackAdmitted || r.Fallback > r.FailOpen {
		t.Errorf("admitted %d, told %d, charged %d; %d of %d answers by a fallback", r.FallbackAdmitted, r.Told, r.Charged, r.Fallback, r.FailOpen)
	}
	var open, closed, openings int64
	for _, x := range r.Shards {
		open, closed, openings = open+x.FailOpen, closed+x.FailClosed, openings+x.BreakerOpenings
	}
	if open != r.FailOpen || closed != r.FailClosed || openings != r.BreakerOpenings {
		t.Errorf("of shards %d, %d, %d; of all %d, %d, %d", open, closed, openings, r.FailOpen, r.FailClosed, r.BreakerOpenings)
	}
}

func ruleOf(t testing.TB, r *sim.Result, id string) sim.RuleResult {
	t.Helper()
	for _, x := range r.Rules {
		if x.Rule == id {
			return x
		}
	}
	t.Fatalf("there is no rule %q", id)
	return sim.RuleResult{}
}

// within fails when a figure is out of its range.
func within(t testing.TB, what string, got, low, high float64) {
	t.Helper()
	if !(got >= low && got <= high) {
		t.Errorf("%s is %.2f, want %.2f to %.2f", what, got, low, high)
	}
}

// One shard of three refuses, another one hangs: each of 50 breakers opens once, the
// third shard's keys notice nothing, and log-ins that fail closed get no answer at all.
func TestRun_shardDown(t *testing.T) {
	t.Parallel()
	r := mustRun(t, shipped(t, "shard-down", 0))
	checkBounds(t, r)
	for i, x := range r.Shards {
		if away := i < 2; (x.Fallback > 1000) != away || (x.FailClosed > 300) != away || (x.BreakerOpenings == 50) != away || !away && x != (sim.ShardResult{}) {
			t.Errorf("shard %d: %+v", i, x)
		}
	}
	if login := ruleOf(t, r, "login"); login.Fallback != 0 {
		t.Errorf("a rule that fails closed admitted %d tokens without the store", login.Fallback)
	}
	within(t, "of an outage's bound", r.OutageMaxPct, 90, 100)
	reset := ruleOf(t, r, "reset")
	within(t, "of the bound of an allowance", reset.OutageMaxPct, 50, 100)
}

// Calls that take 2 to 4 ms cost time, but for a few checks that wait for two of them
// in a row. Calls that nobody hears of in time open the
// breakers of one shard; all of them ran, and what they spent was spent in vain.
func TestRun_shardSlow(t *testing.T) {
	t.Parallel()
	c := shipped(t, "shard-slow", 0)
	r := mustRun(t, c)
	checkBounds(t, r)
	if x := r.Shards[0]; x.Fallback < 5_000 || x.BreakerOpenings != 20 {
		t.Errorf("the slow shard: %+v", x)
	}
	if r.Shards[1] != (sim.ShardResult{}) {
		t.Errorf("the other shard: %+v", r.Shards[1])
	}
	c.Faults.Store.Slows = c.Faults.Store.Slows[:1]
	if r = mustRun(t, c); r.FailOpen > r.Checks/1000 || r.BreakerOpenings != 0 || r.WaitP99MS < 3 {
		t.Errorf("%d answers without a store that is slow but answers, %d breakers opened; p99 %.2f ms", r.FailOpen, r.BreakerOpenings, r.WaitP99MS)
	}
}

// A hundred flaps under heavy load, each pod noticing in its own time: what all admit
// stays within three times the rate, where one pod alone stays within twice.
func TestRun_flapping(t *testing.T) {
	t.Parallel()
	c := shipped(t, "flapping", 0)
	r := mustRun(t, c)
	checkBounds(t, r)
	within(t, "breakers opened", float64(r.BreakerOpenings), 500, 1000)
	within(t, "served of an exact limiter", r.ServedOfExactPct, 150, 300)
	within(t, "told of what fallbacks admitted", 100*float64(r.Told)/float64(r.FallbackAdmitted), 50, 100)
	c.Pods = 1
	r = mustRun(t, c)
	checkBounds(t, r)
	if r.AboveTogether != 0 {
		t.Errorf("one pod admitted %d tokens above 3 bursts and twice the rate", r.AboveTogether)
	}
	shop := ruleOf(t, r, "shop")
	within(t, "tokens of one pod a second and key", float64(shop.Admitted)/float64(shop.Buckets)/r.DurationS, 120, 2*100+3*200/r.DurationS)
}

// Pods try a shard again by chance, each in its own time, and the same seed the same.
func TestRun_flappingBySeed(t *testing.T) {
	t.Parallel()
	c := shipped(t, "flapping", 12*time.Second)
	r, again := mustRun(t, c), mustRun(t, c)
	c.Seed++
	other := mustRun(t, c)
	if r.TraceHash != again.TraceHash || r.BreakerOpenings != again.BreakerOpenings {
		t.Errorf("%s and %s of one seed", r.TraceHash, again.TraceHash)
	}
	if other.FallbackAdmitted == r.FallbackAdmitted || other.StoreCallsPerS == r.StoreCallsPerS {
		t.Error("pods of another seed flap alike")
	}
}

// After a restart without keys log-ins are refused for a window, and customers start
// with a request instead of a burst.
func TestRun_emptyRestart(t *testing.T) {
	t.Parallel()
	c := shipped(t, "empty-restart", 0)
	r := mustRun(t, c)
	checkBounds(t, r)
	// In the last window and a half before it admits 5 a second and key, after it none
	// for 10 s: of four windows three are left.
	login, shop := ruleOf(t, r, "login"), ruleOf(t, r, "shop")
	within(t, "served of log-ins", 100*float64(login.Admitted)/float64(login.Buckets*4*50), 70, 76)
	if login.Fallback != 0 || r.FailClosed < 900 {
		t.Errorf("log-ins: %d by fallbacks, %d refused", login.Fallback, r.FailClosed)
	}
	// An empty bucket of 1,000 gives nothing away: in all it is 2 % that fallbacks add.
	within(t, "admitted of burst and rate × time", shop.ServedPct, 99, 103)
}

// A failover that loses a second of spends gives at most these back, and rules that
// fail closed wait for two seconds.
func TestRun_failover(t *testing.T) {
	t.Parallel()
	c := small()
	c.Rules = []sim.Rule{bucketRule("open", 1000, 2000, 1), bucketRule("closed", 1000, 2000, 1)}
	c.Rules[1].Closed, c.Rules[1].MaxLease, c.Rules[1].Terms.Counting = true, 0, pod.Exact
	c.Traffic = []sim.Traffic{
		{Rules: []int{0}, Keys: 1, PerSecond: 1500, Cost: 1},
		{Rules: []int{1}, FirstKey: 1, Keys: 1, PerSecond: 500, Cost: 1},
	}
	c.Duration = 6 * time.Second
	before := mustRun(t, c)
	c.Faults.Store.Failovers = []sim.Failover{{At: 3 * time.Second, Lost: time.Second}}
	r := mustRun(t, c)
	checkBounds(t, r)
	within(t, "refused by rules that fail closed", float64(r.FailClosed), 950, 1050)
	within(t, "spent twice", float64(r.Rules[0].Admitted-before.Rules[0].Admitted), 900, 1010)
}

// Whoever says that nothing was above must see what is.
func TestRun_findsPlantedFaultsOfPods(t *testing.T) {
	t.Parallel()
	flapping := shipped(t, "flapping", 30*time.Second)
	one := flapping
	one.Pods = 1
	empty := shipped(t, "empty-restart", 0)
	spike := shipped(t, "empty-restart", 0)
	spike.Traffic = spike.Traffic[:1]
	for _, tt := range []struct {
		name  string
		c     sim.Config
		run   func(sim.Config) (*sim.Result, error)
		found func(*sim.Result) int64
	}{
		{"a fallback that is fresh after each flap", flapping, sim.RunForgetful, func(r *sim.Result) int64 { return r.AboveFallback }},
		{"and of one pod", one, sim.RunForgetful, func(r *sim.Result) int64 { return r.AboveFallback }},
		{"a fallback that keeps its refill over flaps", one, sim.RunHoarding, func(r *sim.Result) int64 { return r.AboveSpan }},
		{"a closed rule that passes", shipped(t, "shard-down", 12*time.Second), sim.RunWavingThrough, func(r *sim.Result) int64 { return r.AboveClosed }},
		{"a pod that believes an empty store", empty, sim.RunBlind, func(r *sim.Result) int64 { return r.AboveClosed }},
		{"a spike after an empty restart", spike, sim.RunBlind, func(r *sim.Result) int64 { return r.AboveEnvelope }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if r := mustRun(t, tt.c); r.Above() != 0 {
				t.Errorf("sound, and %d tokens above", r.Above())
			}
			r, err := tt.run(tt.c)
			if err != nil {
				t.Fatal(err)
			}
			if tt.found(r) == 0 || r.Above() == 0 {
				t.Errorf("nothing above: %+v", r)
			}
		})
	}
}

// Whatever happens to some shards of a store, nothing is above what fallbacks may, a
// rule that fails closed admits nothing by itself, and the other shards' keys notice
// nothing.
func TestRun_anyStoreFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		c, hurt := anyOutages(seed, rapid.IntRange(1, 20).Draw(t, "pods"))
		r, err := sim.Run(c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Above() != 0 || r.OutageMaxPct > 100 {
			t.Fatalf("above: envelope %d, fallback %d, any span %d, closed %d; %.2f %% of an outage's bound\n%+v",
				r.AboveEnvelope, r.AboveFallback, r.AboveSpan, r.AboveClosed, r.OutageMaxPct, c)
		}
		for i, x := range r.Shards {
			if !hurt[i] && x != (sim.ShardResult{}) {
				t.Fatalf("shard %d, to which nothing happened: %+v\n%+v", i, x, c)
			}
		}
		for i, x := range r.Rules {
			if rule := &c.Rules[i]; rule.Closed && rule.AllowanceMilli == 0 && x.Fallback != 0 {
				t.Fatalf("rule %s fails closed and admitted %d tokens\n%+v", rule.ID, x.Fallback, c)
			}
		}
		if again, _ := sim.Run(c); again.TraceHash != r.TraceHash {
			t.Fatalf("hashes %s and %s of one seed\n%+v", r.TraceHash, again.TraceHash, c)
		}
	})
}

// anyOutages returns a fleet in front of shards, some of which get hurt. Checks are few
// enough for none to wait in vain for another's call of a shard that is well.
func anyOutages(seed uint64, pods int) (c sim.Config, hurt map[int]bool) {
	rng := rand.New(rand.NewPCG(seed, 7))
	c = sim.Config{
		Name: "outages", Seed: seed, Pods: pods, Duration: 4 * time.Second, Shards: 1 + rng.IntN(4),
		Network: sim.Network{Latency: time.Duration(1+rng.IntN(500)) * time.Microsecond, Jitter: time.Duration(rng.IntN(300)) * time.Microsecond, Patience: 5 * time.Millisecond},
	}
	for i := range 1 + rng.IntN(3) {
		maxCost := 1 + rng.Int64N(5)
		rule := bucketRule(string(rune('a'+i)), 1+rng.Int64N(1<<rng.IntN(10)), maxCost+rng.Int64N(1<<rng.IntN(10)), maxCost)
		if rng.IntN(3) == 0 {
			rule.Limit = limit.Limit{Algorithm: limit.Algorithm(2 + rng.IntN(3)), Capacity: rule.Limit.Burst, WindowMS: int64(100 + rng.IntN(2000)), Revision: 1}
		}
		if rule.Limit.Algorithm == limit.SlidingLog || rng.IntN(3) == 0 {
			rule.MaxLease, rule.Terms.Counting = 0, pod.Exact
			if rule.Limit.Algorithm != limit.SlidingLog && rng.IntN(4) == 0 {
				rule.Terms.Counting = pod.Async
			}
		}
		if rule.Closed = rng.IntN(3) == 0; rule.Closed && rng.IntN(2) == 0 {
			rule.AllowanceMilli = 1 + rng.Int64N(1000)
		}
		c.Rules = append(c.Rules, rule)
	}
	for i := range 1 + rng.IntN(3) {
		x := sim.Traffic{FirstKey: 4 * i, Keys: 1 + rng.IntN(4), PerSecond: math.Exp2(rng.Float64() * 10), Cost: 1, Pinned: rng.IntN(pods + 1)}
		x.Rules = rng.Perm(len(c.Rules))[:1+rng.IntN(len(c.Rules))]
		c.Traffic = append(c.Traffic, x)
	}
	c.Faults.Store, hurt = anyFaults(rng, c.Shards)
	return c, hurt
}

func anyFaults(rng *rand.Rand, shards int) (f sim.StoreFaults, hurt map[int]bool) {
	hurt = map[int]bool{}
	at := func() time.Duration { return time.Duration(1 + rng.Int64N(int64(4*time.Second))) }
	shard := func() int {
		s := rng.IntN((shards + 1) / 2) // the others stay well
		hurt[s] = true
		return s
	}
	for range 1 + rng.IntN(4) {
		switch rng.IntN(5) {
		case 0:
			f.Downs = append(f.Downs, sim.Down{At: at(), Shard: shard(), For: at() / 2, Hangs: rng.IntN(2) == 0})
		case 1:
			f.Flaps = append(f.Flaps, sim.Flap{
				At: at(), Shard: shard(), Down: at() / 4, Up: at() / 8, Times: 1 + rng.IntN(20), Hangs: rng.IntN(2) == 0,
			})
		case 2:
			f.Slows = append(f.Slows, sim.Slow{At: at(), Shard: shard(), For: at() / 2, Times: 1 + rng.Float64()*20, Plus: time.Duration(1 + rng.Int64N(int64(10*time.Millisecond)))})
		case 3:
			f.Restarts = append(f.Restarts, sim.Restart{At: at(), Shard: shard()})
		case 4:
			x := sim.Failover{At: at(), Shard: shard()}
			x.Lost = 1 + time.Duration(rng.Int64N(int64(x.At)))
			f.Failovers = append(f.Failovers, x)
		}
	}
	return f, hurt
}
