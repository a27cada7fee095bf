package rules_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// start is when tests begin: a time with no meaning.
var start = time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)

// mustRule reads one rule in JSON; ' stands for ".
func mustRule(t testing.TB, text string) rules.Rule {
	t.Helper()
	r, problems := rules.ParseRule([]byte(strings.ReplaceAll(text, "'", `"`)))
	if len(problems) > 0 {
		t.Fatalf("rule %s: %v", text, problems)
	}
	return r
}

// mustSet reads rules and overrides in JSON, told apart by the field id.
func mustSet(t testing.TB, texts ...string) rules.Set {
	t.Helper()
	var set rules.Set
	for _, text := range texts {
		text = strings.ReplaceAll(text, "'", `"`)
		if strings.Contains(text, `"id"`) {
			r, problems := rules.ParseRule([]byte(text))
			if len(problems) > 0 {
				t.Fatalf("rule %s: %v", text, problems)
			}
			set.Rules = append(set.Rules, r)
			continue
		}
		o, problems := rules.ParseOverride([]byte(text))
		if len(problems) > 0 {
			t.Fatalf("override %s: %v", text, problems)
		}
		set.Overrides = append(set.Overrides, o)
	}
	return set
}

// mustCompile compiles a set that has no faults.
func mustCompile(t testing.TB, prev *rules.Snapshot, set rules.Set, revision int64, now time.Time) *rules.Snapshot {
	t.Helper()
	s, problems := rules.Compile(prev, set, revision, now)
	if err := problems.Err(); err != nil {
		t.Fatalf("compile: %v", err)
	}
	return s
}

func lines(problems rules.Problems) string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.String()
	}
	return strings.Join(out, "\n")
}

// unmarshal reads a rule as an API would, with encoding/json.
func unmarshal(text string) (rules.Rule, error) {
	var r rules.Rule
	err := json.Unmarshal([]byte(strings.ReplaceAll(text, "'", `"`)), &r)
	return r, err
}

// good is a rule to change in tests.
const good = `{'id':'r','match':{'plan':'growth'},'identity':'api_key','algorithm':'token_bucket','rate':100,'burst':200}`

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
