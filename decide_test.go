package tallygate_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// ALG-05: a denied costly request spends nothing.
func TestALG05(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 10, 10))
	tests := []struct {
		cost      int64
		allow     bool
		remaining int64
		retryMS   int64
	}{
		{8, true, 2, 0}, {5, false, 2, 30_000}, {2, true, 0, 0}, {1, false, 0, 10_000},
	}
	for _, test := range tests {
		v := mustCheck(t, l, ask("r", "k", test.cost))
		e := v.Entries[0]
		if v.Allow != test.allow || e.Remaining != test.remaining || v.RetryMS != test.retryMS {
			t.Errorf("cost %d: %+v, want %+v", test.cost, v, test)
		}
	}
}

// CST-02: no wrong cost gets to the store, and none mints tokens.
func TestCST02(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 3600, 20))
	for _, cost := range []int64{-5, -1, 1 << 53, 1_000_000_001, 21} {
		err := mustFail(t, l, ask("r", "k", cost), tallygate.CodeInvalidCost)
		if !strings.Contains(err.Message, strconv.FormatInt(cost, 10)) || err.Field != "/entries/0/cost" || err.Rule != "r" {
			t.Errorf("cost %d: %v does not name value, field and rule", cost, err)
		}
	}
	if got := allowed(t, l, 21, ask("r", "k", 1)); got != 20 {
		t.Errorf("%d of 21 allowed, want 20", got)
	}
}

// CST-05: a look is no spend.
func TestCST05(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 3600, 5))
	mustCheck(t, l, ask("r", "k", 3))
	for range 1000 {
		if v := mustCheck(t, l, look("r", "k")); !v.Allow || v.Entries[0].Remaining != 2 {
			t.Fatalf("look: %+v, want 2 left", v)
		}
	}
	if got := allowed(t, l, 3, ask("r", "k", 1)); got != 2 {
		t.Errorf("%d of 3 allowed, want 2", got)
	}
}

// FLT-06: a denial is an answer, not a reason to pass.
func TestFLT06(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 3600, 2))
	if got := allowed(t, l, 3, ask("r", "k", 1)); got != 2 {
		t.Errorf("%d of 3 allowed, want 2", got)
	}
	if v := mustCheck(t, l, ask("r", "k", 1)); v.Degraded != "" || v.DeniedBy != "r" {
		t.Errorf("%+v, want denied by r and not degraded", v)
	}
}

// KEY-01: names and values do not run into each other.
func TestKEY01(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("a", 1, 3600, 5), bucket("a_b", 1, 3600, 5))
	if got := allowed(t, l, 5, ask("a_b", "c", 1)); got != 5 {
		t.Errorf("%d of 5 allowed", got)
	}
	for _, key := range []string{"b_c", "b:c", "_b_c"} {
		if v := mustCheck(t, l, ask("a", key, 1)); !v.Allow || v.Entries[0].Remaining != 4 {
			t.Errorf("key %q: %+v, want 4 left", key, v)
		}
	}
}

// KEY-04: long keys are refused or counted whole, never cut.
func TestKEY04(t *testing.T) {
	t.Parallel()
	fake := &fakeStore{}
	refusing := withStore(t, newClock(), fake, rules.Set{Rules: []rules.Rule{bucket("r", 1, 3600, 5)}})
	mustFail(t, refusing, ask("r", strings.Repeat("k", 1<<20), 1), tallygate.CodeTooLarge)
	if calls, _ := fake.asked(); calls != 0 {
		t.Errorf("%d store calls for a key of 1 MiB", calls)
	}
	l := limiter(t, newClock(), bucket("r", 1, 3600, 5))
	long := strings.Repeat("k", 4095)
	if got := allowed(t, l, 5, ask("r", long+"a", 1)); got != 5 {
		t.Errorf("%d of 5 allowed", got)
	}
	if v := mustCheck(t, l, ask("r", long+"b", 1)); !v.Allow || v.Entries[0].Remaining != 4 {
		t.Errorf("%+v, want 4 left", v)
	}
}

// KEY-05: a thousand routes of one account are a thousand buckets.
func TestKEY05(t *testing.T) {
	t.Parallel()
	var rs []rules.Rule
	for i := range 1000 {
		rs = append(rs, bucket(fmt.Sprintf("route-%d", i), 1, 3600, 1))
	}
	l := limiter(t, newClock(), rs...)
	for _, r := range rs {
		if !mustCheck(t, l, ask(r.ID, "acct_7Q2", 1)).Allow {
			t.Fatalf("%s denied its first request", r.ID)
		}
	}
}

