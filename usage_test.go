package tallygate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// shown is usage in short.
func shown(u tallygate.Usage) string {
	var list []string
	for _, r := range u.Rules {
		s := fmt.Sprintf("%s %d/%d", r.Rule, r.Remaining, r.Limit)
		if r.Candidate {
			s += " candidate"
		}
		if r.Override != nil {
			s += " override"
		}
		if r.Err != nil {
			s += " away"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// usageSet has a rule on trial, an override, rules that cannot count a plain key, and
// one that counts addresses.
func usageSet() rules.Set {
	pair, ip, deny := bucket("pair", 1, 3600, 7), bucket("by-ip", 1, 3600, 6), rules.Rule{ID: "no", CoversAll: true, Action: rules.ActionDeny}
	pair.Identity, ip.Identity = []string{"api_key", "user"}, []string{"ip"}
	set := onTrial(bucket("r", 1, 3600, 4), rules.StageShadow, 0, bucket("r", 1, 3600, 10), pair, ip, deny, window("w", limit.FixedWindow, 5, 3600))
	set.Overrides = []rules.Override{{Rule: "w", Key: []string{"k"}, Numbers: rules.Numbers{Limit: 50}, ExpiresAt: epoch.Add(time.Hour)}}
	return set
}

func mustUsage(t *testing.T, l *tallygate.Limiter, key ...string) tallygate.Usage {
	t.Helper()
	u, err := l.Usage(context.Background(), "", key)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Usage says what is left in every bucket of a key, and changes nothing.
func TestUsage(t *testing.T) {
	t.Parallel()
	clock := newClock()
	l := withStore(t, clock, clock.Memory(), usageSet())
	allowed(t, l, 3, ask("r", "k", 1))
	allowed(t, l, 2, ask("w", "k", 2))
	for range 2 {
		if got, want := shown(mustUsage(t, l, "k")), "r 7/10, r 1/4 candidate, w 46/50 override"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got, want := shown(mustUsage(t, l, "::ffff:1.2.3.4")), "r 10/10, r 4/4 candidate, by-ip 6/6, w 5/5"; got != want {
		t.Errorf("an address: %s, want %s", got, want)
	}
	if got := shown(mustUsage(t, l, "a", "b")); got != "pair 7/7" {
		t.Errorf("two values: %s", got)
	}
	allowed(t, l, 8, ask("r", "k", 1))
	u := mustUsage(t, l, "k").Rules[0]
	if u.Remaining != 0 || u.RetryMS != 3_600_000 || u.ResetMS != 36_000_000 {
		t.Errorf("%+v, want an hour until the next and ten until full", u)
	}
	clock.Advance(time.Hour)
	if got, want := shown(mustUsage(t, l, "k")), "r 1/10, r 1/4 candidate, w 5/5"; got != want {
		t.Errorf("after the override: %s, want %s", got, want)
	}
	before := l.Stats().Checks
	mustUsage(t, l, "k")
	if after := l.Stats().Checks; !slices.Equal(before, after) {
		t.Error("a look was counted as a check")
	}
}

// What cannot be a key is an error; a bucket that does not answer says so by itself.
func TestUsage_errors(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := &flaky{store: clock.Memory(), fails: map[string]bool{}}
	l := withStore(t, clock, s, usageSet())
	t.Cleanup(func() { _ = l.Close() })
	ctx := context.Background()
	for name, c := range map[string]struct {
		domain string
		key    []string
		code   tallygate.Code
	}{
		"no such domain":  {"nowhere", []string{"k"}, tallygate.CodeUnknownDomain},
		"no key":          {"", nil, tallygate.CodeBadRequest},
		"too many values": {"", []string{"a", "b", "c", "d", "e"}, tallygate.CodeBadRequest},
		"an empty value":  {"", []string{""}, tallygate.CodeBadRequest},
		"too long":        {"", []string{strings.Repeat("x", 5000)}, tallygate.CodeTooLarge},
	} {
		if _, err := l.Usage(ctx, c.domain, c.key); tallygate.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if _, err := l.Reset(ctx, c.domain, "", c.key); tallygate.CodeOf(err) != c.code {
			t.Errorf("reset, %s: %v, want %s", name, err, c.code)
		}
	}
	if _, err := l.Reset(ctx, "", "nothing", []string{"k"}); tallygate.CodeOf(err) != tallygate.CodeUnknownRule {
		t.Errorf("%v, want no such rule", err)
	}
	s.fails["w"] = true
	if got, want := shown(mustUsage(t, l, "k")), "r 0/10 away, r 0/4 candidate away, w 0/50 override away"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if _, err := l.Reset(ctx, "", "", []string{"k"}); tallygate.CodeOf(err) != tallygate.CodeStoreUnavailable {
		t.Errorf("%v, want that the store is away", err)
	}
}

// More buckets than a call may have are asked in several.
func TestUsage_manyRules(t *testing.T) {
	t.Parallel()
	var list []rules.Rule
	for i := range 3*store.MaxOps + 1 {
		list = append(list, bucket(fmt.Sprintf("r%d", i), 1, 3600, int64(i+1)))
	}
	l := limiter(t, newClock(), list...)
	u := mustUsage(t, l, "k")
	if len(u.Rules) != len(list) {
		t.Fatalf("%d rules, want %d", len(u.Rules), len(list))
	}
	for i, r := range u.Rules {
		if r.Rule != list[i].ID || r.Remaining != int64(i+1) || r.Err != nil {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// A rule that the pod counts alone is looked up where it is counted.
func TestUsage_local(t *testing.T) {
	t.Parallel()
	clock := newClock()
	local := bucket("local", 1, 3600, 9)
	local.Counting = rules.CountingLocal
	l := withStore(t, clock, &elsewhere{store: clock.Memory()}, rules.Set{Rules: []rules.Rule{local}})
	t.Cleanup(func() { _ = l.Close() })
	allowed(t, l, 4, ask("local", "k", 1))
	if got := shown(mustUsage(t, l, "k")); got != "local 5/9" {
		t.Errorf("%s, want what is left on this pod", got)
	}
	if n, err := l.Reset(context.Background(), "", "", []string{"k"}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if got := shown(mustUsage(t, l, "k")); got != "local 9/9" {
		t.Errorf("%s after a reset", got)
	}
}

// A reset makes all buckets of a key full again, also where the pod remembers that
// they were not, and twice is as good as once.
func TestReset(t *testing.T) {
	t.Parallel()
	for name, remote := range map[string]bool{"in this process": false, "through a pod": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			var s store.Store = clock.Memory()
			if remote {
				s = &elsewhere{store: clock.Memory()}
			}
			l := withStore(t, clock, s, usageSet())
			t.Cleanup(func() { _ = l.Close() })
			allowed(t, l, 11, ask("r", "k", 1))
			allowed(t, l, 26, ask("w", "k", 2))
			allowed(t, l, 3, ask("r", "else", 1))
			if v := mustCheck(t, l, ask("r", "k", 1)); v.Allow {
				t.Fatalf("%+v, want it used up", v)
			}
			for range 2 {
				if n, err := l.Reset(context.Background(), "", "r", []string{"k"}); n != 2 || err != nil {
					t.Fatalf("%d, %v, want both versions' buckets", n, err)
				}
			}
			if got, want := shown(mustUsage(t, l, "k")), "r 10/10, r 4/4 candidate, w 0/50 override"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if n, err := l.Reset(context.Background(), "", "", []string{"k"}); n != 3 || err != nil {
				t.Fatalf("%d, %v, want all buckets", n, err)
			}
			if got := allowed(t, l, 12, ask("r", "k", 1)); got != 10 {
				t.Errorf("%d passed after the reset, want 10", got)
			}
			if got := allowed(t, l, 26, ask("w", "k", 2)); got != 25 {
				t.Errorf("%d passed after the reset of all, want 25", got)
			}
			if got := allowed(t, l, 10, ask("r", "else", 1)); got != 7 {
				t.Errorf("%d passed for another key, want its other 7", got)
			}
		})
	}
}

// explained is an explanation in short.
func explained(x tallygate.Explanation) string {
	var list []string
	for _, r := range x.Rules {
		s := fmt.Sprintf("%s %s", r.Rule, strings.Join(r.Key, "+"))
		switch {
		case r.SupersededBy != "":
			s += "by " + r.SupersededBy
		case r.Anonymous:
			s += " anonymous"
		}
		if !r.Allow {
			s += " " + string(r.Reason)
		}
		if r.Action == rules.ActionLimit && r.Limit > 0 {
			s += fmt.Sprintf(" %d/%d", r.Remaining, r.Limit)
		}
		list = append(list, s)
	}
	return fmt.Sprintf("%v %s: %s; %d others", x.Allow, x.DeniedBy, strings.Join(list, ", "), x.Unmatched)
}

// Explain says of every rule that matches what it would say, as Check does then.
func TestExplain(t *testing.T) {
	t.Parallel()
	on := func(r rules.Rule, attr, value string) rules.Rule {
		r.CoversAll, r.Match = false, map[string]string{attr: value}
		return r
	}
	plan, vip, quiet, ip := on(bucket("plan", 1, 3600, 3), "plan", "a"), on(bucket("vip", 1, 3600, 9), "vip", "yes"), on(bucket("quiet", 1, 3600, 1), "plan", "a"), on(bucket("by-ip", 1, 3600, 5), "anonymous", "yes")
	vip.Supersedes, quiet.Mode, ip.Identity = []string{"plan"}, rules.ModeShadow, []string{"ip"}
	no := on(rules.Rule{ID: "no", Action: rules.ActionDeny}, "route", "/admin")
	l := limiter(t, newClock(), plan, vip, quiet, ip, no)
	attrs := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	allowed(t, l, 2, tallygate.Check{Attributes: attrs("plan", "a", "api_key", "k")})
	for name, c := range map[string]struct {
		check tallygate.Check
		want  string
	}{
		"allowed":       {tallygate.Check{Attributes: attrs("plan", "a", "api_key", "k")}, "true : plan k 1/3, quiet k over_limit 0/1; 3 others"},
		"by its cost":   {tallygate.Check{Attributes: attrs("plan", "a", "api_key", "k"), Cost: 2}, "false plan: plan k over_limit 1/3, quiet k cost_exceeds_limit; 3 others"},
		"superseded":    {tallygate.Check{Attributes: attrs("plan", "a", "vip", "yes", "api_key", "k")}, "true : plan by vip, vip k 9/9, quiet k over_limit 0/1; 2 others"},
		"denied by no":  {tallygate.Check{Attributes: attrs("plan", "a", "route", "/admin", "api_key", "k")}, "false no: plan k 1/3, quiet k over_limit 0/1, no  denied; 2 others"},
		"anonymous":     {tallygate.Check{Attributes: attrs("plan", "a", "ip", "1.2.3.4")}, "true : plan 1.2.3.4 anonymous 3/3, quiet 1.2.3.4 anonymous 1/1; 3 others"},
		"taken over":    {tallygate.Check{Attributes: attrs("plan", "a", "anonymous", "yes", "ip", "1.2.3.4")}, "true : plan  anonymous, quiet  anonymous, by-ip 1.2.3.4 5/5; 2 others"},
		"by entries":    {ask("plan", "k", 1), "true : plan k 1/3; 4 others"},
		"nothing meets": {tallygate.Check{Attributes: attrs("x", "y")}, "true : ; 5 others"},
	} {
		for range 2 {
			x, err := l.Explain(context.Background(), c.check)
			if got := explained(x); err != nil || got != c.want || x.Domain != "default" || x.Revision != 1 {
				t.Errorf("%s: %s (%v), want %s", name, got, err, c.want)
			}
		}
		x, _ := l.Explain(context.Background(), c.check)
		if v := mustCheck(t, limiterLike(t, plan, vip, quiet, ip, no), c.check); v.Allow != x.Allow || v.DeniedBy != x.DeniedBy {
			t.Errorf("%s: Check says %v by %q, Explain %v by %q", name, v.Allow, v.DeniedBy, x.Allow, x.DeniedBy)
		}
	}
	for name, check := range map[string]tallygate.Check{
		"cost":   ask("plan", "k", 4),
		"rule":   ask("nothing", "k", 1),
		"domain": {Domain: "nowhere", Attributes: attrs("a", "b")},
		"both":   {Attributes: attrs("a", "b"), Entries: []tallygate.Entry{{}}},
	} {
		_, err := l.Explain(context.Background(), check)
		_, want := l.Check(context.Background(), check)
		if err == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, Check says %v", name, err, want)
		}
	}
}

// limiterLike is a limiter with the same rules, of which as much was spent: the check
// that is compared must not change the one that is explained.
func limiterLike(t *testing.T, list ...rules.Rule) *tallygate.Limiter {
	t.Helper()
	l := limiter(t, newClock(), list...)
	allowed(t, l, 2, tallygate.Check{Attributes: map[string]string{"plan": "a", "api_key": "k"}})
	return l
}

// Where the store does not answer, an explanation says so and what the rules' fail
// modes make of it.
func TestExplain_storeAway(t *testing.T) {
	t.Parallel()
	open, closed := bucket("open", 1, 3600, 3), bucket("closed", 1, 3600, 3)
	closed.FailMode = rules.FailClosed
	l, _ := awayLimiter(t, open, closed)
	x, err := l.Explain(context.Background(), both("k", "open", "closed"))
	if err != nil {
		t.Fatal(err)
	}
	if x.Allow || x.DeniedBy != "closed" || !x.Rules[0].Allow || x.Rules[1].Allow || x.Rules[0].Err == nil || x.Rules[1].Reason != tallygate.ReasonNoStore {
		t.Errorf("%+v", x)
	}
}

// On Redis the tokens that a pod holds show as Out; the busiest keys of the pod come
// in order; and a reset drops what the pod holds.
func TestUsage_leases(t *testing.T) {
	key := newKey()
	rule := bucket("lease", 100, 1, 1000)
	rule.MaxCost = 1
	l := fleet(t, 1, rule)[0]
	deadline := time.Now().Add(10 * time.Second)
	var out int64
	for out == 0 && time.Now().Before(deadline) {
		allowed(t, l, 5, ask("lease", key, 1))
		allowed(t, l, 1, ask("lease", key+"_slow", 1))
		out = mustUsage(t, l, key).Rules[0].Out
	}
	if out == 0 {
		t.Fatal("nothing is out on a lease")
	}
	busy := l.Busiest(10)
	if len(busy) != 2 || busy[0].Rule != "lease" || busy[0].Domain != "default" || len(busy[0].Key) != 16 || busy[0].PerSecond <= busy[1].PerSecond {
		t.Errorf("%+v, want the two keys by what they spend", busy)
	}
	if got := l.Busiest(1); len(got) != 1 || got[0].Key != busy[0].Key {
		t.Errorf("%+v, want the busiest", got)
	}
	// A call under way is not undone, so it may take a few: not so many that a lease ends.
	var u tallygate.RuleUsage
	var v tallygate.Verdict
	for range 5 {
		if n, err := l.Reset(context.Background(), "", "", []string{key}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		u = mustUsage(t, l, key).Rules[0]
		v = mustCheck(t, l, ask("lease", key, 1))
		if u.Remaining == 1000 && u.Out == 0 && v.Entries[0].Source == tallygate.SourceStore {
			break
		}
	}
	if u.Remaining != 1000 || u.Out != 0 {
		t.Errorf("%+v, want a full bucket", u)
	}
	if v.Entries[0].Source != tallygate.SourceStore {
		t.Errorf("%+v, want the store to be asked: the lease was dropped", v.Entries[0])
	}
	if err := l.Close(); err != nil { // with a call under way the figures are between two states
		t.Fatal(err)
	}
	for _, r := range l.Stats().Rules {
		if s := r.Leases; s.Granted != s.Spent+s.Returned+s.Expired+s.Out {
			t.Errorf("%+v do not add up", s)
		}
	}
}

// The buckets of a trial are looked at and reset on Redis too.
func TestUsage_trialOnRedis(t *testing.T) {
	key := newKey()
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: "redis://" + redistest.SharedStandalone(t).Addr, Tags: identity.NewHasher(nil), Deadline: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	live, next := bucket("duo", 1, 3600, 6), bucket("duo", 1, 3600, 4)
	live.Counting, next.Counting = rules.CountingExact, rules.CountingExact
	l, err := tallygate.New(tallygate.Config{
		Rules: tallygate.Fixed(compile(t, time.Now(), onTrial(next, rules.StageCanary, 100, live))), Store: s, Deadline: patient,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if got := allowed(t, l, 8, ask("duo", key, 1)); got != 4 {
		t.Errorf("%d passed, want the candidate's 4", got)
	}
	if got, want := sums(l, "duo"), (tallygate.TrialStats{BothAllowed: 4, CandidateDenied: 2, BothDenied: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := shown(mustUsage(t, l, key)); got != "duo 0/6, duo 0/4 candidate" {
		t.Errorf("%s, want both used up", got)
	}
	if n, err := l.Reset(context.Background(), "", "duo", []string{key}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if got := shown(mustUsage(t, l, key)); got != "duo 6/6, duo 4/4 candidate" {
		t.Errorf("%s, want both full", got)
	}
}
