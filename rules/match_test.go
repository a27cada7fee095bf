package rules_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/rules"
)

// denyRule returns a rule that needs no numbers.
func denyRule(id, match, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`{'id':'%s','covers_all':true,'action':'deny','match':{%s}%s}`, id, match, more)
}

// matched returns the ids of the rules that apply, joined by blanks.
func matched(d *rules.Domain, attrs map[string]string) string {
	var ids []string
	for _, c := range d.Match(attrs, nil) {
		ids = append(ids, c.ID())
		if c != d.Rule(c.ID()) { // snapshots share how rules are found, and not the rules
			ids = append(ids, "of another snapshot")
		}
	}
	return strings.Join(ids, " ")
}

func TestDomainMatch(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, nil, mustSet(t,
		denyRule("all", ``, ""),
		denyRule("growth", `'plan':'growth'`, ""),
		denyRule("login", `'route':'POST /login'`, ""),
		denyRule("growth-login", `'plan':'growth','route':'POST /login'`, ""),
		denyRule("labels", `'route':'* /v1/labels/{id}'`, ""),
		denyRule("v1", `'route':'GET /v1/*'`, ""),
		denyRule("pieces", `'route':'GET *a*b*c'`, ""),
		denyRule("any-plan", `'plan':'*'`, ""),
		denyRule("other-domain", `'plan':'growth'`, "'domain':'other'"),
	), 1, start)
	for _, tt := range []struct{ name, plan, route, want string }{
		{"nothing known", "", "", "all"},
		{"plan", "growth", "", "all growth any-plan"},
		{"plan, other case", "Growth", "", "all any-plan"},
		{"both, in the order of the file", "growth", "POST /login", "all growth login growth-login any-plan"},
		{"star in front", "", "POST /v1/labels/{id}", "all labels"},
		{"two stars", "", "GET /v1/labels/{id}", "all labels v1"},
		{"star for nothing", "", "GET /v1/", "all v1"},
		{"star needs its slash", "", "GET /v1", "all"},
		{"pieces in order", "", "GET xaxbxc", "all pieces"},
		{"pieces side by side", "", "GET abc", "all pieces"},
		{"pieces out of order", "", "GET bac", "all"},
		{"pieces do not overlap", "", "GET ac", "all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			attrs := map[string]string{}
			if tt.plan != "" {
				attrs["plan"] = tt.plan
			}
			if tt.route != "" {
				attrs["route"] = tt.route
			}
			if got := matched(s.Domain(""), attrs); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := matched(s.Domain("other"), map[string]string{"plan": "growth"}); got != "other-domain" {
		t.Errorf("the other domain matches %q", got)
	}
	if s.Domain("third") != nil || s.Domain("").Rule("other-domain") != nil || s.Rule("other-domain") == nil {
		t.Error("domains are not kept apart")
	}
	if got := matched(s.Domain(""), map[string]string{"plan": ""}); got != "all any-plan" {
		t.Errorf("an empty value matches %q, want all any-plan", got)
	}
}

func TestSupersedes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules []string
		want  string
	}{
		{"lifts a broad rule", []string{
			denyRule("broad", ``, ""), denyRule("narrow", `'a':'1'`, `'supersedes':['broad']`),
		}, "narrow"},
		{"not where it does not match", []string{
			denyRule("broad", ``, ""), denyRule("narrow", `'a':'2'`, `'supersedes':['broad']`),
		}, "broad"},
		{"a superseded rule lifts nothing", []string{
			denyRule("base", ``, ""), denyRule("plan", `'a':'1'`, `'supersedes':['base']`), denyRule("vip", `'b':'1'`, `'supersedes':['plan']`),
		}, "base vip"},
		{"the same, in another order", []string{
			denyRule("vip", `'b':'1'`, `'supersedes':['plan']`), denyRule("plan", `'a':'1'`, `'supersedes':['base']`), denyRule("base", ``, ""),
		}, "vip base"},
		{"several", []string{
			denyRule("x", ``, ""), denyRule("vip", `'b':'1'`, `'supersedes':['x','y','z']`), denyRule("y", ``, ""), denyRule("q", ``, ""), denyRule("z", ``, ""),
		}, "vip q"},
		{"shadow lifts no limit", []string{
			denyRule("broad", ``, ""), denyRule("broad-shadow", ``, `'mode':'shadow'`), denyRule("narrow", `'a':'1'`, `'supersedes':['broad','broad-shadow'],'mode':'shadow'`),
		}, "broad narrow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, nil, mustSet(t, tt.rules...), 1, start)
			if got := matched(s.Domain(""), map[string]string{"a": "1", "b": "1"}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSupersedesInACircle(t *testing.T) {
	t.Parallel()
	s, problems := rules.Compile(nil, mustSet(t,
		denyRule("a", ``, `'supersedes':['b']`), denyRule("b", ``, `'supersedes':['c']`), denyRule("c", ``, `'supersedes':['a']`),
	), 1, start)
	want := `supersedes: goes in a circle by way of "a"; break it; until then this rule supersedes nothing`
	if got := lines(problems.Faults()); got != want || problems.Faults()[0].Rule != "c" {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := matched(s.Domain(""), nil); got != "a c" {
		t.Errorf("%q apply, want a c: never none", got)
	}
}

// TestMatchAgainstTheDefinition compares the index with asking every rule.
func TestMatchAgainstTheDefinition(t *testing.T) {
	t.Parallel()
	values := []string{"x", "y", "xy", "*", "x*", "*y", "x*y", "*x*"}
	attr := rapid.SampledFrom([]string{"a", "b", "c"})
	conditions := rapid.MapOfN(attr, rapid.SampledFrom(values), 0, 3)
	rapid.Check(t, func(t *rapid.T) {
		var set rules.Set
		for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
			set.Rules = append(set.Rules, rules.Rule{
				ID: fmt.Sprint("r", i), Action: rules.ActionDeny, CoversAll: true, Match: conditions.Draw(t, "match"),
			})
		}
		s, problems := rules.Compile(nil, set, 1, start)
		if problems.Err() != nil {
			t.Fatal(problems)
		}
		attrs := rapid.MapOfN(attr, rapid.StringMatching(`[xy]{0,3}`), 0, 3).Draw(t, "attributes")
		var want []string
		for _, r := range set.Rules {
			all := true
			for name, pattern := range r.Match {
				value, ok := attrs[name]
				glob := "^" + strings.ReplaceAll(pattern, "*", ".*") + "$"
				all = all && ok && regexp.MustCompile(glob).MatchString(value)
			}
			if all {
				want = append(want, r.ID)
			}
		}
		if got := matched(s.Domain(""), attrs); got != strings.Join(want, " ") {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestMatchAppends(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, nil, mustSet(t, denyRule("b", `'a':'1'`, `'supersedes':['a']`), denyRule("a", ``, "")), 1, start)
	first := s.Rule("a")
	got := s.Domain("").Match(map[string]string{"a": "1"}, []*rules.Compiled{first})
	if want := []*rules.Compiled{first, s.Rule("b")}; !slices.Equal(got, want) {
		t.Errorf("what was there before is not left alone: %d rules", len(got))
	}
}

// manyRules returns n rules of which three match the attributes.
func manyRules(t testing.TB, n int) (*rules.Domain, map[string]string) {
	t.Helper()
	texts := []string{
		`{'id':'plan','match':{'plan':'growth'},'identity':'api_key','algorithm':'token_bucket','rate':100,'burst':200}`,
		`{'id':'route','match':{'plan':'growth','route':'GET /v1/labels/{id}'},'identity':'api_key','algorithm':'token_bucket','rate':100,'burst':200}`,
		denyRule("old", `'route':'GET /v1/*','plan':'growth'`, `'supersedes':['older']`),
		denyRule("older", `'plan':'growth'`, ``),
	}
	for i := len(texts); i < n; i++ {
		texts = append(texts, denyRule(fmt.Sprint("r", i), fmt.Sprintf(`'plan':'growth','route':'GET /v1/%d'`, i), ``))
	}
	s := mustCompile(t, nil, mustSet(t, texts...), 1, start)
	return s.Domain(""), map[string]string{"plan": "growth", "route": "GET /v1/labels/{id}", "api_key": "acct_7Q2", "ip": "203.0.113.9"}
}

func TestRequestPathDoesNotAllocate(t *testing.T) {
	d, attrs := manyRules(t, 100)
	dst := make([]*rules.Compiled, 0, 8)
	bound := make([]rules.Bound, 0, 8)
	c := d.Rule("plan")
	for name, f := range map[string]func(){
		"Match":     func() { d.Match(attrs, dst) },
		"KeyFrom":   func() { c.KeyFrom(attrs) },
		"Effective": func() { c.Effective("acct_7Q2", start) },
		"NotFresh":  func() { c.NotFresh("acct_7Q2", start) },
		"Resolve":   func() { _, _ = rules.Resolve(attrs, d.Match(attrs, dst), bound) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times, want 0", name, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1_000} {
		d, attrs := manyRules(b, n)
		dst := make([]*rules.Compiled, 0, 8)
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.Match(attrs, dst)
			}
		})
	}
}
