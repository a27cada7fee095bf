package pressure_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/pressure"
)

const ms = time.Millisecond

// two rules that give way and one that does not.
func plans() []pressure.Rule {
	return []pressure.Rule{
		{ID: "paid", Priority: 500, Floor: 700},
		{ID: "free", Priority: 0, Floor: 300},
		{ID: "vip", Priority: 1_000, Floor: pressure.Whole},
	}
}

// answer has the upstream answer n times at now, every which-th with 503.
func answer(s *pressure.Stepper, now time.Duration, n, which int) {
	for i := range n {
		s.Answered(now, which > 0 && i%which == 0, ms)
	}
}

func millis(factors []pressure.Factor) []int64 {
	var out []int64
	for _, f := range factors {
		out = append(out, f.Milli)
	}
	return out
}

func TestWhatIsOverload(t *testing.T) {
	t.Parallel()
	const target = 100 * ms
	for _, tt := range []struct {
		name          string
		target        time.Duration
		refused, slow int
		all           int
		want          bool
	}{
		{"one of twenty refuses", 0, 1, 0, 20, true},
		{"one of nineteen is too little to tell", 0, 1, 0, 19, false},
		{"all of nineteen too", 0, 19, 0, 19, false},
		{"one of twenty-one is below a twentieth", 0, 1, 0, 21, false},
		{"two of forty", 0, 2, 0, 40, true},
		{"slow answers without a target", 0, 0, 40, 40, false},
		{"a twentieth is slow: the 95th percentile is not above", target, 0, 2, 40, false},
		{"more than a twentieth is slow", target, 0, 3, 40, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := pressure.New(tt.target)
			for i := range tt.all {
				took := target
				if i < tt.slow {
					took += ms
				}
				s.Answered(time.Second, i < tt.refused, took)
			}
			if got := s.Pressed(); got != tt.want {
				t.Errorf("overloaded %v, want %v", got, tt.want)
			}
		})
	}
}

func TestCutsAndGivesBack(t *testing.T) {
	t.Parallel()
	s := pressure.New(0)
	s.SetRules(0, plans())
	type state struct {
		at   time.Duration
		want []int64 // free, paid
	}
	var got [][]int64
	look := func(now time.Duration) { got = append(got, millis(s.Factors(now))) }
	var want [][]int64
	overloaded := []state{
		{0, []int64{800, 1_000}},
		{4_999 * ms, []int64{800, 1_000}},
		{5 * time.Second, []int64{640, 1_000}},
		{10 * time.Second, []int64{512, 1_000}},
		{15 * time.Second, []int64{409, 1_000}},
		{20 * time.Second, []int64{327, 1_000}},
		{25 * time.Second, []int64{300, 1_000}}, // the floor of the lowest priority
		{30 * time.Second, []int64{300, 800}},   // then the next one
		{35 * time.Second, []int64{300, 700}},
		{40 * time.Second, []int64{300, 700}}, // nothing is left to give
		{44 * time.Second, []int64{300, 700}},
	}
	for _, o := range overloaded {
		answer(s, o.at, 20, 20)
		look(o.at)
		want = append(want, o.want)
	}
	for _, c := range []state{
		{53_999 * ms, []int64{300, 700}}, // no overload any more, but not for ten seconds
		{58_999 * ms, []int64{300, 750}},
		{68_999 * ms, []int64{300, 800}},
		{108_999 * ms, []int64{300, 1_000}},
		{118_999 * ms, []int64{350, 1_000}},
		{time.Hour, []int64{1_000, 1_000}}, // all steps of a quiet time at once
	} {
		look(c.at)
		want = append(want, c.want)
	}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// offer offers a request of a rule every step from from to to and returns how many
// were admitted.
func offer(s *pressure.Stepper, rule string, from, to, step time.Duration) int {
	ids, n := []string{rule}, 0
	for now := from; now < to; now += step {
		if s.Admit(now, ids) {
			s.Passed(now, ids)
			n++
		}
	}
	return n
}

func TestAdmitsAPartOfWhatPassed(t *testing.T) {
	t.Parallel()
	s := pressure.New(0)
	s.SetRules(0, plans())
	// 100 a second pass; then four times as many are offered, and the upstream is
	// overloaded for one step.
	if got := offer(s, "free", 0, 10*time.Second, 10*ms); got != 1_000 {
		t.Fatalf("%d of 1000 passed before any overload", got)
	}
	answer(s, 10*time.Second, 20, 1)
	// 0.8 × 100 a second over four seconds, and one second at once.
	if got := offer(s, "free", 10*time.Second, 14*time.Second, 2500*time.Microsecond); got < 399 || got > 400 {
		t.Errorf("%d passed, want 400", got)
	}
	if got := offer(s, "vip", 10*time.Second, 14*time.Second, 10*ms); got != 400 {
		t.Errorf("%d of 400 passed of a rule that gives nothing", got)
	}
	if got := s.Shed(); got < 1_200 {
		t.Errorf("%d shed, want 1200", got)
	}
}

func TestARuleThatJustBeganIsNotShut(t *testing.T) {
	t.Parallel()
	s := pressure.New(0)
	s.SetRules(0, plans())
	answer(s, 20*time.Second, 20, 1)
	if got := offer(s, "free", 20*time.Second, 24*time.Second, 100*ms); got < 3 || got > 4 {
		t.Errorf("%d passed in four seconds, want about 0.8 a second", got)
	}
}

func TestWhatADenialGivesBack(t *testing.T) {
	t.Parallel()
	s := pressure.New(0)
	s.SetRules(0, plans())
	answer(s, 20*time.Second, 20, 1)
	ids := []string{"free", "paid", "vip", "unknown"}
	for range 100 {
		if !s.Admit(20*time.Second, ids) {
			t.Fatal("a denied request used up the place of the next one")
		}
		s.Return(ids)
	}
	if !s.Admit(20*time.Second, ids) || s.Admit(20*time.Second, ids) {
		t.Error("the bucket does not hold exactly one request")
	}
}

func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	s := pressure.New(0)
	s.SetRules(0, []pressure.Rule{{ID: "a", Floor: 500}, {ID: "b", Floor: 500}})
	answer(s, 20*time.Second, 20, 1)
	if !s.Admit(20*time.Second, []string{"b"}) {
		t.Fatal("the first is not admitted")
	}
	if s.Admit(20*time.Second, []string{"a", "b"}) {
		t.Fatal("b was empty")
	}
	if !s.Admit(20*time.Second, []string{"a"}) {
		t.Error("a paid for what b refused")
	}
}

