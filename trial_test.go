package tallygate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// onTrial is a set of rules of which the first has a candidate in a stage.
func onTrial(candidate rules.Rule, stage rules.Stage, percent int, list ...rules.Rule) rules.Set {
	return rules.Set{Rules: list, Candidates: []rules.Candidate{{Rule: candidate, Stage: stage, Percent: percent, SinceMS: epoch.UnixMilli()}}}
}

// sums are the checks of a rule's trial.
func sums(l *tallygate.Limiter, rule string) tallygate.TrialStats {
	for _, r := range l.Stats().Rules {
		if r.Rule == rule {
			return r.Trials
		}
	}
	return tallygate.TrialStats{}
}

// count adds what both versions said.
func count(s *tallygate.TrialStats, live, candidate bool) {
	switch {
	case live && candidate:
		s.BothAllowed++
	case candidate:
		s.LiveDenied++
	case live:
		s.CandidateDenied++
	default:
		s.BothDenied++
	}
}

// In stage shadow the live version decides, in canary the candidate's, each as if it
// were alone; both spend in every check.
func TestTrial_stages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stage   rules.Stage
		percent int
		mode    rules.Mode
		passes  int // of 10 checks; the live limit is 6, the candidate's 4
		limit   int64
	}{
		"shadow":             {rules.StageShadow, 0, "", 6, 6},
		"canary everywhere":  {rules.StageCanary, 100, "", 4, 4},
		"canary elsewhere":   {rules.StageCanary, 1, "", 6, 6}, // 1 % of pods is not this one
		"a rule in shadow":   {rules.StageShadow, 0, rules.ModeShadow, 10, 6},
		"a shadow in canary": {rules.StageCanary, 100, rules.ModeShadow, 10, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			live, next := bucket("r", 1, 3600, 6), bucket("r", 1, 3600, 4)
			live.Mode = c.mode
			l := withStore(t, clock, clock.Memory(), onTrial(next, c.stage, c.percent, live))
			if got := allowed(t, l, 10, ask("r", "k", 1)); got != c.passes {
				t.Errorf("%d of 10 passed, want %d", got, c.passes)
			}
			if want := (tallygate.TrialStats{BothAllowed: 4, CandidateDenied: 2, BothDenied: 4}); sums(l, "r") != want {
				t.Errorf("%+v, want %+v", sums(l, "r"), want)
			}
			v := mustCheck(t, l, ask("r", "k", 1))
			if e := v.Entries[0]; e.Rule != "r" || e.Limit != c.limit || e.Allow || v.Allow != (c.mode != "") {
				t.Errorf("%+v, want rule r by the limit of %d", v, c.limit)
			}
		})
	}
}

