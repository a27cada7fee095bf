package scenario_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/internal/sim/scenario"
	"github.com/tallygate/tallygate/internal/sim/scenarios"
	"github.com/tallygate/tallygate/limit"
)

const whole = `about: everything
pods: 10
duration_s: 2.5
store: { latency_ms: 0.5, jitter_ms: 1, patience_ms: 4 }
shards: 3
rules:
  - { id: a, algorithm: token_bucket, rate: 10, per_s: 60, burst: 20, max_cost: 5, max_lease: 7 }
  - { id: b, algorithm: sliding_window, limit: 100, window_s: 60, counting: exact }
  - { id: c, algorithm: sliding_log, limit: 9, window_s: 1 }
  - { id: d, algorithm: fixed_window, limit: 9, window_s: 1, counting: async, sync_ms: 20 }
  - { id: e, algorithm: token_bucket, rate: 1, burst: 2, fail_mode: closed, closed_allowance: { times: 0.25 } }
traffic:
  - { rules: [a], first_key: 3, keys: 2, rate: 1.5, pinned: 2, cost: 4, arrival: even }
  - { rules: [b, c], rate: 10 }
faults:
  lost_reply: 1
  timed_out_but_ran: 0.5
  pod_crash: [{ at_s: 1, pod: 2 }]
  pod_pause: [{ at_s: 1.5, pod: 3, ms: 250 }]
  autoscale: [{ at_s: 2, pods: 12 }]
  shard_down: [{ at_s: 0.5, shard: 1, for_s: 0.25, how: hangs }]
  shard_slow: [{ at_s: 0.5, for_s: 1, plus_ms: 2.5 }, { at_s: 2, for_s: 1, times: 1.5 }]
  shard_flap: [{ at_s: 1, shard: 2, down_s: 0.1, up_s: 0.2, times: 3 }]
  shard_restart: [{ at_s: 2 }]
  shard_failover: [{ at_s: 2, shard: 1, lost_ms: 300 }]
`

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := scenario.Parse("whole", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "whole" || c.Pods != 10 || c.Duration != 2500*time.Millisecond {
		t.Errorf("got %q, %d pods, %s", c.Name, c.Pods, c.Duration)
	}
	if n := c.Network; n.Latency != 500*time.Microsecond || n.Jitter != time.Millisecond || n.Patience != 4*time.Millisecond {
		t.Errorf("got network %+v", n)
	}
	a := c.Rules[0]
	if want := (limit.Limit{Algorithm: limit.TokenBucket, Rate: 10, PeriodMS: 60_000, Burst: 20, Revision: 1}); a.Limit != want || a.MaxCost != 5 || a.MaxLease != 7 {
		t.Errorf("got rule %+v", a)
	}
	if b := c.Rules[1]; b.Limit.Capacity != 100 || b.Limit.WindowMS != 60_000 || b.MaxLease != 0 || b.Terms.Counting != pod.Exact {
		t.Errorf("got rule %+v", b)
	}
	if c := c.Rules[2]; c.MaxLease != 0 {
		t.Errorf("a log leases: %+v", c)
	}
	if d := c.Rules[3]; d.Terms.Counting != pod.Async || d.Terms.Sync != 20*time.Millisecond {
		t.Errorf("got rule %+v", d)
	}
	x := c.Traffic[0]
	if x.FirstKey != 3 || x.Keys != 2 || x.PerSecond != 1.5 || x.Pinned != 2 || x.Cost != 4 || !x.Even {
		t.Errorf("got traffic %+v", x)
	}
	if y := c.Traffic[1]; len(y.Rules) != 2 || y.Rules[1] != 2 || y.Keys != 1 || y.Cost != 1 || y.Even {
		t.Errorf("got traffic %+v", y)
	}
	f := c.Faults
	if f.LostReply != 0.01 || f.Late != 0.005 || len(f.Crashes) != 1 || f.Pauses[0].For != 250*time.Millisecond || f.Scales[0].Pods != 12 {
		t.Errorf("got faults %+v", f)
	}
}

