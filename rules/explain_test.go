package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// Meet says of each rule that matches whether it applies, and else because of which.
func TestDomainMeet(t *testing.T) {
	t.Parallel()
	rule := func(id, route string, mode rules.Mode, supersedes ...string) rules.Rule {
		return rules.Rule{
			ID: id, CoversAll: true, Match: map[string]string{"route": route}, Identity: []string{"user"}, Algorithm: limit.TokenBucket,
			Numbers: rules.Numbers{Rate: 1, Burst: 1}, Supersedes: supersedes, Mode: mode,
		}
	}
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{
		rule("plan", "*", ""), rule("team", "/a*", "", "plan"), rule("person", "/ab*", "", "team"),
		rule("quiet", "*", rules.ModeShadow, "plan", "person"), rule("elsewhere", "/z", ""),
	}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"/x":  {"plan by ", "quiet by "},
		"/a":  {"plan by team", "team by ", "quiet by "},
		"/ab": {"plan by ", "team by person", "person by ", "quiet by "}, // what does not apply supersedes nothing
	} {
		attrs := map[string]string{"route": name}
		domain := snapshot.Domain("")
		var got, applies, matched []string
		for _, m := range domain.Meet(attrs) {
			by := ""
			if m.SupersededBy != nil {
				by = m.SupersededBy.ID()
			} else {
				applies = append(applies, m.Rule.ID())
			}
			got = append(got, m.Rule.ID()+" by "+by)
		}
		for _, c := range domain.Match(attrs, nil) {
			matched = append(matched, c.ID())
		}
		if !slices.Equal(got, want) || !slices.Equal(applies, matched) {
			t.Errorf("%s: %q, want %q; Match says %q", name, got, want, matched)
		}
	}
}

// The override of a key is the one in force, until it ends.
func TestCompiledOverride(t *testing.T) {
	t.Parallel()
	now := time.Now()
	snapshot, problems := rules.Compile(nil, rules.Set{
		Rules:     []rules.Rule{{ID: "r", CoversAll: true, Identity: []string{"user"}, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 1}}},
		Overrides: []rules.Override{{Rule: "r", Key: []string{"big"}, Numbers: rules.Numbers{Burst: 9}, ExpiresAt: now.Add(time.Hour), Reason: "launch"}},
	}, 1, now)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	rule := snapshot.Rule("r")
	if o := rule.Override("big", now); o == nil || o.Reason != "launch" {
		t.Errorf("%+v, want the override", o)
	}
	if o := rule.Override("big", now.Add(time.Hour)); o != nil {
		t.Errorf("%+v after its end", o)
	}
	if o := rule.Override("small", now); o != nil {
		t.Errorf("%+v for another key", o)
	}
}