// Where another enforced entry denies, neither version spends, and nothing is counted.
func TestTrial_anotherEntryDenies(t *testing.T) {
	t.Parallel()
	clock := newClock()
	l := withStore(t, clock, clock.Memory(), onTrial(bucket("r", 1, 3600, 20), rules.StageShadow, 0, bucket("r", 1, 3600, 10), bucket("other", 1, 3600, 3)))
	if got := allowed(t, l, 8, both("k", "r", "other")); got != 3 {
		t.Fatalf("%d passed, want 3", got)
	}
	if got := allowed(t, l, 8, ask("r", "k", 1)); got != 7 {
		t.Errorf("%d passed, want the live rule's other 7", got)
	}
	want := tallygate.TrialStats{BothAllowed: 10, LiveDenied: 1}
	if got := sums(l, "r"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Two rules with a trial each: a denial of one keeps both versions of the other from
// spending, and is the first one's own to count.
func TestTrial_two(t *testing.T) {
	t.Parallel()
	clock := newClock()
	set := onTrial(bucket("a", 1, 3600, 2), rules.StageShadow, 0, bucket("a", 1, 3600, 4), bucket("b", 1, 3600, 10))
	set.Candidates = append(set.Candidates, rules.Candidate{Rule: bucket("b", 1, 3600, 1), Stage: rules.StageShadow, SinceMS: 1})
	l := withStore(t, clock, clock.Memory(), set)
	if got := allowed(t, l, 6, both("k", "a", "b")); got != 4 {
		t.Errorf("%d passed, want 4", got)
	}
	if got, want := sums(l, "a"), (tallygate.TrialStats{BothAllowed: 2, CandidateDenied: 2, BothDenied: 2}); got != want {
		t.Errorf("a: %+v, want %+v", got, want)
	}
	if got, want := sums(l, "b"), (tallygate.TrialStats{BothAllowed: 1, CandidateDenied: 3}); got != want {
		t.Errorf("b: %+v, want %+v", got, want)
	}
}

// A cost above a version's max_cost is its denial. Where that is the version in force,
// the check is refused, and no bucket asked.
func TestTrial_maxCost(t *testing.T) {
	t.Parallel()
	clock := newClock()
	live, next := bucket("r", 1, 3600, 100), bucket("r", 1, 3600, 100)
	live.MaxCost, next.MaxCost = 10, 5
	l := withStore(t, clock, clock.Memory(), onTrial(next, rules.StageShadow, 0, live))
	mustCheck(t, l, ask("r", "k", 8))
	mustFail(t, l, ask("r", "k", 11), tallygate.CodeInvalidCost)
	if got, want := sums(l, "r"), (tallygate.TrialStats{CandidateDenied: 1, BothDenied: 1}); got != want {
		t.Errorf("shadow: %+v, want %+v", got, want)
	}
	l = withStore(t, clock, clock.Memory(), onTrial(next, rules.StageCanary, 100, live))
	if err := mustFail(t, l, ask("r", "k", 8), tallygate.CodeInvalidCost); err.Rule != "r" {
		t.Errorf("refused by %q", err.Rule)
	}
	if got, want := sums(l, "r"), (tallygate.TrialStats{CandidateDenied: 1}); got != want {
		t.Errorf("canary: %+v, want %+v", got, want)
	}
	live.Mode = rules.ModeShadow
	l = withStore(t, clock, clock.Memory(), onTrial(next, rules.StageCanary, 100, live))
	if v := mustCheck(t, l, ask("r", "k", 8)); !v.Allow || v.Entries[0].Reason != tallygate.ReasonCostExceed {
		t.Errorf("%+v, want what a shadow shows", v)
	}
	if got, want := sums(l, "r"), (tallygate.TrialStats{CandidateDenied: 1}); got != want {
		t.Errorf("canary of a shadow: %+v, want %+v", got, want)
	}
}

// Looks and rules that only report are no trials; entries of one bucket are one.
func TestTrial_what(t *testing.T) {
	t.Parallel()
	clock := newClock()
	report := bucket("r", 1, 3600, 2)
	report.Counting = rules.CountingReport
	l := withStore(t, clock, clock.Memory(), onTrial(report, rules.StageShadow, 0, bucket("r", 1, 3600, 2)))
	mustCheck(t, l, ask("r", "k", 1))
	if got := sums(l, "r"); got != (tallygate.TrialStats{}) {
		t.Errorf("%+v of a candidate that only reports", got)
	}
	l = withStore(t, clock, clock.Memory(), onTrial(bucket("r", 1, 3600, 3), rules.StageShadow, 0, bucket("r", 1, 3600, 8)))
	mustCheck(t, l, look("r", "k"))
	mustCheck(t, l, both("k", "r", "r"))
	mustCheck(t, l, both("k", "r", "r"))
	if got, want := sums(l, "r"), (tallygate.TrialStats{BothAllowed: 1, CandidateDenied: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A trial is told by slice and key, keys as they may leave the pod.
func TestTrials(t *testing.T) {
	t.Parallel()
	clock := newClock()
	set := onTrial(bucket("r", 1, 3600, 1), rules.StageShadow, 0, bucket("r", 1, 3600, 9))
	for name, c := range map[string]struct {
		show func(domain, key string) string
		want string
	}{
		"a digest":        {nil, "d0f4e1ea55b1f4a5"},
		"as the pod does": {func(domain, key string) string { return domain + "/" + key }, "default/k"},
	} {
		l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(compile(t, clock.Now(), set)), Store: clock.Memory(), Now: clock.Now, ShowKey: c.show})
		if err != nil {
			t.Fatal(err)
		}
		allowed(t, l, 3, ask("r", "k", 1))
		if got := l.Trials(0, clock.Now()); got != nil {
			t.Errorf("%s: %+v before the slice has ended", name, got)
		}
		got := l.Trials(0, clock.Now().Add(10*time.Second))
		if len(got) != 1 || got[0].Rule != "r" || got[0].SinceMS != epoch.UnixMilli() || len(got[0].Slices) != 1 {
			t.Fatalf("%s: %+v, want one slice of r", name, got)
		}
		s := got[0].Slices[0]
		if s.StartMS != epoch.UnixMilli() || s.Checks != 3 || s.CandidateDenied != 2 || s.LiveDenied != 0 || len(s.Keys) != 1 || s.Keys[0].Checks != 3 {
			t.Errorf("%s: %+v", name, s)
		}
		if key := s.Keys[0].Key; key != c.want && !(c.show == nil && len(key) == 16 && key != "k") {
			t.Errorf("%s: the key is shown as %q, want %q", name, key, c.want)
		}
	}
}

// Of many pods about the percentage enforces the candidate, each pod always alike.
func TestTrial_canaryPods(t *testing.T) {
	t.Parallel()
	clock := newClock()
	set := onTrial(bucket("r", 1, 3600, 1), rules.StageCanary, 20, bucket("r", 1, 3600, 9))
	snapshot := tallygate.Fixed(compile(t, clock.Now(), set))
	limit := func(pod string) int64 {
		l, err := tallygate.New(tallygate.Config{Rules: snapshot, Store: clock.Memory(), Now: clock.Now, Pod: pod})
		if err != nil {
			t.Fatal(err)
		}
		return mustCheck(t, l, ask("r", "k", 1)).Entries[0].Limit
	}
	canaries := 0
	for i := range 500 {
		pod := fmt.Sprintf("gateway-%d", i)
		got := limit(pod)
		if got == 1 {
			canaries++
		}
		if again := limit(pod); again != got {
			t.Fatalf("%s has a limit of %d, then of %d", pod, got, again)
		}
	}
	if canaries < 70 || canaries > 130 {
		t.Errorf("%d of 500 pods are canaries, want about 100", canaries)
	}
}

// A store that does not answer the second time changes nothing of the verdict, and
// the trial is not counted.
func TestTrial_storeAway(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"the second time", "from the start"} {
		clock := newClock()
		s := &flaky{store: clock.Memory(), fails: map[string]bool{"r~candidate": true, "r": name == "from the start"}}
		live, next := bucket("r", 1, 3600, 5), bucket("r", 1, 3600, 1)
		live.Counting, next.Counting, live.MaxCost = rules.CountingExact, rules.CountingExact, 1
		l := withStore(t, clock, s, onTrial(next, rules.StageShadow, 0, live))
		t.Cleanup(func() { _ = l.Close() })
		v := mustCheck(t, l, ask("r", "k", 1))
		if degraded := name == "from the start"; !v.Allow || (v.Degraded != "") != degraded {
			t.Errorf("%s: %+v", name, v)
		}
		if got := sums(l, "r"); got != (tallygate.TrialStats{}) {
			t.Errorf("%s: %+v is counted", name, got)
		}
	}
}

// The fallback counts for the rule, whichever version is in force.
func TestTrial_failsClosed(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := &flaky{store: clock.Memory(), fails: map[string]bool{"r~candidate": true, "r": true}}
	live, next := bucket("r", 1, 3600, 5), bucket("r", 1, 3600, 5)
	next.FailMode = rules.FailClosed
	l := withStore(t, clock, s, onTrial(next, rules.StageCanary, 100, live))
	t.Cleanup(func() { _ = l.Close() })
	if err := mustFail(t, l, ask("r", "k", 1), tallygate.CodeStoreUnavailable); err.Rule != "r" {
		t.Errorf("refused by %q, want r", err.Rule)
	}
	for _, r := range l.Stats().Rules {
		if r.Rule != "r" || r.FailClosed != 1 {
			t.Errorf("%+v, want it counted for r", r)
		}
	}
}

// Leases of both versions are the rule's, and what is tried is answered from leases.
func TestTrial_leases(t *testing.T) {
	live, next := bucket("r", 1000, 1, 1000), bucket("r", 1000, 1, 1000)
	live.MaxCost, next.MaxCost = 1, 1
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: "redis://" + redistest.SharedStandalone(t).Addr, Tags: identity.NewHasher(nil), Deadline: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := tallygate.New(tallygate.Config{
		Rules: tallygate.Fixed(compile(t, time.Now(), onTrial(next, rules.StageShadow, 0, live))), Store: s, Deadline: patient,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const checks = 400
	passed := allowed(t, l, checks, ask("r", newKey(), 1))
	stats := l.Stats()
	if got := sums(l, "r"); got.BothAllowed != checks || passed != checks {
		t.Errorf("%d passed; %+v, want all allowed by both", passed, got)
	}
	if stats.Store.Calls >= checks {
		t.Errorf("%d calls of the store for %d checks, want leases to answer for both versions", stats.Store.Calls, checks)
	}
	for _, r := range stats.Rules {
		if r.Rule != "r" || r.Leases.Granted == 0 {
			t.Errorf("%+v, want all leases to be those of r", r)
		}
	}
}

// The second version is asked in what is left of the check's time, and its failure is
// nobody's but the trial's.
func TestTrial_sharesTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, next := bucket("r", 1, 3600, 5), bucket("r", 1, 3600, 5)
		live.Counting, next.Counting = rules.CountingExact, rules.CountingExact
		set := onTrial(next, rules.StageShadow, 0, live)
		l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(compile(t, time.Now(), set)), Store: slow{}, Deadline: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		began := time.Now()
		v := mustCheck(t, l, ask("r", "k", 1))
		if took := time.Since(began); !v.Allow || v.Degraded != "" || took != 10*time.Second {
			t.Errorf("%+v after %v, want the live version's answer after 10 s", v, took)
		}
		if got := sums(l, "r"); got != (tallygate.TrialStats{}) {
			t.Errorf("%+v is counted", got)
		}
	})
}

// slow is a store elsewhere that takes 6 s for a live rule and has no end for a candidate.
type slow struct{}

func (slow) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if ops[0].Bucket.Rule == "r" {
		time.Sleep(6 * time.Second)
		return []store.Grant{{OK: true, NowMS: 1, Limit: ops[0].Limit}}, nil
	}
	<-ctx.Done()
	return nil, &store.StoreError{Kind: store.Timeout, Sent: true, Err: ctx.Err()}
}

