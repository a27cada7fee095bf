package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/sim/scenario"
	"github.com/tallygate/tallygate/internal/sim/scenarios"
	"github.com/tallygate/tallygate/limit"
)

const whole = `about: everything
pods: 10
duration_s: 2.5
store: { latency_ms: 0.5, jitter_ms: 1, patience_ms: 4 }
rules:
  - { id: a, algorithm: token_bucket, rate: 10, per_s: 60, burst: 20, max_cost: 5, max_lease: 7 }
  - { id: b, algorithm: sliding_window, limit: 100, window_s: 60, counting: exact }
  - { id: c, algorithm: sliding_log, limit: 9, window_s: 1 }
  - { id: d, algorithm: fixed_window, limit: 9, window_s: 1, counting: async, sync_ms: 20 }
traffic:
  - { rules: [a], first_key: 3, keys: 2, rate: 1.5, pinned: 2, cost: 4, arrival: even }
  - { rules: [b, c], rate: 10 }
faults:
  lost_reply: 1
  timed_out_but_ran: 0.5
  pod_crash: [{ at_s: 1, pod: 2 }]
  pod_pause: [{ at_s: 1.5, pod: 3, ms: 250 }]
  autoscale: [{ at_s: 2, pods: 12 }]
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

func TestParse_refuses(t *testing.T) {
	t.Parallel()
	const tail = "pods: 2\nduration_s: 1\nrules: [{ id: a, algorithm: token_bucket, rate: 1, burst: 1 }]\ntraffic: [{ rules: [a], rate: 1 }]\n"
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
