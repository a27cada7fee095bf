package tallygate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/rules"
)

// forever is a rule that no benchmark drains.
func forever(id string) rules.Rule { return bucket(id, 1_000_000_000, 1, 1_000_000_000) }

// twoRules match one request by its attributes, as a plan and a route do.
func twoRules() []rules.Rule {
	plan, route := forever("growth-global"), forever("labels-route")
	plan.CoversAll, plan.Match = false, map[string]string{"plan": "growth"}
	route.CoversAll, route.Match = false, map[string]string{"route": "POST /v1/labels"}
	return []rules.Rule{plan, route}
}

var labels = map[string]string{"plan": "growth", "route": "POST /v1/labels", "api_key": "acct_7Q2"}

// The local paths do not allocate: neither for an entry nor for two buckets
// found by attributes.
func TestDecideAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools allocate")
	}
	bounded := forever("bounded") // a rule that bounds new keys looks up its known ones
	bounded.CoversAll, bounded.Match, bounded.MaxNewKeysPerS = false, map[string]string{"plan": "bounded"}, 10
	l := limiter(t, newClock(), append(twoRules(), bounded)...)
	for name, check := range map[string]tallygate.Check{
		"one entry":                   ask("growth-global", "acct_7Q2", 1),
		"a known key":                 ask("bounded", "acct_7Q2", 1),
		"two entries":                 both("acct_7Q2", "growth-global", "labels-route"),
		"two buckets from attributes": {Attributes: labels},
	} {
		var v tallygate.Verdict
		ctx := context.Background()
		decide := func() {
			if err := l.Decide(ctx, check, &v); err != nil || !v.Allow {
				t.Fatal(v, err)
			}
		}
		decide()
		if got := testing.AllocsPerRun(1000, decide); got != 0 {
			t.Errorf("%s: %v allocations, want 0", name, got)
		}
	}
}

func benchmarkDecide(b *testing.B, check tallygate.Check) {
	b.Helper()
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(compile(b, epoch, rules.Set{Rules: twoRules()}))})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var v tallygate.Verdict
		ctx := context.Background()
		for pb.Next() {
			if err := l.Decide(ctx, check, &v); err != nil || !v.Allow {
				b.Fatal(v, err)
			}
		}
	})
}

// BenchmarkDecideTrial asks both versions of a rule.
func BenchmarkDecideTrial(b *testing.B) {
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(compile(b, epoch, onTrial(forever("r"), rules.StageShadow, 0, forever("r"))))})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var v tallygate.Verdict
	check := ask("r", "acct_7Q2", 1)
	for b.Loop() {
		if err := l.Decide(context.Background(), check, &v); err != nil || !v.Allow {
			b.Fatal(v, err)
		}
	}
}

func BenchmarkDecideEntry(b *testing.B) { benchmarkDecide(b, ask("growth-global", "acct_7Q2", 1)) }

func BenchmarkDecideAttributes(b *testing.B) {
	benchmarkDecide(b, tallygate.Check{Attributes: labels})
}

// BenchmarkDecideKeys spreads over 100,000 keys.
func BenchmarkDecideKeys(b *testing.B) {
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(compile(b, epoch, rules.Set{Rules: twoRules()}))})
	if err != nil {
		b.Fatal(err)
	}
	checks := make([]tallygate.Check, 100_000)
	for i := range checks {
		checks[i] = ask("growth-global", fmt.Sprintf("acct_%d", i), 1)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var v tallygate.Verdict
		ctx := context.Background()
		for i := 0; pb.Next(); i = (i + 7919) % len(checks) {
			if err := l.Decide(ctx, checks[i], &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
