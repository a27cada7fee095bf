package tallygate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// of makes a rule match a plan.
func of(plan string, r rules.Rule) rules.Rule {
	r.CoversAll, r.Match = false, map[string]string{"plan": plan}
	return r
}

// set is one of a plan's key.
func set(plan, key string, cost int64) tallygate.Set {
	return tallygate.Set{Attributes: map[string]string{"plan": plan, "api_key": key}, Cost: cost}
}

func sets(list ...tallygate.Set) tallygate.Check { return tallygate.Check{Sets: list} }

func TestSetsAreDecidedTogether(t *testing.T) {
	t.Parallel()
	a, b := of("a", bucket("a", 1, 3600, 5)), of("b", bucket("b", 1, 3600, 2))
	l := limiter(t, newClock(), a, b, of("a", bucket("a-too", 1, 3600, 5)))
	v := mustCheck(t, l, sets(set("a", "k", 1), set("none", "k", 1), set("b", "k", 2)))
	var of []int
	for _, e := range v.Entries {
		of = append(of, e.Set)
	}
	if len(of) != 3 || of[0] != 0 || of[1] != 0 || of[2] != 2 || !v.Allow {
		t.Fatalf("entries of sets %v, want 0 0 2: %+v", of, v)
	}
	v = mustCheck(t, l, sets(set("a", "k", 1), set("b", "k", 1)))
	if v.Allow || v.DeniedBy != "b" {
		t.Fatalf("%+v, want a denial by b", v)
	}
	if v = mustCheck(t, l, sets(set("a", "k", 4))); !v.Allow || v.Entries[0].Remaining != 0 {
		t.Errorf("the denial spent something: %+v", v)
	}
}

func TestSetsSpendBeyondMaxCost(t *testing.T) {
	t.Parallel()
	small := of("a", bucket("r", 1, 3600, 10))
	small.MaxCost = 1
	l := limiter(t, newClock(), small)
	for _, test := range []struct {
		cost  int64
		allow bool
		why   tallygate.Reason
	}{
		{7, true, ""},
		{4, false, tallygate.ReasonOverLimit},
		{11, false, tallygate.ReasonCostExceed},
		{limit.MaxCost + 1, false, tallygate.ReasonCostExceed},
		{1 << 62, false, tallygate.ReasonCostExceed},
		{3, true, ""},
	} {
		v := mustCheck(t, l, sets(set("a", "k", test.cost)))
		if e := v.Entries[0]; v.Allow != test.allow || e.Reason != test.why {
			t.Errorf("cost %d: %+v", test.cost, v)
		}
	}
}

func TestSetsOfOneBucketAddUp(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), of("a", bucket("r", 1, 3600, 10)))
	if v := mustCheck(t, l, sets(set("a", "k", 6), set("a", "k", 5))); v.Allow {
		t.Errorf("11 of 10: %+v", v)
	}
	if v := mustCheck(t, l, sets(set("a", "k", 6), set("a", "k", 4))); !v.Allow || v.Entries[1].Remaining != 0 {
		t.Errorf("10 of 10: %+v", v)
	}
	// The sum may not overflow, nor be taken for a small cost.
	if v := mustCheck(t, l, sets(set("a", "k", limit.MaxCost), set("a", "k", limit.MaxCost), set("a", "k", 1<<62))); v.Allow {
		t.Errorf("far too much: %+v", v)
	}
}

// What only reports refuses nothing, however much it is told in all, and lets nothing
// pass that stands beside it.
func TestSetsReportTooMuch(t *testing.T) {
	t.Parallel()
	clock := newClock()
	report := of("a", window("a", limit.FixedWindow, 10, 60))
	next := report
	report.Counting = rules.CountingReport
	next.Counting = rules.CountingReport
	for name, set := range map[string]rules.Set{
		"live":   {Rules: []rules.Rule{report, of("b", window("b", limit.FixedWindow, 1, 60))}},
		"canary": onTrial(next, rules.StageCanary, 100, of("a", window("a", limit.FixedWindow, 10, 60)), of("b", window("b", limit.FixedWindow, 1, 60))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := withStore(t, clock, clock.Memory(), set)
			huge := tallygate.Set{Attributes: map[string]string{"plan": "a", "api_key": "k"}, Cost: 4_000_000_000}
			one := tallygate.Set{Attributes: map[string]string{"plan": "b", "api_key": "k"}}
			for i, want := range []bool{true, false, false} {
				v := mustCheck(t, l, sets(huge, huge, one))
				if v.Allow != want || !v.Entries[0].Allow || !v.Entries[1].Allow {
					t.Errorf("check %d: got %+v, want allow %v, and no denial by what only reports", i, v, want)
				}
			}
			if got := l.Stats().Rules[ruleAt(t, l, "a")].Spent; got != 3*limit.MaxCost {
				t.Errorf("counted %d, want as much as one op may have for each check, %d", got, 3*limit.MaxCost)
			}
		})
	}
}

