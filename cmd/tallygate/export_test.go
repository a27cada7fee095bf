package main_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	tallygate "github.com/tallygate/tallygate/cmd/tallygate"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

// What is exported is what apply finds nothing to change in.
func TestRulesExport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	database, file := "sqlite:"+filepath.Join(dir, "t.db"), filepath.Join(dir, "r.yaml")
	write(t, file, `rules:
  - id: growth
    domain: public-api
    description: "it's 10 %: #1, [a] {b} — über alles\n  two lines"
    owner: "123"
    match: {plan: growth, "x:y": "0x10", route: "GET /v1/{id}", n: "1e3"}
    identity: [api_key, route]
    algorithm: token_bucket
    rate: 100
    burst: 200
    pre_limit: {of: fair_share, times: 1.505}
    shed_floor: 0.05
    supersedes: [daily]
  - {id: daily, match: {plan: "true"}, identity: api_key, algorithm: fixed_window, limit: 10000, window: day, tz: Europe/Berlin, fail_mode: closed, closed_allow: [acct_9, "7"]}
  - {id: slide, covers_all: true, identity: ip, algorithm: sliding_window, limit: 5, window_s: 60, burst_factor: 1.5, mode: shadow}
  - {id: never, match: {ip: "192.0.2.*"}, action: deny}
overrides:
  - {rule: growth, key: [acct_1, "GET /"], burst: 1000, expires_at: "2099-01-31T00:00:00Z", reason: "launch: week"}
  - {rule: daily, key: "*@example.com", limit: 20000}
  - {rule: daily, key: "2099-01-31", limit: 20000}
  - {rule: slide, key: "2001:db8::/32", burst_factor: 2}
`)
	on(t, database, 0, "rules", "apply", file, "--yes")
	for _, output := range []string{"yaml", "json"} {
		out := on(t, database, 0, "rules", "export", "-o", output)
		write(t, file, out)
		has(t, on(t, database, 0, "rules", "apply", file, "--yes", "--prune"), "0 to add, 0 to change, 0 to delete")
		has(t, tg(t, "rules", "lint", file), "4 rules, 4 overrides: 0 errors")
		if again := on(t, database, 0, "rules", "export", "-o", output); again != out {
			t.Errorf("%s is\n%s\nand then\n%s", output, out, again)
		}
	}
	out := on(t, database, 0, "rules", "export", "daily", "slide")
	has(t, out, "  - id: daily\n", "    match: {plan: \"true\"}\n", "    limit: 10000\n", "    identity: [ip]\n", "overrides:\n  - key: ")
	if strings.Contains(out, "growth") || strings.Contains(out, "version") {
		t.Errorf("more than was named:\n%s", out)
	}
	has(t, on(t, database, 1, "rules", "export", "daily", "none"), `rule "none": is not there`)
	has(t, on(t, database, 2, "rules", "export", "-o", "table"), `"table" is none of yaml, json`)
}

// Any text comes back as it was, also what YAML has a meaning for.
func TestRulesExport_anyText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"123", "0x10", "true", "NO", "null", "~", "1_000", "1e3", ".5", "+1", "0o7", "2027-01-01", "12:30", "a: b", "#x", "x #y", "- x", "-", "--- x", "...",
		"[x", "{x", "a,b", "a]b", "é😀", "<b>&", "a\nb\n", "a\r\nb", "\ttab", "trail ", " lead", "'q'", `"dq"`, `\n`, "|", "> x", "%x", "@x", "`x", "!x", "&x", "*x", "?", "=", "<<",
		"a\u2028b", "\u0085x", "\u007f", "\ufeffx", "plain", "two words", "GET /v1/labels", strings.Repeat("long ", 200) + "x",
	} {
		backAndForth(t, text)
	}
	rapid.Check(t, func(t *rapid.T) { backAndForth(t, rapid.StringN(1, 40, -1).Draw(t, "text")) })
}

// backAndForth writes a rule and an override with a text in them, and reads them.
func backAndForth(t interface {
	Helper()
	Errorf(format string, args ...any)
}, text string,
) {
	t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Errorf("%v", err)
	}
	rule := fmt.Sprintf(`{"id":"a","description":%[1]s,"owner":%[1]s,"match":{"plan":%[1]s,"also":"x"},"identity":["k"],"algorithm":"token_bucket","rate":1,"burst":5}`, quoted)
	override := fmt.Sprintf(`{"key":[%[1]s,"x"],"rule":"a","burst":7,"reason":%[1]s}`, quoted)
	o, faults := rules.ParseOverride([]byte(override))
	r, more := rules.ParseRule([]byte(rule))
	if len(faults.Faults())+len(more.Faults()) > 0 {
		return // no rule has such a text
	}
	rule, override = marshaled(t, r), marshaled(t, o)
	for _, output := range []string{"yaml", "json"} {
		file, err := tallygate.WriteRulesFile([]json.RawMessage{json.RawMessage(rule)}, []json.RawMessage{json.RawMessage(override)}, output)
		if err != nil {
			t.Errorf("%q as %s: %v\n%s", text, output, err, file)
			continue
		}
		set, problems := yaml.Parse(file)
		if len(problems.Faults()) > 0 || set.Rules[0].Owner != text || set.Rules[0].Match["plan"] != text || set.Overrides[0].Key[0] != text || set.Overrides[0].Reason != text {
			t.Errorf("%q as %s: %v\n%s", text, output, problems, file)
		}
	}
}

