package tallygate_test

import (
	"context"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// anyway is a check of sets whose every hit counts.
func anyway(list ...tallygate.Set) tallygate.Check {
	return tallygate.Check{Sets: list, CountDenied: true}
}

// What is allowed beside a denial is spent, and counted as allowed; what is denied is
// added to its window.
func TestCountDenied(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), of("b", window("b", limit.FixedWindow, 2, 60)), of("a", window("a", limit.FixedWindow, 10, 60)))
	v := mustCheck(t, l, anyway(set("b", "k", 1), set("a", "k", 3)))
	if !v.Allow {
		t.Fatalf("%+v", v)
	}
	v = mustCheck(t, l, anyway(set("b", "k", 2), set("a", "k", 3)))
	if b, a := v.Entries[0], v.Entries[1]; v.Allow || v.DeniedBy != "b" || !a.Allow || a.Remaining != 4 || b.Allow || b.Remaining != 0 {
		t.Fatalf("%+v, want a denial by b, and 4 left of a", v)
	}
	if v = mustCheck(t, l, sets(set("b", "k", 1))); v.Allow {
		t.Errorf("the denied hits did not count: %+v", v)
	}
	for _, r := range l.Stats().Rules {
		switch allowed := r.Count(tallygate.OutcomeAllow); {
		case r.Rule == "a" && (allowed != 2 || r.Spent != 6):
			t.Errorf("a: %d allowed, %d spent, want 2 and 6", allowed, r.Spent)
		case r.Rule == "b" && (allowed != 1 || r.Spent != 1 || r.Count(tallygate.OutcomeDeny) != 2):
			t.Errorf("b: %d allowed, %d spent, %d denied, want 1, 1 and 2", allowed, r.Spent, r.Count(tallygate.OutcomeDeny))
		}
	}
}

// Of a rule on trial both versions count every hit, also those that another rule denied:
// else a candidate of the same numbers would seem to deny less, or on a canary pod more.
func TestCountDenied_trial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stage   rules.Stage
		percent int
		pod     bool
	}{
		"shadow": {rules.StageShadow, 0, false}, "canary": {rules.StageCanary, 100, false},
		"shadow behind a pod": {rules.StageShadow, 0, true}, "canary behind a pod": {rules.StageCanary, 100, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			var s store.Store = clock.Memory()
			if c.pod {
				s = behind{clock.Memory()}
			}
			live := of("a", window("a", limit.FixedWindow, 900, 60))
			next := live
			next.Description = "the next version"
			b := of("b", window("b", limit.FixedWindow, 1, 60))
			l := withStore(t, clock, s, onTrial(next, c.stage, c.percent, live, b))
			defer func() { _ = l.Close() }()
			for _, cost := range []int64{400, 400, 200, 10, 1} { // 800 of 900, then denied and counted
				mustCheck(t, l, anyway(set("a", "k", cost), set("b", "k", 1)))
			}
			if got, want := sums(l, "a"), (tallygate.TrialStats{BothAllowed: 2, BothDenied: 3}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// A reservation is for all or nothing as ever.
func TestReserveCountsNoDenied(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), of("a", window("a", limit.FixedWindow, 10, 60)), of("b", window("b", limit.FixedWindow, 2, 60)))
	v, r, err := l.Reserve(context.Background(), anyway(set("a", "k", 3), set("b", "k", 3)), "", time.Minute)
	if err != nil || v.Allow || r != "" {
		t.Fatalf("%+v, %q, %v", v, r, err)
	}
	if v := mustCheck(t, l, sets(set("a", "k", 10), set("b", "k", 2))); !v.Allow {
		t.Errorf("the denied reservation counted: %+v", v)
	}
}

// Valid refuses what Check does, spends nothing and lets no new key in.
func TestValid(t *testing.T) {
	t.Parallel()
	bounded := of("a", window("a", limit.FixedWindow, 2, 60))
	bounded.MaxNewKeysPerS = 1
	small := of("small", window("small", limit.FixedWindow, 2, 60))
	small.MaxCost = 1
	l := limiter(t, newClock(), bounded, small)
	for name, check := range map[string]tallygate.Check{
		"unknown domain":   {Domain: "none", Sets: []tallygate.Set{set("a", "k", 1)}},
		"missing identity": sets(tallygate.Set{Attributes: map[string]string{"plan": "a"}}),
		"a negative cost":  sets(set("a", "k", -1)),
		"above max_cost":   ask("small", "k", 2),
		"unknown rule":     ask("none", "k", 1),
		"nothing":          {},
	} {
		_, want := l.Check(context.Background(), check)
		if got := l.Valid(check); got == nil || want == nil || got.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	for range 3 {
		for _, key := range []string{"k1", "k2"} {
			if err := l.Valid(sets(set("a", key, 1))); err != nil {
				t.Error(err)
			}
		}
	}
	if v := mustCheck(t, l, sets(set("a", "k1", 2))); !v.Allow {
		t.Errorf("something was spent, or k1 is not new any more: %+v", v)
	}
	for _, r := range l.Stats().Rules {
		if r.NewKeysOverflowed != 0 {
			t.Errorf("%s: %d keys had no place", r.Rule, r.NewKeysOverflowed)
		}
	}
}