func TestGiveBack(t *testing.T) {
	t.Parallel()
	back := set("a", "k", 3)
	back.Back = true
	for name, s := range map[string]store.Store{"in process": newClock().Memory(), "behind a pod": behind{newClock().Memory()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exact := of("a", window("r", limit.FixedWindow, 10, 3600))
			exact.Counting = rules.CountingExact
			l := withStore(t, newClock(), s, rules.Set{Rules: []rules.Rule{exact}})
			defer func() { _ = l.Close() }()
			mustCheck(t, l, sets(set("a", "k", 10)))
			if v := mustCheck(t, l, sets(set("a", "k", 3))); v.Allow {
				t.Fatalf("an empty window allows: %+v", v)
			}
			if v := mustCheck(t, l, sets(back)); !v.Allow || v.Entries[0].Remaining != 3 {
				t.Errorf("given back: %+v", v)
			}
			if v := mustCheck(t, l, sets(set("a", "k", 3))); !v.Allow {
				t.Errorf("what was given back is not there: %+v", v)
			}
			if got := l.Stats().Rules; len(got) == 0 || got[ruleAt(t, l, "r")].Spent != 13 {
				t.Errorf("spent %+v, want 13: giving back is no negative spend", got)
			}
		})
	}
}

// ruleAt finds a rule's figures.
func ruleAt(t *testing.T, l *tallygate.Limiter, id string) int {
	t.Helper()
	for i, r := range l.Stats().Rules {
		if r.Rule == id {
			return i
		}
	}
	t.Fatalf("no figures of %s", id)
	return -1
}

// behind hides that a store is in this process: the limiter puts a pod before it.
type behind struct{ memory *store.MemoryStore }

func (b behind) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	return b.memory.Take(ctx, ops)
}