// MUL-02: refusals of the short window do not count in the long one.
func TestMUL02(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := limiter(t, c, window("minute", limit.FixedWindow, 10, 60), window("half-hour", limit.FixedWindow, 30, 1800))
	for minute, want := range []struct {
		checks, allowed int
	}{{16, 10}, {15, 10}, {11, 10}} {
		c.Since(time.Duration(minute) * time.Minute)
		if got := allowed(t, l, want.checks, both("k", "minute", "half-hour")); got != want.allowed {
			t.Errorf("minute %d: %d allowed, want %d", minute, got, want.allowed)
		}
	}
	c.Since(3 * time.Minute)
	if v := mustCheck(t, l, both("k", "minute", "half-hour")); v.Allow || v.DeniedBy != "half-hour" {
		t.Errorf("minute 3: %+v, want denied by half-hour", v)
	}
}

// MUL-05: a narrow rule does not replace a broad one; the answer names the rule.
func TestMUL05(t *testing.T) {
	t.Parallel()
	general := window("general", limit.FixedWindow, 2, 60)
	specific := window("specific", limit.FixedWindow, 3, 60)
	specific.CoversAll, specific.Match = false, map[string]string{"route": "POST /x"}
	l := limiter(t, newClock(), general, specific)
	check := tallygate.Check{Attributes: map[string]string{"route": "POST /x", "api_key": "k"}}
	if got := allowed(t, l, 2, check); got != 2 {
		t.Errorf("%d of 2 allowed", got)
	}
	for range 2 {
		if v := mustCheck(t, l, check); v.Allow || v.DeniedBy != "general" {
			t.Errorf("%+v, want denied by general", v)
		}
	}
	if v := mustCheck(t, l, look("specific", "k")); v.Entries[0].Remaining != 1 {
		t.Errorf("specific has %d left, want 1", v.Entries[0].Remaining)
	}
}

// SHD-01: a shadow rule never denies; what it would have said is in the entry.
func TestSHD01(t *testing.T) {
	t.Parallel()
	shadow := bucket("r", 1, 3600, 5)
	shadow.Mode = rules.ModeShadow
	l := limiter(t, newClock(), shadow)
	denied := 0
	for range 20 {
		v := mustCheck(t, l, ask("r", "k", 1))
		if !v.Allow || v.Tightest != -1 || !v.Entries[0].Shadow {
			t.Fatalf("%+v, want allowed without headers", v)
		}
		if !v.Entries[0].Allow {
			denied++
		}
	}
	if denied != 15 {
		t.Errorf("%d would have been denied, want 15", denied)
	}
	// Not even a cost that the rule would refuse refuses the check.
	if v := mustCheck(t, l, ask("r", "k", 6)); !v.Allow || v.Entries[0].Allow || v.Entries[0].Reason != tallygate.ReasonCostExceed {
		t.Errorf("%+v, want allowed with cost_exceeds_limit shown", v)
	}
}

// MET-03: when one entry denies, no other is spent.
func TestMET03(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("site", 1, 3600, 100), bucket("user", 1, 3600, 2))
	if got := allowed(t, l, 10, both("u", "site", "user")); got != 2 {
		t.Errorf("%d of 10 allowed, want 2", got)
	}
	if v := mustCheck(t, l, look("site", "u")); v.Entries[0].Remaining != 98 {
		t.Errorf("site has %d left, want 98", v.Entries[0].Remaining)
	}
}

// OVF-08: waits beyond 2^31 ms.
func TestOVF08(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 2_592_000, 1))
	mustCheck(t, l, ask("r", "k", 1))
	if v := mustCheck(t, l, ask("r", "k", 1)); v.Allow || v.RetryMS != 2_592_000_000 {
		t.Errorf("%+v, want a retry of 30 days", v)
	}
}

// SEC-13: login limits per address and per user name are independent.
func TestSEC13(t *testing.T) {
	t.Parallel()
	perIP, perName := window("login-ip", limit.SlidingLog, 5, 60), window("login-name", limit.SlidingLog, 20, 3600)
	perIP.Identity, perName.Identity = []string{"ip"}, []string{"username"}
	perIP.FailMode, perName.FailMode = rules.FailClosed, rules.FailClosed
	c := newClock()
	l := limiter(t, c, perIP, perName)
	login := func(ip, name string) tallygate.Verdict {
		c.Advance(time.Second)
		return mustCheck(t, l, tallygate.Check{Attributes: map[string]string{"ip": ip, "username": name}})
	}
	for i := range 5 {
		if v := login("203.0.113.9", fmt.Sprintf("u%d", i)); !v.Allow {
			t.Fatalf("attempt %d: %+v", i+1, v)
		}
	}
	if v := login("203.0.113.9", "u6"); v.Allow || v.DeniedBy != "login-ip" {
		t.Errorf("6th attempt: %+v, want denied by login-ip", v)
	}
	if v := mustCheck(t, l, look("login-name", "u6")); v.Entries[0].Remaining != 20 {
		t.Errorf("u6 has %d left, want 20", v.Entries[0].Remaining)
	}
	for i := range 21 {
		v := login(fmt.Sprintf("198.51.100.%d", i), "admin")
		if v.Allow != (i < 20) || !v.Allow && v.DeniedBy != "login-name" {
			t.Errorf("address %d: %+v", i, v)
		}
	}
}

