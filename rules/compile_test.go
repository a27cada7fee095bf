package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// bucket returns a rule and an override of it in JSON.
func bucket(id string, rate, burst int) string {
	return fmt.Sprintf(`{'id':'%s','match':{'a':'b'},'identity':'k','algorithm':'token_bucket','rate':%d,'burst':%d}`, id, rate, burst)
}

func override(rule, key, fields string) string {
	return fmt.Sprintf(`{'rule':'%s','key':'%s',%s}`, rule, key, fields)
}

// effective returns the numbers of a key in short: "100/200@4".
func effective(s *rules.Snapshot, id, key string, now time.Time) string {
	c := s.Rule(id)
	if c == nil {
		return "none"
	}
	lim, _ := c.Effective(key, now)
	return fmt.Sprintf("%d/%d@%d", lim.Rate, lim.Burst, lim.Revision)
}

func TestCompileKeepsTheLastGoodVersion(t *testing.T) {
	t.Parallel()
	first := mustCompile(t, nil, mustSet(t, bucket("A", 1, 1), bucket("B", 2, 2), bucket("C", 3, 3)), 10, start)

	bad := mustRule(t, bucket("B", 2, 2))
	bad.Algorithm = 77
	worse := mustRule(t, bucket("D", 2, 2))
	worse.Rate = -1
	set := mustSet(t, bucket("A", 1, 1), bucket("C", 4, 4))
	set.Rules = append(set.Rules, bad, worse)
	s, problems := rules.Compile(first, set, 11, start)

	for id, want := range map[string]string{"A": "1/1@20", "B": "2/2@20", "C": "4/4@22", "D": "none"} {
		if got := effective(s, id, "x", start); got != want {
			t.Errorf("REL-07: rule %s has %s, want %s", id, got, want)
		}
	}
	if len(problems) != 2 || problems[0].Rule != "B" || problems[0].Field != "algorithm" || problems[1].Rule != "D" || problems[1].Field != "rate" {
		t.Errorf("REL-07: problems %+v do not name B and D", problems)
	}

	// What a source could not even read is not gone.
	set = mustSet(t, bucket("A", 1, 1))
	set.Unread = []rules.Ref{{Rule: "B"}, {Rule: "new"}}
	s = mustCompile(t, s, set, 12, start)
	if got := []string{effective(s, "B", "x", start), effective(s, "C", "x", start), effective(s, "new", "x", start)}; got[0] != "2/2@20" || got[1] != "none" || got[2] != "none" {
		t.Errorf("REL-07: B, C, new have %v, want B kept and C gone", got)
	}
}

func TestCompileRefusesTakenIDs(t *testing.T) {
	t.Parallel()
	s, problems := rules.Compile(nil, mustSet(t, bucket("A", 1, 1), bucket("B", 5, 5), bucket("A", 9, 9)), 1, start)
	if got, want := lines(problems), `id: "A" is taken by a rule before it; rename this one`; got != want {
		t.Errorf("REL-07: got  %s\nwant %s", got, want)
	}
	if effective(s, "A", "x", start) != "1/1@2" || effective(s, "B", "x", start) != "5/5@2" {
		t.Error("REL-07: the first A and B are not in force")
	}
}