func TestParse_store(t *testing.T) {
	t.Parallel()
	c, err := scenario.Parse("whole", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if e := c.Rules[4]; c.Shards != 3 || !e.Closed || e.AllowanceMilli != 250 || c.Rules[0].Closed {
		t.Errorf("%d shards, got rule %+v", c.Shards, e)
	}
	const ms = time.Millisecond
	if got, want := c.Faults.Store, (sim.StoreFaults{
		Downs:     []sim.Down{{At: 500 * ms, Shard: 1, For: 250 * ms, Hangs: true}},
		Slows:     []sim.Slow{{At: 500 * ms, For: 1000 * ms, Times: 1, Plus: 2500 * time.Microsecond}, {At: 2000 * ms, For: 1000 * ms, Times: 1.5}},
		Flaps:     []sim.Flap{{At: 1000 * ms, Shard: 2, Down: 100 * ms, Up: 200 * ms, Times: 3}},
		Restarts:  []sim.Restart{{At: 2000 * ms}},
		Failovers: []sim.Failover{{At: 2000 * ms, Shard: 1, Lost: 300 * ms}},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("got faults %+v, want %+v", got, want)
	}
	if c, err = scenario.Parse("plain", []byte(tail)); err != nil || c.Shards != 1 || c.Rules[0].Closed {
		t.Errorf("%v, %+v", err, c)
	}
}

// tail is a whole scenario of the least that one needs.
const tail = "pods: 2\nduration_s: 1\nrules: [{ id: a, algorithm: token_bucket, rate: 1, burst: 1 }]\ntraffic: [{ rules: [a], rate: 1 }]\n"

func TestParse_refuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "the file is empty"},
		{"no YAML", "pods: [", "1:"},
		{"an unknown field", "pod: 3\n" + tail, `1:1: unknown field "pod"`},
		{"an unknown field of a rule", strings.Replace(tail, "rate: 1, burst", "rates: 1, burst", 1), `3:43: unknown field "rates"`},
		{"an unknown field of a fault", tail + "faults:\n  pod_crash: [{ at: 1, pod: 1 }]\n", `6:17: unknown field "at"`},
		{"a field twice", "pods: 3\n" + tail, "2:1:"},
		{"text for a number", strings.Replace(tail, "pods: 2", "pods: two", 1), "1:7:"},
		{"part of a pod", strings.Replace(tail, "pods: 2", "pods: 1.5", 1), "1:7:"},
		{"a number in quotes", strings.Replace(tail, "pods: 2", "pods: '2'", 1), "1:7:"},
		{"a list for a number", strings.Replace(tail, "pods: 2", "pods: [2]", 1), "1:7:"},
		{"two documents", tail + "---\n" + tail, "second YAML document"},
		{"no algorithm", strings.Replace(tail, "token_bucket", "bucket", 1), `rule "a": algorithm "bucket" is none of`},
		{"numbers of another algorithm", strings.Replace(tail, "burst: 1", "burst: 1, limit: 1", 1), "of a window"},
		{"an unknown rule", strings.Replace(tail, "[a]", "[b]", 1), `traffic 1: there is no rule "b"`},
		{"an unknown arrival", strings.Replace(tail, "rate: 1 }]", "rate: 1, arrival: odd }]", 1), `arrival "odd"`},
		{"an unknown counting", strings.Replace(tail, "burst: 1", "burst: 1, counting: odd", 1), `counting "odd"`},
		{"a rate of nothing", strings.Replace(tail, "rate: 1, burst", "rate: 0, burst", 1), `rule "a":`},
		{"a fault of nobody", tail + "faults: { pod_crash: [{ at_s: 1, pod: 2 }] }\n", "a crash of pod 2 of 2"},
		{"a rate of no number", strings.Replace(tail, "rate: 1 }]", "rate: .nan }]", 1), "traffic 1: NaN checks"},
		{"a check in a million years", strings.Replace(tail, "rate: 1 }]", "rate: 1e-12 }]", 1), "traffic 1: 1e-12 checks"},
		{"a run without end", strings.Replace(tail, "duration_s: 1", "duration_s: 9e9", 1), "a duration of"},
		{"checks without end", strings.Replace(strings.Replace(tail, "duration_s: 1", "duration_s: 86400", 1), "rate: 1 }]", "rate: 1e6 }]", 1), "in all"},
		{"a key beyond all", strings.Replace(tail, "rate: 1 }]", "rate: 1, first_key: 9223372036854775807 }]", 1), "traffic 1: keys"},
		{"a jitter of years", "store: { jitter_ms: 9e12 }\n" + tail, "a jitter of"},
		{"a sync of no number", strings.Replace(tail, "burst: 1", "burst: 1, counting: async, sync_ms: .nan", 1), `rule "a": sync_ms`},
		{"losses of no number", tail + "faults: { lost_reply: .nan }\n", "NaN lost"},
		{"a pause of years", tail + "faults: { pod_pause: [{ at_s: 1, pod: 1, ms: 9e12 }] }\n", "a pause of pod 1"},
		{"a fault before the start", tail + "faults: { pod_crash: [{ at_s: -5, pod: 1 }] }\n", "a crash of pod 1"},
		{"a step of years", tail + "faults: { clock_step: [{ at_s: 0.5, ms: 9e12 }] }\n", "a clock step"},
		{"an unknown fail mode", strings.Replace(tail, "burst: 1", "burst: 1, fail_mode: shut", 1), `fail_mode "shut" is none of open, closed`},
		{"an allowance of an open rule", strings.Replace(tail, "burst: 1", "burst: 1, closed_allowance: { times: 1 }", 1), "of a rule with fail_mode closed"},
		{"an allowance of nothing", strings.Replace(tail, "burst: 1", "burst: 1, fail_mode: closed, closed_allowance: { times: 0 }", 1), "closed_allowance.times 0 is not"},
		{"an allowance finer than a thousandth", strings.Replace(tail, "burst: 1", "burst: 1, fail_mode: closed, closed_allowance: { times: 0.0015 }", 1), "in thousandths"},
		{"an allowance of no number", strings.Replace(tail, "burst: 1", "burst: 1, fail_mode: closed, closed_allowance: { times: .nan }", 1), "closed_allowance.times NaN"},
		{"too many shards", "shards: 101\n" + tail, "shards 101 is not from 1 to 100"},
		{"less than no shards", "shards: -1\n" + tail, "shards -1 is not"},
		{"a shard of nobody", tail + "faults: { shard_down: [{ at_s: 1, shard: 1, for_s: 1 }] }\n", "shard 1 of 1 down"},
		{"a shard down for no time", tail + "faults: { shard_down: [{ at_s: 1 }] }\n", "down for 0s"},
		{"a shard down in no way", tail + "faults: { shard_down: [{ at_s: 1, for_s: 1, how: odd }] }\n", `shard_down: how "odd" is none of refuses, hangs`},
		{"a shard flapping in no way", tail + "faults: { shard_flap: [{ at_s: 1, how: odd }] }\n", `shard_flap: how "odd"`},
		{"flaps without end", tail + "faults: { shard_flap: [{ at_s: 1, down_s: 1, up_s: 1, times: 9999999 }] }\n", "flapping 9999999 times"},
		{"a slow shard that is not", tail + "faults: { shard_slow: [{ at_s: 1, for_s: 1 }] }\n", "is not slow"},
		{"slow by no number", tail + "faults: { shard_slow: [{ at_s: 1, for_s: 1, times: .nan }] }\n", "slow by NaN times"},
		{"a restart of nobody", tail + "faults: { shard_restart: [{ at_s: 1, shard: -1 }] }\n", "a restart of shard -1"},
		{"a failover that loses nothing", tail + "faults: { shard_failover: [{ at_s: 1 }] }\n", "loses 0s"},
		{"too much", strings.Repeat("#", scenario.MaxBytes+1), "are above"},
	} {
		_, err := scenario.Parse("file.yaml", []byte(tt.text))
		if err == nil || !strings.HasPrefix(err.Error(), "file.yaml: ") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line with %q", tt.name, err, tt.want)
		}
	}
}

func TestParse_shipped(t *testing.T) {
	t.Parallel()
	names := scenarios.Names()
	if len(names) < 9 {
		t.Errorf("%d scenarios are shipped: %v", len(names), names)
	}
	for _, name := range names {
		data, ok := scenarios.Read(name)
		if !ok {
			t.Errorf("there is no %q", name)
		}
		if _, err := scenario.Parse(name, data); err != nil {
			t.Error(err)
		}
	}
	if _, ok := scenarios.Read("none"); ok {
		t.Error(`there is a scenario "none"`)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	for _, name := range scenarios.Names() {
		data, _ := scenarios.Read(name)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := scenario.Parse("fuzz", data)
		if err == nil {
			if err := c.Validate(); err != nil {
				t.Errorf("%v, though it was read", err)
			}
		}
	})
}
