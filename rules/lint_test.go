package rules_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
)

func TestLint(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  []string
		want string
	}{
		{"nothing to say", []string{bucket("r", 1, 1), override("r", "k", `'rate':5,'expires_at':'2030-01-01T00:00:00Z'`)}, ``},
		{"faults too", []string{bucket("r", 1, 1), override("s", "k", `'rate':5`)}, `rule: there is no rule "s"; add the rule or remove the override`},
		{"covers_all", []string{denyRule("r", ``, ``)}, `match: covers every route, as covers_all says; check that this is meant`},
		{
			"override has ended",
			[]string{bucket("r", 1, 1), override("r", "k", `'rate':5,'expires_at':'2026-01-01T00:00:00Z'`)},
			`expires_at: the override ended at 2026-01-01T00:00:00Z; remove it`,
		},
		{
			"supersedes nothing",
			[]string{denyRule("r", `'a':'b'`, `'supersedes':['old']`)},
			`supersedes[0]: there is no rule "old"; remove it or add the rule`,
		},
		{
			"supersedes in another domain",
			[]string{denyRule("r", `'a':'b'`, `'supersedes':['old']`), denyRule("old", `'a':'b'`, `'domain':'x'`)},
			`supersedes[0]: rule "old" is in domain "x"; remove it: domains never meet`,
		},
		{
			"never applies",
			[]string{denyRule("wide", `'a':'b*'`, `'supersedes':['narrow']`), denyRule("narrow", `'a':'bc','x':'y'`, ``)},
			`never applies: rule "wide" supersedes it and matches wherever it does; narrow that rule or remove this one`,
		},
		{"applies elsewhere", []string{denyRule("wide", `'a':'b','c':'d'`, `'supersedes':['other']`), denyRule("other", `'a':'b'`, ``)}, ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := lines(rules.Lint(mustSet(t, tt.set...), start)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestProblemsSayWhere(t *testing.T) {
	t.Parallel()
	set := mustSet(t, bucket("r", 1, 1), bucket("r", 2, 2), override("r", "k", `'limit':1`))
	set.Rules[1].At = rules.Position{Line: 7, Column: 5}
	set.Overrides[0].At = rules.Position{Line: 9, Column: 5}
	_, problems := rules.Compile(nil, set, 1, time.Time{})
	want := "7:5: rule \"r\": id: \"r\" is taken by a rule before it; rename this one\n" +
		"9:5: rule \"r\": limit: is not a field of token_bucket; remove it or use sliding_window"
	if got := problems.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if problems.Err() == nil || rules.Problems(nil).Err() != nil || problems[:0].Err() != nil {
		t.Error("Err does not tell faults from none")
	}
}