func TestCompileOverrides(t *testing.T) {
	t.Parallel()
	s, problems := rules.Compile(nil, mustSet(t,
		bucket("r", 100, 200), `{'id':'open','match':{'a':'b'},'action':'allow'}`,
		`{'id':'ip','match':{'a':'b'},'identity':'ip','algorithm':'sliding_log','limit':5,'window_s':60}`,
		`{'id':'day','match':{'a':'b'},'identity':['u','v'],'algorithm':'fixed_window','limit':5,'window_s':60}`,
		override("r", "big", `'rate':500,'burst':900,'max_cost':50`),
		override("r", "small", `'burst':3`),
		override("ip", "::ffff:192.0.2.1", `'limit':50`),
		`{'rule':'day','key':['u1','v1'],'window':'day','tz':'Asia/Tokyo'}`,
		override("dayly", "x", `'rate':1`),
		override("open", "x", `'rate':1`),
		override("r", "big", `'rate':1`),
		override("r", "odd", `'limit':1`),
		override("r", "slow", `'rate':1,'per_s':2678400`),
		override("ip", "192.0.2.1/24", `'limit':1`),
		override("day", "u1", `'limit':1`),
	), 1, start)
	want := strings.Join([]string{
		`rule: there is no rule "dayly"; did you mean "day"?`,
		`rule: action allow counts nothing; remove the override`,
		`key: the rule has an override of this key before it; keep one`,
		`limit: is not a field of token_bucket; remove it or use sliding_window`,
		`burst: takes 535680000 s to fill, above 31622400; lower burst or raise rate`,
		`key: "192.0.2.1/24" is an address inside a network; the network is 192.0.2.0/24; name one address, or for a rule that counts by ip alone a network`,
		`key: has 1 values, the rule counts by 2 ["u" "v"]; write the key as the rule's identity has it`,
	}, "\n")
	if got := lines(problems); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for key, want := range map[string]string{
		"big": "500/900@2", "small": "100/3@2", "odd": "100/200@2", "slow": "100/200@2", "any": "100/200@2",
	} {
		if got := effective(s, "r", key, start); got != want {
			t.Errorf("%s has %s, want %s", key, got, want)
		}
	}
	if _, cost := s.Rule("r").Effective("big", start); cost != 50 {
		t.Errorf("max_cost of the override is %d, want 50", cost)
	}
	if lim, _ := s.Rule("ip").Effective("192.0.2.1", start); lim.Capacity != 50 {
		t.Errorf("SEC-05: the override of a mapped address does not hold for the address: %s", lim)
	}
	if lim, _ := s.Rule("day").Effective(rules.Key([]string{"u1", "v1"}), start); lim.String() != "fixed_window 5 per day in Asia/Tokyo @2" {
		t.Errorf("window instead of window_s: %s", lim)
	}
	if lim, cost := s.Rule("open").Effective("x", start); lim != nil || cost != 1_000_000_000 {
		t.Errorf("action allow has numbers: %v, max_cost %d", lim, cost)
	}
}

func TestOverrideMayMakeABucketSmallerThanACheck(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, nil, mustSet(t,
		`{'id':'r','match':{'a':'b'},'identity':'k','algorithm':'token_bucket','rate':10,'burst':20,'max_cost':10}`,
		override("r", "k", `'burst':5`)), 1, start)
	if lim, cost := s.Rule("r").Effective("k", start); lim.Burst != 5 || cost != 10 {
		t.Errorf("burst %d, max_cost %d; want 5 and 10", lim.Burst, cost)
	}
}

func TestRevisionsOfOneBucketOnlyGrow(t *testing.T) {
	t.Parallel()
	end := start.Add(time.Hour)
	until := fmt.Sprintf(`'rate':500,'expires_at':'%s'`, end.Format(time.RFC3339))
	later := end.Add(time.Minute)
	rule := bucket("r", 100, 200)

	s := mustCompile(t, nil, mustSet(t, rule), 10, start)
	expect := func(step string, now time.Time, key, other string) {
		t.Helper()
		if got := effective(s, "r", "k", now); got != key {
			t.Errorf("%s: k has %s, want %s", step, got, key)
		}
		if got := effective(s, "r", "other", now); got != other {
			t.Errorf("%s: other keys have %s, want %s", step, got, other)
		}
	}
	expect("first", start, "100/200@20", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule), 11, start)
	expect("REL-03 written again", start, "100/200@20", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule, override("r", "k", until)), 12, start)
	expect("override", start, "500/200@24", "100/200@20")
	expect("override ended", end, "100/200@25", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule, override("r", "k", until), bucket("new", 1, 1)), 13, start)
	expect("another rule", start, "500/200@24", "100/200@20")
	expect("another rule, ended", end, "100/200@27", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule, override("r", "k", until), bucket("new", 2, 2)), 14, later)
	expect("compiled after the end", later, "100/200@27", "100/200@20")
	expect("the clock steps back", start, "100/200@27", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule), 15, later)
	expect("ended and removed", later, "100/200@27", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule, override("r", "k", `'rate':7`)), 16, later)
	expect("another override", later, "7/200@32", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule, override("r", "k", `'rate':8`)), 17, later)
	expect("edited", later, "8/200@34", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule), 18, later)
	expect("removed in force", later, "100/200@36", "100/200@20")
	s = mustCompile(t, s, mustSet(t, rule), 19, later)
	expect("remembered", later, "100/200@36", "100/200@20")
	s = mustCompile(t, s, mustSet(t, bucket("r", 90, 200)), 20, later)
	expect("rule changed", later, "90/200@40", "90/200@40")
	s = mustCompile(t, s, mustSet(t, bucket("r", 90, 200)), 3, later)
	expect("older revision", later, "90/200@40", "90/200@40")
	if s.Revision() != 21 {
		t.Errorf("the snapshot's revision is %d, want 21: it never goes back", s.Revision())
	}
	s = mustCompile(t, s, mustSet(t), 22, later)
	s = mustCompile(t, s, mustSet(t, bucket("r", 90, 200)), 23, later)
	expect("removed and back", later, "90/200@46", "90/200@46")
}

