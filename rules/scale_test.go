package rules_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// largeSet is a set of so many rules, each for its own plan, with overrides spread
// over them: some end by time, some are patterns.
func largeSet(count, overrides int) rules.Set {
	var set rules.Set
	for i := range count {
		set.Rules = append(set.Rules, rules.Rule{
			ID: fmt.Sprintf("rule-%05d", i), Domain: "public-api", Match: map[string]string{"plan": fmt.Sprint("plan-", i)},
			Identity: []string{"api_key"}, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 100, Burst: 200}, Owner: "kim",
		})
	}
	for i := range overrides {
		set.Overrides = append(set.Overrides, manyOverride(i%count, i/count, 400))
	}
	return set
}

func manyOverride(rule, i int, burst int64) rules.Override {
	o := rules.Override{
		Rule: fmt.Sprintf("rule-%05d", rule), Key: []string{fmt.Sprintf("acct_%d_%d", rule, i)},
		Numbers: rules.Numbers{Rate: 300, Burst: burst}, Reason: "launch week", Owner: "kim",
	}
	if i%4 == 0 {
		o.ExpiresAt = start.Add(time.Hour)
	}
	return o
}

const (
	scaleRules     = 1_000
	scaleOverrides = 100_000
	// scaleHeapMB bounds what the compiler and its snapshot hold of the largest set. The
	// source of a database holds some more beside them.
	scaleHeapMB = 35
)

// TestScale logs (-v) what 1,000 rules and 100,000 overrides cost: compiling all of
// them, a change of one, and the memory.
func TestScale(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("compiles 100,000 overrides")
	}
	c := rules.NewCompiler(nil)
	before := heapMB()
	s, problems, took := compileLargeSet(c)
	t.Logf("compile everything:      %v", took)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := heapMB() - before; got > scaleHeapMB {
		t.Errorf("%d MB of heap, want at most %d", got, scaleHeapMB)
	} else {
		t.Logf("heap:                    %d MB", got)
	}
	for name, delta := range scaleDeltas() {
		const rounds = 20
		var times []time.Duration
		for i := range rounds {
			began := time.Now()
			s, problems = c.Change(delta(i), int64(2+i), start.Add(time.Second))
			times = append(times, time.Since(began))
		}
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		slices.Sort(times)
		t.Logf("%-25s best %v, median %v", name+":", times[0], times[rounds/2])
	}
	if lim, _ := s.Rule("rule-00007").Effective("acct_7_1", start); lim.Burst != 1_019 {
		t.Errorf("burst %d after the changes, want the last one's 1019", lim.Burst)
	}
	runtime.KeepAlive(c)
}

// compileLargeSet keeps nothing of the set itself.
func compileLargeSet(c *rules.Compiler) (*rules.Snapshot, rules.Problems, time.Duration) {
	set := largeSet(scaleRules, scaleOverrides)
	began := time.Now()
	s, problems := c.Whole(set, 1, start)
	return s, problems, time.Since(began)
}

func scaleDeltas() map[string]func(i int) rules.Delta {
	return map[string]func(i int) rules.Delta{
		"change an override": func(i int) rules.Delta {
			return rules.Delta{Overrides: []rules.Override{manyOverride(7, 1, int64(1_000+i))}}
		},
		"change a rule": func(i int) rules.Delta {
			rule := largeSet(1, 0).Rules[0]
			rule.ID, rule.Burst = "rule-00500", int64(500+i)
			return rules.Delta{Rules: []rules.Rule{rule}}
		},
		"add and remove a pattern": func(i int) rules.Delta {
			o := manyOverride(8, 0, 9)
			o.Key = []string{"acct_8_*"}
			if i%2 == 0 {
				return rules.Delta{Overrides: []rules.Override{o}}
			}
			return rules.Delta{Gone: []rules.Ref{{Rule: o.Rule, Key: o.Key}}}
		},
		"reset a key": func(int) rules.Delta {
			return rules.Delta{Resets: []rules.Ref{{Rule: "rule-00009", Key: []string{"k"}}}}
		},
		"reset a key of all rules": func(int) rules.Delta {
			return rules.Delta{Resets: []rules.Ref{{Key: []string{"k"}}}}
		},
	}
}

func heapMB() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) >> 20
}

// Each size is measured beside the smallest in one run: that is the yardstick.
func BenchmarkScale(b *testing.B) {
	sizes := []struct {
		name             string
		rules, overrides int
	}{{"10 rules", 10, 1_000}, {"1000 rules", scaleRules, scaleOverrides}}
	for _, size := range sizes {
		s, _ := rules.Compile(nil, largeSet(size.rules, size.overrides), 1, start)
		domain, dst := s.Domain("public-api"), make([]*rules.Compiled, 0, 32)
		requests := make([]map[string]string, 10) // as warm in both
		keys := make([]string, len(requests))
		for i := range requests {
			rule := i * size.rules / 10
			requests[i] = map[string]string{"plan": fmt.Sprint("plan-", rule), "route": "GET /v1/labels", "api_key": "k"}
			keys[i] = fmt.Sprintf("acct_%d_%d", rule, 7+i)
		}
		b.Run("match/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				dst = domain.Match(requests[i%10], dst[:0])
			}
		})
		b.Run("effective/"+size.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				s.Rules()[i%10*size.rules/10].Effective(keys[i%10], start)
			}
		})
	}
}

func BenchmarkEffective(b *testing.B) {
	patterns := func(identity string, keys ...string) *rules.Compiled {
		set := rules.Set{Rules: []rules.Rule{{
			ID: "r", CoversAll: true, Identity: []string{identity}, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 1},
		}}}
		for _, key := range keys {
			set.Overrides = append(set.Overrides, rules.Override{Rule: "r", Key: []string{key}, Numbers: rules.Numbers{Burst: 5}})
		}
		s, problems := rules.Compile(nil, set, 1, start)
		if len(problems.Faults()) > 0 {
			b.Fatal(problems.Faults())
		}
		return s.Rule("r")
	}
	var prefixes, networks, inner []string
	for i := range rules.MaxPatterns {
		prefixes = append(prefixes, fmt.Sprintf("acct_%d_*", i))
		networks = append(networks, fmt.Sprintf("10.%d.%d.0/%d", i/250, i%250, 24))
		inner = append(inner, fmt.Sprintf("*_%d_*", i))
	}
	for _, tt := range []struct {
		name string
		rule *rules.Compiled
		key  string
	}{
		{"no override", patterns("k"), "acct_77_x"},
		{"exact", patterns("k", "acct_77_x"), "acct_77_x"},
		{"10 prefixes", patterns("k", prefixes[70:80]...), "acct_77_x"},
		{"1000 prefixes", patterns("k", prefixes...), "acct_77_x"},
		{"1000 prefixes, none matches", patterns("k", prefixes...), "user_77_x"},
		{"1000 networks", patterns("ip", networks...), "10.1.77.9"},
		{"1000 inner pieces, none matches", patterns("k", inner...), "user-77-x"},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				tt.rule.Effective(tt.key, start)
			}
		})
	}
}