// A lease must not be spent by giving back, nor a remembered denial outlive it.
func TestGiveBackBehindLeases(t *testing.T) {
	t.Parallel()
	for _, counting := range []rules.Counting{rules.CountingLease, rules.CountingAsync, rules.CountingLocal} {
		t.Run(string(counting), func(t *testing.T) {
			t.Parallel()
			r := of("a", window("r", limit.FixedWindow, 10, 3600))
			r.Counting = counting
			l := withStore(t, newClock(), behind{newClock().Memory()}, rules.Set{Rules: []rules.Rule{r}})
			defer func() { _ = l.Close() }()
			back := set("a", "k", 2)
			back.Back = true
			mustCheck(t, l, sets(set("a", "k", 10)))
			mustCheck(t, l, sets(set("a", "k", 1))) // denied, and remembered
			deadline := time.Now().Add(10 * time.Second)
			for mustCheck(t, l, sets(back)).Entries[0].Remaining < 2 { // async tells a little later
				if time.Now().After(deadline) {
					t.Fatal("nothing was given back")
				}
			}
			if v := mustCheck(t, l, sets(set("a", "k", 1))); !v.Allow {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestOwnRule(t *testing.T) {
	t.Parallel()
	own, err := rules.Own(rules.Rule{
		ID: "3-per-60s", CoversAll: true, Identity: []string{"x"}, Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: 3, WindowS: 60},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, newClock(), of("a", bucket("r", 1, 3600, 10)))
	check := sets(tallygate.Set{Own: rules.Bound{Rule: own, Key: "k"}, Attributes: map[string]string{"plan": "a", "api_key": "k"}, Cost: 2})
	if v := mustCheck(t, l, check); !v.Allow || len(v.Entries) != 1 || v.Entries[0].Rule != "~3-per-60s" || v.Entries[0].Remaining != 1 {
		t.Errorf("%+v", v)
	}
	if v := mustCheck(t, l, check); v.Allow {
		t.Errorf("4 of 3: %+v", v)
	}
	for _, r := range l.Stats().Rules {
		if r.Rule == "r" && r.Spent != 0 {
			t.Errorf("counted under rule r: %+v", r)
		}
	}
	if _, err := rules.Own(rules.Rule{ID: "no name"}); err == nil {
		t.Error("a rule with faults compiles")
	}
}

// A rule that supersedes another does so for the whole request.
func TestSetsSupersede(t *testing.T) {
	t.Parallel()
	vip := of("b", bucket("vip", 1, 3600, 5))
	vip.Supersedes = []string{"basic"}
	gold := of("c", bucket("gold", 1, 3600, 5))
	gold.Supersedes = []string{"vip"}
	l := limiter(t, newClock(), of("a", bucket("basic", 1, 3600, 5)), vip, gold)
	for name, test := range map[string]struct {
		plans []string
		want  string
	}{
		"alone":                              {[]string{"a"}, "basic"},
		"lifted by another set":              {[]string{"a", "b", "a"}, "vip"},
		"one that is lifted lifts nothing":   {[]string{"a", "b", "c"}, "basic gold"},
		"the same, whatever the sets' order": {[]string{"c", "b", "a"}, "gold basic"},
		"nothing is lifted where none lifts": {[]string{"c", "a"}, "gold basic"},
	} {
		var list []tallygate.Set
		for _, plan := range test.plans {
			list = append(list, set(plan, "k", 1))
			list[len(list)-1].Cost, list[len(list)-1].Look = 0, true
		}
		var got []string
		for _, e := range mustCheck(t, l, sets(list...)).Entries {
			got = append(got, e.Rule)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

func TestSetsRefused(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), of("a", bucket("r", 1, 3600, 10)))
	both := set("a", "k", 1)
	both.Look = true
	many := make([]tallygate.Set, tallygate.MaxSets+1)
	for name, test := range map[string]struct {
		check tallygate.Check
		code  tallygate.Code
		says  string
	}{
		"with entries":   {tallygate.Check{Sets: many[:1], Entries: []tallygate.Entry{{}}}, tallygate.CodeBadRequest, "sets, or entries"},
		"with a cost":    {tallygate.Check{Sets: many[:1], Cost: 1}, tallygate.CodeBadRequest, "own cost"},
		"too many":       {sets(many...), tallygate.CodeBadRequest, "129 sets are more than 128"},
		"negative":       {sets(set("a", "k", -1)), tallygate.CodeInvalidCost, "-1"},
		"a look's cost":  {sets(both), tallygate.CodeInvalidCost, "look"},
		"no identity":    {sets(set("x", "k", 1), set("a", "", 1)), tallygate.CodeMissingIdentity, "/sets/1"},
		"unknown domain": {tallygate.Check{Domain: "x", Sets: many[:1]}, tallygate.CodeUnknownDomain, "x"},
	} {
		if _, err := l.Check(context.Background(), test.check); tallygate.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var e *tallygate.Error
	if _, err := l.Check(context.Background(), sets(tallygate.Set{Own: rules.Bound{Rule: compile(t, epoch, rules.Set{Rules: []rules.Rule{bucket("r", 1, 1, 1)}}).Rule("r"), Key: strings.Repeat("k", 4097)}})); !errors.As(err, &e) || e.Code != tallygate.CodeTooLarge {
		t.Errorf("a long key: %v", err)
	}
}

func TestSetsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("counts allocations")
	}
	l := limiter(t, newClock(), of("a", bucket("a", 1_000_000, 1, 1_000_000)), of("b", bucket("b", 1_000_000, 1, 1_000_000)))
	check := sets(set("a", "k", 1), set("b", "k", 1))
	var v tallygate.Verdict
	if n := testing.AllocsPerRun(1000, func() { _ = l.Decide(context.Background(), check, &v) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A reservation over sets gives back at once, and counts only what it sets aside. A rule
// of the caller's own is none that a commit could find.
func TestSetsReserve(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), of("a", bucket("a", 1, 3600, 10)))
	back := set("a", "used", 2)
	back.Back = true
	mustCheck(t, l, sets(set("a", "used", 5)))
	if v, r, err := l.Reserve(context.Background(), sets(back), "", 0); err != nil || !v.Allow || r != "" {
		t.Errorf("%+v, %q, %v, want an allow with nothing to settle", v, r, err)
	}
	v, r := mustReserve(t, l, sets(set("a", "k", 4), back), "")
	if v.Entries[0].Remaining != 6 || v.Entries[1].Remaining != 9 {
		t.Errorf("%+v, want 6 and 9 left", v)
	}
	mustSettle(t, tallygate.SettlementCommitted)(l.Commit(context.Background(), r, 1))
	wantRemaining(t, l, "a", "k", 9)
	if got := l.Stats().Rules[ruleAt(t, l, "a")]; got.Spent != 9 || got.Reservations != (tallygate.ReservationStats{Reserved: 1, Committed: 1}) {
		t.Errorf("%+v, want 5 and 4 spent, and one reservation", got)
	}

	own, err := rules.Own(bucket("mine", 1, 3600, 5))
	if err != nil {
		t.Fatal(err)
	}
	mine := sets(set("a", "k", 1), tallygate.Set{Own: rules.Bound{Rule: own, Key: "k"}})
	_, _, err = l.Reserve(context.Background(), mine, "", 0)
	if e, ok := errors.AsType[*tallygate.Error](err); !ok || e.Code != tallygate.CodeNotReservable || e.Rule != "~mine" || e.Field != "/sets/1" {
		t.Errorf("%v, want not_reservable of rule ~mine at /sets/1", err)
	}
	wantRemaining(t, l, "a", "k", 9)
}

// Nothing is kept of a caller's own rule from check to check: it bounds no new keys.
func TestSetsOwn_newKeys(t *testing.T) {
	t.Parallel()
	r := bucket("mine", 1, 3600, 5)
	r.MaxNewKeysPerS = 1
	own, err := rules.Own(r)
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, newClock(), bucket("a", 1, 3600, 10))
	for _, key := range []string{"k1", "k2", "k3"} {
		if v := mustCheck(t, l, sets(tallygate.Set{Own: rules.Bound{Rule: own, Key: key}})); v.Entries[0].Remaining != 4 {
			t.Errorf("%s: %+v, want a bucket of its own", key, v)
		}
	}
}