func TestDuplicatesAreAddedUp(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 3600, 5))
	twice := tallygate.Check{Entries: []tallygate.Entry{
		{Rule: "r", Key: []string{"k"}, Cost: 2}, {Rule: "r", Key: []string{"k"}, Cost: 1},
	}}
	v := mustCheck(t, l, twice)
	if !v.Allow || len(v.Entries) != 2 || v.Entries[0] != v.Entries[1] || v.Entries[0].Remaining != 2 {
		t.Errorf("%+v, want two entries with 2 left", v)
	}
	if v := mustCheck(t, l, twice); v.Allow || v.Entries[1].Remaining != 2 {
		t.Errorf("%+v, want denied with 2 left", v)
	}
	tooMuch := tallygate.Check{Entries: []tallygate.Entry{
		{Rule: "r", Key: []string{"k"}, Cost: 5}, {Rule: "r", Key: []string{"k"}, Cost: 1},
	}}
	if err := mustFail(t, l, tooMuch, tallygate.CodeInvalidCost); err.Field != "/entries/1/cost" {
		t.Errorf("%v, want /entries/1/cost", err)
	}
}

func TestActions(t *testing.T) {
	t.Parallel()
	allow := rules.Rule{ID: "allow", Action: rules.ActionAllow, Match: map[string]string{"plan": "staff"}}
	deny := rules.Rule{ID: "deny", Action: rules.ActionDeny, Match: map[string]string{"country": "xx"}}
	l := limiter(t, newClock(), bucket("r", 1, 3600, 5), allow, deny)

	v := mustCheck(t, l, tallygate.Check{Attributes: map[string]string{"plan": "staff", "api_key": "k"}})
	if !v.Allow || len(v.Entries) != 2 || v.Entries[1].Source != tallygate.SourceRule || v.Tightest != 0 {
		t.Errorf("allow: %+v, want both entries, the rule's not counted", v)
	}
	v = mustCheck(t, l, tallygate.Check{Attributes: map[string]string{"country": "xx", "api_key": "k"}})
	if v.Allow || v.DeniedBy != "deny" || v.RetryMS != 0 || v.Tightest != -1 || v.Entries[1].Reason != tallygate.ReasonDenied {
		t.Errorf("deny: %+v", v)
	}
	if left := mustCheck(t, l, look("r", "k")).Entries[0].Remaining; left != 4 {
		t.Errorf("%d left, want 4: a denied check spends nothing", left)
	}
	// Naming them works with or without a key.
	if v := mustCheck(t, l, ask("deny", "k", 1)); v.Allow {
		t.Errorf("deny by name: %+v", v)
	}
	if v := mustCheck(t, l, tallygate.Check{Entries: []tallygate.Entry{{Rule: "allow"}}}); !v.Allow || v.Tightest != -1 {
		t.Errorf("allow by name: %+v", v)
	}
}

func TestNoRule(t *testing.T) {
	t.Parallel()
	only := bucket("r", 1, 1, 1)
	only.CoversAll, only.Match = false, map[string]string{"plan": "free"}
	l := limiter(t, newClock(), only)
	v := mustCheck(t, l, tallygate.Check{Attributes: map[string]string{"plan": "pro"}})
	if !v.Allow || v.Reason != tallygate.ReasonNoRule || len(v.Entries) != 0 || v.Tightest != -1 {
		t.Errorf("%+v, want allow, no_rule", v)
	}
}