func TestOverrideKeepsItsLastGoodVersion(t *testing.T) {
	t.Parallel()
	rule := bucket("r", 100, 200)
	first := mustCompile(t, nil, mustSet(t, rule, override("r", "k", `'rate':500`), override("r", "l", `'rate':500`)), 1, start)

	set := mustSet(t, rule, override("r", "k", `'limit':500`))
	set.Unread = []rules.Ref{{Rule: "r", Key: []string{"l"}}}
	s, problems := rules.Compile(first, set, 2, start)
	if len(problems) != 1 || problems[0].Rule != "r" || problems[0].Field != "limit" {
		t.Errorf("REL-07: problems %+v do not name the override's field", problems)
	}
	for _, key := range []string{"k", "l"} {
		if got := effective(s, "r", key, start); got != "500/200@2" {
			t.Errorf("REL-07: %s has %s, want its last good 500/200@2", key, got)
		}
	}
}

func TestTombstonesAreBounded(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("r", 100, 200), override("r", "stays", `'rate':7`))
	plain := set
	set.Overrides = append([]rules.Override{}, set.Overrides...)
	for i := range rules.MaxTombstones + 1 {
		set.Overrides = append(set.Overrides, rules.Override{Rule: "r", Key: []string{fmt.Sprint("k", i)}, Numbers: rules.Numbers{Rate: 5}})
	}
	s := mustCompile(t, nil, set, 1, start)
	s = mustCompile(t, s, plain, 2, start)
	for key, want := range map[string]string{"k1": "100/200@4", "never had one": "100/200@4", "stays": "7/200@2"} {
		if got := effective(s, "r", key, start); got != want {
			t.Errorf("%s has %s, want %s", key, got, want)
		}
	}
}

func TestNotFresh(t *testing.T) {
	t.Parallel()
	window := func(limit, seconds int) string {
		return fmt.Sprintf(`{'id':'r','match':{'a':'b'},'identity':'k','algorithm':'fixed_window','limit':%d,'window_s':%d}`, limit, seconds)
	}
	for _, tt := range []struct {
		name          string
		before, after []string
		want          time.Duration // for how long key k is not fresh
	}{
		{"unchanged", []string{bucket("r", 10, 20)}, []string{bucket("r", 10, 20)}, 0},
		{"faster", []string{bucket("r", 10, 20)}, []string{bucket("r", 11, 20)}, 0},
		{"lower rate", []string{bucket("r", 10, 20)}, []string{bucket("r", 9, 20)}, 2 * time.Second},
		{"lower burst", []string{bucket("r", 10, 20)}, []string{bucket("r", 10, 10)}, 0},
		{"at most a minute", []string{bucket("r", 10, 20000)}, []string{bucket("r", 1, 20000)}, time.Minute},
		{"another rule", []string{bucket("r", 10, 20), bucket("s", 9, 9)}, []string{bucket("r", 10, 20), bucket("s", 1, 1)}, 0},
		{"lower limit", []string{window(10, 5)}, []string{window(9, 5)}, 0},
		{"longer window", []string{window(10, 5)}, []string{window(10, 6)}, 0},
		{"shorter window", []string{window(10, 5)}, []string{window(10, 4)}, 0},
		{"other algorithm", []string{bucket("r", 10, 20)}, []string{window(10, 3)}, 0},
		{"override", []string{bucket("r", 10, 20)}, []string{bucket("r", 10, 20), override("r", "k", `'rate':5`)}, 2 * time.Second},
		{"override removed", []string{bucket("r", 10, 20), override("r", "k", `'rate':50`)}, []string{bucket("r", 10, 20)}, 400 * time.Millisecond},
		{"override of another", []string{bucket("r", 10, 20)}, []string{bucket("r", 10, 20), override("r", "l", `'rate':5`)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, nil, mustSet(t, tt.before...), 1, start)
			s = mustCompile(t, s, mustSet(t, tt.after...), 2, start)
			// A later change of something else forgets nothing.
			s = mustCompile(t, s, mustSet(t, append(tt.after, bucket("z", 1, 1))...), 3, start)
			c := s.Rule("r")
			if c.NotFresh("k", start.Add(tt.want)) {
				t.Errorf("still not fresh after %v", tt.want)
			}
			if tt.want > 0 && !c.NotFresh("k", start.Add(tt.want-time.Millisecond)) {
				t.Errorf("fresh already a millisecond before %v", tt.want)
			}
			if tt.want > 0 && !c.Timed() {
				t.Error("not fresh for a while, and not timed")
			}
		})
	}
}