// flaky is a store elsewhere that does not answer for some rules.
type flaky struct {
	store *store.MemoryStore
	fails map[string]bool
}

func (f *flaky) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	for i := range ops {
		if f.fails[ops[i].Bucket.Rule] {
			return nil, givenUp()
		}
	}
	return f.store.Take(ctx, ops)
}

// Random checks of a rule on trial, and of another: each version answers and spends as
// if it were alone and had those checks that the other rule does not deny.
func TestTrial_agreesWithTwoAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c, d := newClock(), drawDuel(rt)
		if err := d.run(c.Now, c.Memory, c.Memory(), c.Advance); err != nil {
			rt.Fatal(err)
		}
	})
}

// The same through a pod, which remembers denials and joins calls. What the store did
// not say of the other rule, since the trial's had denied, is taken for a yes.
func TestTrial_agreesThroughAPod(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := drawDuel(rt)
		d.remote = true
		var err error
		synctest.Test(t, func(*testing.T) {
			memory := func() *store.MemoryStore { return store.NewMemoryStore(store.MemoryConfig{}) }
			err = d.run(time.Now, memory, &elsewhere{store: memory()}, time.Sleep)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// duel is a rule and its candidate, in a set with another rule, and what is asked.
type duel struct {
	live, next, other rules.Rule
	stage             rules.Stage
	remote            bool
	steps             []duelStep
}

type duelStep struct {
	wait  time.Duration
	key   string
	cost  int64
	other bool
}

func drawDuel(t *rapid.T) *duel {
	version := func(name string) rules.Rule {
		n := rapid.Int64Range(3, 12).Draw(t, name+" limit")
		r := bucket("r", 1, 60, n)
		if a := rapid.SampledFrom([]limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.SlidingLog, limit.FixedWindow}).Draw(t, name); a != limit.TokenBucket {
			r = window("r", a, n, 300)
		}
		r.MaxCost = 3
		if r.Algorithm != limit.SlidingLog {
			r.Counting = rapid.SampledFrom([]rules.Counting{rules.CountingExact, rules.CountingLease}).Draw(t, name+" counting")
		}
		return r
	}
	d := &duel{live: version("live"), next: version("candidate"), other: bucket("other", 1, 90, 8)}
	d.stage = rapid.SampledFrom([]rules.Stage{rules.StageShadow, rules.StageCanary}).Draw(t, "stage")
	if rapid.Bool().Draw(t, "rule in shadow") {
		d.live.Mode = rules.ModeShadow
	}
	for range rapid.IntRange(1, 40).Draw(t, "checks") {
		d.steps = append(d.steps, duelStep{
			wait:  time.Duration(rapid.SampledFrom([]int{0, 0, 0, 50, 3_000, 40_000}).Draw(t, "ms")) * time.Millisecond,
			key:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"),
			cost:  rapid.Int64Range(1, 3).Draw(t, "cost"),
			other: rapid.Bool().Draw(t, "with the other"),
		})
	}
	return d
}

// limiters are the one under test, and one for each rule alone.
func (d *duel) limiters(now func() time.Time, memory func() *store.MemoryStore, s store.Store) (list [4]*tallygate.Limiter, err error) {
	live := d.live
	live.Mode = ""
	for i, set := range []rules.Set{
		onTrial(d.next, d.stage, 100, d.live, d.other), {Rules: []rules.Rule{live}}, {Rules: []rules.Rule{d.next}}, {Rules: []rules.Rule{d.other}},
	} {
		snapshot, problems := rules.Compile(nil, set, 1, now())
		if err := problems.Err(); err != nil {
			return list, err
		}
		counts := s
		if i > 0 {
			counts = memory()
		}
		if list[i], err = tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: counts, Now: now, Deadline: time.Second}); err != nil {
			return list, err
		}
	}
	return list, nil
}