func TestNewRulesKeepFactorAndCounts(t *testing.T) {
	t.Parallel()
	s := pressure.New(0)
	s.SetRules(0, plans())
	offer(s, "free", 0, 10*time.Second, 10*ms)
	answer(s, 10*time.Second, 20, 1)
	s.SetRules(10*time.Second, append(plans(), pressure.Rule{ID: "new", Priority: 0, Floor: 100}))
	if got := millis(s.Factors(10 * time.Second)); !slices.Equal(got, []int64{800, 1_000}) {
		t.Errorf("factors %v after a change of another rule", got)
	}
	if got := offer(s, "free", 10*time.Second, 14*time.Second, 2500*time.Microsecond); got < 399 || got > 400 {
		t.Errorf("%d passed, want 400", got)
	}
	if got := offer(s, "new", 10*time.Second, 14*time.Second, 10*ms); got != 400 {
		t.Errorf("%d of 400 passed of a rule that is new", got)
	}
	s.SetRules(14*time.Second, nil)
	if s.Active() || len(s.Factors(14*time.Second)) != 0 || !s.Admit(14*time.Second, []string{"free"}) {
		t.Error("rules that are gone still cut")
	}
}

// Whatever happens, a factor is between floor and whole, a priority is cut only when
// all below it have nothing left, and a rule whose factor stands admits no more than
// that part of what passed before.
func TestInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := pressure.New(50 * ms)
		n := rapid.IntRange(1, 4).Draw(t, "rules")
		floors := make([]int64, n)
		list := make([]pressure.Rule, n)
		for i := range list {
			floors[i] = rapid.Int64Range(50, 999).Draw(t, "floor")
			list[i] = pressure.Rule{ID: string(rune('a' + i)), Priority: i * 10, Floor: floors[i]}
		}
		s.SetRules(0, list)
		var now time.Duration
		cut := false
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += time.Duration(rapid.Int64Range(0, 12_000).Draw(t, "ms")) * ms
			before := s.Factors(now)
			switch rapid.IntRange(0, 2).Draw(t, "event") {
			case 0:
				answer(s, now, rapid.IntRange(1, 60).Draw(t, "answers"), rapid.IntRange(0, 40).Draw(t, "refused"))
			case 1:
				s.Answered(now, false, time.Duration(rapid.IntRange(0, 100).Draw(t, "took"))*ms)
			default:
				rule := rapid.IntRange(0, n-1).Draw(t, "rule")
				burst := rapid.IntRange(1, 50).Draw(t, "burst")
				for range burst {
					if ids := []string{list[rule].ID}; s.Admit(now, ids) {
						s.Passed(now, ids)
					} else if before[rule].Milli == pressure.Whole {
						t.Fatal("shed without a cut")
					}
				}
			}
			factors := s.Factors(now)
			for i, f := range factors {
				if f.Milli < floors[i] || f.Milli > pressure.Whole {
					t.Fatalf("factor %d is not within %d and the whole", f.Milli, floors[i])
				}
				if min(f.Milli, before[i].Milli) < pressure.Whole { // the look before may have cut
					cut = true
				}
				if f.Milli == pressure.Whole {
					continue
				}
				for j := range i {
					if factors[j].Milli != floors[j] {
						t.Fatalf("priority %d is cut while %d is at %d of %d", i, j, factors[j].Milli, floors[j])
					}
				}
			}
			if s.Shed() > 0 && !cut {
				t.Fatal("shed without overload")
			}
		}
	})
}

// The bucket is exact: over any time a cut rule admits at most its part, and one
// second's worth at once.
func TestACutIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := pressure.New(0)
		s.SetRules(0, []pressure.Rule{{ID: "r", Floor: 50}})
		per := time.Duration(rapid.IntRange(1, 200).Draw(t, "every ms")) * ms
		base := offer(s, "r", 0, 10*time.Second, per)
		answer(s, 10*time.Second, 20, 1)
		now, got := 10*time.Second, 0
		end := now + 5*time.Second // the next step could be then
		for now < end {
			got += offer(s, "r", now, now+1, 1)
			now += time.Duration(rapid.IntRange(1, 40).Draw(t, "ms")) * ms
		}
		// 0.8 of base in ten seconds, over six of them.
		if most := base*8*6/100 + 1; got > most {
			t.Fatalf("%d passed of %d in ten seconds before, at most %d may", got, base, most)
		}
	})
}
