package yaml_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

const one = `rules:
  - id: growth
    match: {plan: growth}
    identity: api_key
    algorithm: token_bucket
    rate: 100
    burst: 200
`

func TestParse(t *testing.T) {
	t.Parallel()
	set, problems := yaml.Parse([]byte("\ufeff# rules\r\n---\r\n" + strings.ReplaceAll(one, "\n", "\r\n") + `  - id: "b"
    match: {"plan": 'it''s', route: "GET /a: b"}
    identity: [user, "ip"]
    algorithm: sliding_window
    limit: 5
    window_s: 60
    burst_factor: 1.5
    covers_all: false
    description: |
      two
      lines
overrides:
  - key: 007
    rule: growth
    rate: 5
    expires_at: 2030-01-01T00:00:00Z
  - key: [a, "5"]
    rule: b
    limit: 9
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if len(set.Rules) != 2 || len(set.Overrides) != 2 {
		t.Fatalf("%d rules and %d overrides, want 2 and 2", len(set.Rules), len(set.Overrides))
	}
	a, b := set.Rules[0], set.Rules[1]
	if a.ID != "growth" || a.Rate != 100 || a.At != (rules.Position{Line: 4, Column: 5}) {
		t.Errorf("first rule %+v", a)
	}
	if b.Match["plan"] != "it's" || b.Match["route"] != "GET /a: b" || b.BurstFactorMilli != 1500 ||
		fmt.Sprint(b.Identity) != "[user ip]" || b.Description != "two\nlines\n" {
		t.Errorf("second rule %+v", b)
	}
	if o := set.Overrides[0]; o.Key[0] != "007" || !o.ExpiresAt.Equal(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("first override %+v", o)
	}
	if o := set.Overrides[1]; fmt.Sprint(o.Key) != "[a 5]" {
		t.Errorf("second override %+v", o)
	}
}

func TestParseSkipsFaultyRulesAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, entry, want string }{
		{"UX-02 misspelt field", "    windows_s: 60", `9:5: rule "bad": windows_s: unknown field; did you mean "window_s"?`},
		{"UX-02 misspelt word", "    mode: enforced", `9:11: rule "bad": mode: "enforced" is none of enforce, shadow; did you mean "enforce"?`},
		{"OVF-07 burst", "    burst: 9007199254740993", `9:12: rule "bad": burst: 9007199254740993 is above 1000000000000; lower it`},
		{"OVF-07 rate 1e308", "    rate: 1e308", `9:11: rule "bad": rate: 1e308 is above 1000000000000; lower it`},
		{"OVF-07 limit 1e19", "    limit: 1e19", `9:12: rule "bad": limit: 1e19 is above 1000000000000; lower it`},
		{"OVF-07 more than 64 bits", "    limit: 99999999999999999999999", `9:12: rule "bad": limit: 99999999999999999999999 is above 1000000000000; lower it`},
		{"OVF-10 zero", "    limit: 0", `9:12: rule "bad": limit: 0 is below 1; raise it`},
		{"hexadecimal", "    rate: 0x10", `9:11: rule "bad": rate: "0x10" is not a number; write it in digits, without quotes`},
		{"octal", "    rate: 010", `9:11: rule "bad": rate: "010" is not a number; write it in digits, without quotes`},
		{"underscores", "    rate: 1_000", `9:11: rule "bad": rate: "1_000" is not a number; write it in digits, without quotes`},
		{"infinite", "    rate: .inf", `9:11: rule "bad": rate: ".inf" is not a number; write it in digits, without quotes`},
		{"fraction", "    rate: 1.5", `9:11: rule "bad": rate: 1.5 is not a whole number in digits; write one from 1 to 1000000000000`},
		{"nothing", "    rate:", `9:5: rule "bad": rate: has no value; give one or remove the field`},
		{"twice", "    rate: 1\n    rate: 2", `10:5: rule "bad": rate: is given twice; keep one`},
		{"inside match", "    match: {plan: 5}", `9:19: rule "bad": match.plan: 5 is not a text; put it in quotes`},
		{"inside identity", "    identity:\n      - a\n      - true", `11:9: rule "bad": identity[1]: true is not a text; put it in quotes`},
		{"on_change of a bucket", "    match: {a: b}\n    identity: k\n    algorithm: token_bucket\n    rate: 1\n    burst: 1\n    on_change: next_window", `14:16: rule "bad": on_change: is only for fixed_window and sliding_window, not token_bucket; remove it`},
		{"max_new_keys_per_s of none", "    max_new_keys_per_s: 0", `9:25: rule "bad": max_new_keys_per_s: 0 is below 1; raise it`},
		{"later", "    regions: {a: 0.5}", `9:5: rule "bad": regions: not supported yet; remove it`},
		{"missing fields", "    algorithm: token_bucket\n    match: {a: b}\n    identity: k", "8:5: rule \"bad\": rate: missing; token_bucket needs it"},
		{"whole rule", "    match: {a: '*'}\n    action: deny", `9:5: rule "bad": match: covers every route; name what it is for, or say covers_all: true`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, problems := yaml.Parse([]byte(one + "  - id: bad\n" + tt.entry + "\n" + strings.ReplaceAll(one[7:], "growth", "third")))
			if got := problems.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(set.Rules) != 2 || set.Rules[1].ID != "third" {
				t.Errorf("REL-07: %d good rules, want growth and third", len(set.Rules))
			}
			if len(set.Unread) != 1 || set.Unread[0].Rule != "bad" {
				t.Errorf("REL-07: unread %+v, want bad", set.Unread)
			}
		})
	}
}

func TestParseSkipsFaultyOverridesAlone(t *testing.T) {
	t.Parallel()
	set, problems := yaml.Parse([]byte(one + `overrides:
  - rule: growth
    key: a
    rate: 5
    until: tomorrow
  - rule: growth
    key: b
    rate: 5
  - just text
`))
	want := "12:5: rule \"growth\": until: unknown field; remove it\n16:5: overrides[2]: is not a map of fields; write id: and the other fields"
	if got := problems.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if len(set.Overrides) != 1 || set.Overrides[0].Key[0] != "b" || len(set.Unread) != 1 || set.Unread[0].Key[0] != "a" {
		t.Errorf("overrides %+v, unread %+v", set.Overrides, set.Unread)
	}
}

func TestParseRefusesAFileAsAWhole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, want string }{
		{"empty", "", "1:1: the file is empty; write rules: [] for none"},
		{"comments only", "# nothing\n", "1:1: the file is empty; write rules: [] for none"},
		{"a list", "- id: a\n", "1:1: the file is not a map; start with rules:"},
		{"a text", "rules\n", "1:1: the file is not a map; start with rules:"},
		{"misspelt list", one + "overides: []\n", "8:1: overides: unknown field; a rules file has rules and overrides"},
		{"list twice", one + "rules: []\n", "8:1: rules: is given twice; keep one"},
		{"no list", "rules: {a: b}\n", "1:1: rules: is not a list; start each entry with -"},
		{"no value", "rules:\n", "1:1: rules: has no value; write rules: [] for none"},
		{"two documents", one + "---\n" + one, "9:1: a second YAML document; keep one document in the file"},
		{"syntax", "rules:\n  - id: a: b\n", "2:9: mapping value is not allowed in this context; correct the YAML"},
		{"open bracket", "rules: [\n", "1:8: sequence end token ']' not found; correct the YAML"},
		{"tab", "rules:\n\t- id: a\n", "2:1: found character '\t' that cannot start any token; correct the YAML"},
		{"unquoted star", "rules:\n  - match: {plan: *}\n", "2:19: \"*\" starts a part of YAML (Alias) that rules files do without; write the value out, in quotes if it is text"},
		{"anchor", "rules: &a []\n", "1:8: \"&\" starts a part of YAML (Anchor) that rules files do without; write the value out, in quotes if it is text"},
		{"alias bomb", "a: &a [x,x]\nb: &b [*a,*a]\nrules: [*b,*b]\n", "1:4: \"&\" starts a part of YAML (Anchor) that rules files do without; write the value out, in quotes if it is text"},
		{"merge", "rules:\n  - <<: {id: a}\n", "2:5: \"<<\" starts a part of YAML (MergeKey) that rules files do without; write the value out, in quotes if it is text"},
		{"tag", "rules: !!seq []\n", "1:8: \"!!seq\" starts a part of YAML (Tag) that rules files do without; write the value out, in quotes if it is text"},
		{"NUL", one + "    owner: a\x00b\n", "8:13: control character U+0000; remove it"},
		{"invalid UTF-8", one + "    owner: \xff\n", "8:12: is not valid UTF-8; save the file as UTF-8"},
		{"too long", strings.Repeat("#", yaml.MaxFileBytes+1), "16777217 bytes are above 16777216; split the rules"},
		{"deep brackets", "rules: " + strings.Repeat("[", 1<<17), "1:39: nests deeper than 32 levels or has more than 1000 keys in a map; flatten it"},
		{"deep dashes", strings.Repeat("- ", 1<<17), "1:65: nests deeper than 32 levels or has more than 1000 keys in a map; flatten it"},
		{"deep maps", "rules: " + strings.Repeat("{a: ", 1<<17), "1:132: nests deeper than 32 levels or has more than 1000 keys in a map; flatten it"},
		{"many keys", strings.Repeat("a:\n", 20_000), "1001:2: nests deeper than 32 levels or has more than 1000 keys in a map; flatten it"},
		{"many keys in brackets", "{" + strings.Repeat("a: 1,\n", 20_000), "1001:2: nests deeper than 32 levels or has more than 1000 keys in a map; flatten it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, problems := yaml.Parse([]byte(tt.file))
			if got := problems.Error(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if len(set.Rules)+len(set.Overrides)+len(set.Unread) != 0 {
				t.Error("the set is not empty")
			}
		})
	}
}

func TestParseOfNoRules(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"rules: []\n", "overrides: []\n", "{}\n", "{rules: [], overrides: []}"} {
		if set, problems := yaml.Parse([]byte(text)); len(problems) > 0 || len(set.Rules) > 0 {
			t.Errorf("%q: %v", text, problems)
		}
	}
}

func TestExample(t *testing.T) {
	t.Parallel()
	set, problems := yaml.Parse(yaml.Example())
	problems = append(problems, rules.Lint(set, time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC))...)
	if len(problems) > 0 {
		t.Errorf("the example has problems:\n%v", problems)
	}
	if len(set.Rules) != 4 || len(set.Overrides) != 1 {
		t.Errorf("%d rules and %d overrides, want 4 and 1", len(set.Rules), len(set.Overrides))
	}
}

func TestParseOfManyRules(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 2_000 {
		b.WriteString(strings.ReplaceAll(one[7:], "growth", fmt.Sprint("rule-", i)))
	}
	if set, problems := yaml.Parse([]byte(b.String())); len(problems) > 0 || len(set.Rules) != 2_000 {
		t.Errorf("%d rules, problems %v", len(set.Rules), problems)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(yaml.Example())
	for _, s := range []string{
		one, "rules: [{id: a, match: {a: b}, action: deny}]", "overrides:\n- {key: [a, b], rule: r, rate: 1}", "rules: [", "? a\n: b",
		"rules:\n- - id: 1\n", "rules: &a [*a]", "\ufeff---\n...\n---\nrules: []", "rules:\n- id: >-\n    a\n", "rules: !!seq\n", "a: |\n\tb",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, problems := yaml.Parse(data)
		for _, p := range problems {
			if p.Message == "" || p.Line < 0 || strings.Contains(p.String(), "\n") || strings.HasPrefix(p.Message, "the YAML parser failed") {
				t.Fatalf("problem %+v", p)
			}
		}
		for _, r := range set.Rules {
			if err := r.Validate().Err(); err != nil {
				t.Fatalf("rule %+v is returned as good: %v", r, err)
			}
		}
		rules.Lint(set, time.Unix(0, 0))
	})
}

func TestNewBucketsAndPatterns(t *testing.T) {
	t.Parallel()
	set, problems := yaml.Parse([]byte(`
rules:
  - {id: w, match: {a: b}, identity: k, algorithm: fixed_window, limit: 5, window_s: 60, on_change: next_window, max_new_keys_per_s: off}
  - {id: i, match: {a: b}, identity: ip, algorithm: token_bucket, rate: 5, burst: 6, max_new_keys_per_s: 20}
overrides:
  - {rule: w, key: acct_*, limit: 7}
  - {rule: w, key: '*', limit: 8}
  - {rule: i, key: 2001:db8::/32, burst: 9}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	w, i := set.Rules[0], set.Rules[1]
	if w.OnChange != rules.OnChangeNextWindow || w.MaxNewKeysPerS != 0 || i.MaxNewKeysPerS != 20 || len(set.Overrides) != 3 {
		t.Errorf("got %+v, %+v and %d overrides", w, i, len(set.Overrides))
	}
	if _, problems := rules.Compile(nil, set, 1, time.Now()); len(problems) > 0 {
		t.Errorf("compiled: %v", problems)
	}
}