func TestNotFreshAfterAnOverrideEnded(t *testing.T) {
	t.Parallel()
	end := start.Add(time.Hour)
	set := mustSet(t, bucket("r", 10, 20), override("r", "k", fmt.Sprintf(`'rate':500,'burst':5000,'expires_at':'%s'`, end.Format(time.RFC3339))))
	before := mustCompile(t, nil, set, 1, start)
	after := mustCompile(t, nil, set, 1, end.Add(time.Second))
	through := mustCompile(t, before, set, 2, end.Add(time.Second))
	for name, s := range map[string]*rules.Snapshot{"compiled before": before, "compiled after": after, "followed": through} {
		c := s.Rule("r")
		if !c.NotFresh("k", end.Add(1999*time.Millisecond)) || c.NotFresh("k", end.Add(2*time.Second)) || c.NotFresh("other", end) {
			t.Errorf("%s: not fresh for another time than the 2 s after the end", name)
		}
		if !c.Timed() {
			t.Errorf("%s: not timed, and an override ends", name)
		}
	}
	if before.Rule("r").NotFresh("k", end.Add(-time.Millisecond)) {
		t.Error("not fresh while the override is in force")
	}
}

// Who has no clock at hand asks a rule that is not timed with any time.
func TestTimed(t *testing.T) {
	t.Parallel()
	first := mustCompile(t, nil, mustSet(t, bucket("r", 10, 20)), 1, start)
	for name, s := range map[string]*rules.Snapshot{
		"new":    first,
		"same":   mustCompile(t, first, mustSet(t, bucket("r", 10, 20)), 2, start),
		"faster": mustCompile(t, first, mustSet(t, bucket("r", 20, 20)), 2, start),
	} {
		c := s.Rule("r")
		if c.Timed() {
			t.Errorf("%s: timed, and nothing ends", name)
		}
		now, _ := c.Effective("k", start)
		if then, _ := c.Effective("k", time.UnixMilli(0)); then != now || c.NotFresh("k", time.UnixMilli(0)) {
			t.Errorf("%s: at the epoch %v, now %v", name, then, now)
		}
	}
}

func TestCompileKeepsNothingOfTheSet(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("r", 10, 20), override("r", "k", `'rate':5`))
	s := mustCompile(t, nil, set, 1, start)
	set.Rules[0].Match["a"], set.Rules[0].Identity[0], set.Overrides[0].Key[0] = "changed", "changed", "changed"
	if got := matched(s.Domain(""), map[string]string{"a": "b"}); got != "r" || s.Rule("r").Rule().Match["a"] != "b" || s.Rule("r").Rule().Identity[0] != "k" {
		t.Error("a change of the set reached the snapshot")
	}
}

func TestCompiledSaysWhatItIs(t *testing.T) {
	t.Parallel()
	c := compiled(t, counting("r", `'k'`, `'mode':'shadow','fail_mode':'closed','max_cost':3`))
	if !c.Shadow() || !c.FailClosed() || c.MaxCost() != 3 || c.Action() != rules.ActionLimit || c.Domain() != rules.DefaultDomain || c.ID() != "r" {
		t.Errorf("got %v %v %d %s %s %s", c.Shadow(), c.FailClosed(), c.MaxCost(), c.Action(), c.Domain(), c.ID())
	}
	c = compiled(t, denyRule("d", ``, `'domain':'x'`))
	if c.Shadow() || c.FailClosed() || c.Action() != rules.ActionDeny || c.Domain() != "x" {
		t.Errorf("got %v %v %s %s", c.Shadow(), c.FailClosed(), c.Action(), c.Domain())
	}
}