func marshaled(t interface{ Errorf(string, ...any) }, v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		t.Errorf("%v", err)
	}
	return string(text)
}

// What would not read back is not exported.
func TestRulesExport_compares(t *testing.T) {
	t.Parallel()
	if text, err := tallygate.WriteRulesFile([]json.RawMessage{json.RawMessage(`{"id":"a","no_field":1}`)}, nil, "yaml"); err == nil {
		t.Errorf("got\n%s", text)
	}
}

// A candidate, and an override that does not fit any more, are told.
func TestRulesExport_warns(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	on(t, database, 0, "overrides", "add", "--rule", "a", "--key", "k", "--burst", "50")
	write(t, file, "rules:\n"+ruleLine("a", "algorithm: sliding_window, limit: 5, window_s: 60"))
	on(t, database, 0, "rules", "apply", file, "--yes", "--stage", "shadow")
	has(t, on(t, database, 0, "rules", "export"), "warning: the candidate of rule a (shadow) is not in a rules file")
	on(t, database, 0, "rules", "promote", "a", "--force")
	has(t, on(t, database, 0, "rules", "export"), "warning: rules apply will refuse this: ", "burst")
}

// Older versions can be seen, and brought back.
func TestRules_versions(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	for _, burst := range []int64{6, 7} {
		write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, burst)))
		on(t, database, 0, "rules", "apply", file, "--yes")
	}
	has(t, on(t, database, 0, "rules", "get", "a", "--version", "1"), `"burst": 5`)
	has(t, on(t, database, 0, "rules", "get", "a", "--version", "2", "-o", "json"), `"burst": 6`, `"action": "put"`)
	has(t, on(t, database, 1, "rules", "get", "a", "--version", "9"), "a")
	has(t, on(t, database, 2, "rules", "get", "a", "--version", "0"), "--version 0 is no version")

	has(t, on(t, database, 0, "rules", "rollback", "a", "--to", "1"), "    ~ burst: 7 → 5\n", "rule a is at version 4")
	has(t, on(t, database, 0, "rules", "history", "a", "--limit", "1"), "back to version 1")
	has(t, on(t, database, 0, "rules", "rollback", "a", "--to", "1"), "as it was at version 1, at version 4: nothing was changed")
	has(t, on(t, database, 0, "rules", "rollback", "a", "--to", "2", "--why", "as before"), "~ burst: 5 → 6")
	has(t, on(t, database, 0, "rules", "history", "a", "--limit", "1"), "as before")
	on(t, database, 2, "rules", "rollback", "a", "--to", "0")
	on(t, database, 1, "rules", "rollback", "a", "--to", "9")

	on(t, database, 0, "rules", "apply", file, "--yes", "--stage", "shadow")
	has(t, on(t, database, 1, "rules", "rollback", "a", "--to", "1"), "has a candidate (shadow): drop it first")
	on(t, database, 0, "rules", "delete", "a", "--yes")
	on(t, database, 0, "rules", "apply", file, "--yes")
	has(t, on(t, database, 1, "rules", "get", "a", "--version", "7"), "at version 7 rule a was deleted")
}

// Who applies a file gets to know of the candidates that it does not speak of.
func TestApply_candidates(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	next := filepath.Join(t.TempDir(), "next.yaml")
	write(t, next, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	on(t, database, 0, "rules", "apply", next, "--yes", "--stage", "shadow")
	has(t, on(t, database, 0, "rules", "apply", file, "--yes"), "0 to change", "rule a has a candidate (shadow), which stays as it is")
	has(t, on(t, database, 0, "rules", "apply", next, "--yes", "--stage", "shadow"), "0 to change", "rule a has a candidate (shadow), which stays as it is")
	on(t, database, 0, "rules", "canary", "a", "10")
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 7)))
	has(t, on(t, database, 0, "rules", "apply", file, "--dry-run"), "    ~ max_cost: 5 → 7\n    its candidate (canary 10 %) stays, and its trial begins anew\n")
	has(t, on(t, database, 0, "rules", "apply", file, "--yes", "--stage", "shadow"), "takes the place of a candidate (canary 10 %); its trial begins in shadow")
	write(t, file, "rules: []\n")
	has(t, on(t, database, 0, "rules", "apply", file, "--dry-run", "--prune"), "- rule a\n    its candidate (shadow) goes with it\n")
}