// run has all steps decided in front of s and by each version alone, and compares.
func (d *duel) run(now func() time.Time, memory func() *store.MemoryStore, s store.Store, wait func(time.Duration)) error {
	l, err := d.limiters(now, memory, s)
	if err != nil {
		return err
	}
	defer func() { _ = l[0].Close() }()
	var want tallygate.TrialStats
	for i, step := range d.steps {
		wait(step.wait)
		if err := d.step(l, step, &want); err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, step, err)
		}
	}
	return nil
}

func (d *duel) step(l [4]*tallygate.Limiter, step duelStep, want *tallygate.TrialStats) error {
	check := ask("r", step.key, step.cost)
	if step.other {
		check.Entries = append(check.Entries, tallygate.Entry{Rule: "other", Key: []string{step.key}})
	}
	var v, live, next, other tallygate.Verdict
	ctx := context.Background()
	if err := l[0].Decide(ctx, check, &v); err != nil {
		return err
	}
	if step.other && !v.Entries[1].Allow {
		if v.Allow {
			return fmt.Errorf("%+v allows", v)
		}
		if err := l[3].Decide(ctx, look("other", step.key), &other); err != nil || other.Entries[0].Remaining != 0 {
			return fmt.Errorf("%+v, the other rule, alone: %+v %w", v, other, err)
		}
		return nil // neither version has this check
	}
	if err := errors.Join(l[1].Decide(ctx, ask("r", step.key, step.cost), &live), l[2].Decide(ctx, ask("r", step.key, step.cost), &next)); err != nil {
		return err
	}
	count(want, live.Allow, next.Allow)
	inForce := &live
	if d.stage == rules.StageCanary {
		inForce = &next
	}
	e := v.Entries[0]
	if e.Allow != inForce.Allow || v.Allow != (e.Allow || d.live.Mode == rules.ModeShadow) || !d.remote && e.Remaining != inForce.Entries[0].Remaining {
		return fmt.Errorf("%+v, alone %+v", v, *inForce)
	}
	if got := sums(l[0], "r"); got != *want {
		return fmt.Errorf("counted %+v, want %+v", got, *want)
	}
	// The other rule, alone, has those checks that passed.
	if !step.other || !v.Allow {
		return nil
	}
	if err := l[3].Decide(ctx, ask("other", step.key, 1), &other); err != nil || !other.Allow {
		return fmt.Errorf("the other rule, alone: %+v %w", other, err)
	}
	return nil
}