// A bucket that an override made smaller than the cost denies for good; that is
// no fault of the caller.
func TestCostExceedsLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := withStore(t, c, c.Memory(), rules.Set{
		Rules:     []rules.Rule{bucket("r", 1, 3600, 20), bucket("other", 1, 3600, 20)},
		Overrides: []rules.Override{{Rule: "r", Key: []string{"small"}, Numbers: rules.Numbers{Burst: 5}}},
	})
	v := mustCheck(t, l, tallygate.Check{Entries: []tallygate.Entry{
		{Rule: "other", Key: []string{"small"}}, {Rule: "r", Key: []string{"small"}, Cost: 6},
	}})
	if v.Allow || v.DeniedBy != "r" || v.RetryMS != 0 || v.Entries[1].Reason != tallygate.ReasonCostExceed || v.Tightest != 1 {
		t.Errorf("%+v, want cost_exceeds_limit by r without retry", v)
	}
	if left := mustCheck(t, l, look("other", "small")).Entries[0].Remaining; left != 20 {
		t.Errorf("other has %d left, want 20", left)
	}
}

// An override ends by the pod's clock; nothing refills.
func TestOverrideExpires(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := withStore(t, c, c.Memory(), rules.Set{
		Rules: []rules.Rule{bucket("r", 1, 3600, 5)},
		Overrides: []rules.Override{{
			Rule: "r", Key: []string{"k"}, Numbers: rules.Numbers{Burst: 50}, ExpiresAt: c.Now().Add(time.Minute),
		}},
	})
	if v := mustCheck(t, l, ask("r", "k", 1)); v.Entries[0].Limit != 50 {
		t.Errorf("limit %d under the override, want 50", v.Entries[0].Limit)
	}
	c.Advance(time.Minute)
	if v := mustCheck(t, l, ask("r", "k", 1)); v.Entries[0].Limit != 5 || v.Entries[0].Remaining != 4 {
		t.Errorf("%+v after it ended, want 4 of 5", v.Entries[0])
	}
}

func TestTightest(t *testing.T) {
	t.Parallel()
	numbers := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 1000, Burst: 100}
	ok := func(remaining int64) store.Grant {
		return store.Grant{OK: true, Remaining: remaining, NowMS: 1, Limit: numbers}
	}
	no := func(retry int64) store.Grant { return store.Grant{RetryMS: retry, NowMS: 1, Limit: numbers} }
	never := store.Grant{Never: true, NowMS: 1, Limit: numbers}
	tests := []struct {
		name     string
		grants   []store.Grant
		tightest int
		deniedBy string
		retryMS  int64
	}{
		{"least remaining", []store.Grant{ok(9), ok(3), ok(5)}, 1, "", 0},
		{"ties by order", []store.Grant{ok(9), ok(3), ok(3)}, 1, "", 0},
		{"the denial, not the least remaining", []store.Grant{ok(0), no(10), ok(5)}, 1, "b", 10},
		{"longest retry", []store.Grant{no(10), no(30), no(30)}, 1, "b", 30},
		{"no waiting helps beats any wait", []store.Grant{no(1 << 40), ok(1), never}, 2, "c", 0},
		{"skipped groups have no numbers", []store.Grant{no(7), {Skipped: true}, {Skipped: true}}, 0, "a", 7},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeStore{grants: test.grants}
			list := []rules.Rule{bucket("a", 1, 1, 100), bucket("b", 1, 1, 100), bucket("c", 1, 1, 100)}
			for i := range list {
				list[i].Counting = rules.CountingExact // a pod that leases may add a pause of its own
			}
			l := withStore(t, newClock(), fake, rules.Set{Rules: list})
			v := mustCheck(t, l, both("k", "a", "b", "c"))
			if v.Tightest != test.tightest || v.DeniedBy != test.deniedBy || v.RetryMS != test.retryMS || v.Allow != (test.deniedBy == "") {
				t.Errorf("%+v, want %+v", v, test)
			}
			if calls, ops := fake.asked(); calls != 1 || len(ops) != 3 {
				t.Errorf("%d calls of %d ops, want one of 3", calls, len(ops))
			}
		})
	}
}

func TestDecideReusesTheVerdict(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 3600, 1))
	var v tallygate.Verdict
	if err := l.Decide(context.Background(), both("k", "r", "r", "r"), &v); tallygate.CodeOf(err) != tallygate.CodeInvalidCost {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Decide(context.Background(), ask("r", "k", 1), &v); err != nil {
			t.Fatal(err)
		}
	}
	if v.Allow || len(v.Entries) != 1 || v.DeniedBy != "r" {
		t.Errorf("%+v, want one denied entry", v)
	}
	if err := l.Decide(context.Background(), tallygate.Check{Attributes: map[string]string{"api_key": "other"}}, &v); err != nil {
		t.Fatal(err)
	}
	if !v.Allow || v.DeniedBy != "" || v.RetryMS != 0 || v.Reason != "" || v.Entries[0].Reason != "" {
		t.Errorf("%+v, want nothing left of the denial", v)
	}
}
