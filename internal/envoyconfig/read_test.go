package envoyconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/envoyconfig"
	"github.com/tallygate/tallygate/rules"
)

func TestRefuses(t *testing.T) {
	t.Parallel()
	node := func(s string) string { return "domain: d\ndescriptors:\n  - key: a\n" + s }
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "a.yaml:1:1: the file is empty; write a domain and its descriptors"},
		{"no map", "- a", "a.yaml:1:1: the file is not a map; start with domain:"},
		{"no domain", "descriptors: []", "a.yaml:1:1: domain: the file has no domain; write domain: and its name"},
		{"second document", "domain: d\n---\ndomain: e", "a.yaml:3:1: a second YAML document; keep one document in the file"},
		{"unknown key", node("    rate_limt: {}"), `a.yaml:4:5: rate_limt: unknown key; did you mean "rate_limit"?`},
		{"unknown key of ours", node("    unit_multiplier: 2"), "a.yaml:4:5: unit_multiplier: unknown key; remove it"},
		{"unknown key in a misplaced map", node("    unit: {a: b}"), "a.yaml:4:12: a: unknown key"},
		{"key twice", node("    key: b"), "a.yaml:4:5: key: is given twice; keep one"},
		{"no key", "domain: d\ndescriptors:\n  - value: a", "a.yaml:3:5: key: the descriptor has no key"},
		{"float", node("    value: 1.5"), "a.yaml:4:12: value: 1.5 is an unquoted float; put it in quotes"},
		{"float in a misplaced key", node("    unit: 1e3"), "a.yaml:4:11: unit: 1e3 is an unquoted float"},
		{"no list", node("    descriptors: {key: b}"), "a.yaml:4:5: descriptors: is not a list; start each entry with -"},
		{"list of texts", node("    descriptors: [b]"), "a.yaml:4:19: descriptors: the list holds something that is not a map"},
		{"unit", node("    rate_limit: {unit: fortnight, requests_per_unit: 1}"), `a.yaml:4:18: unit: invalid rate limit unit "fortnight"`},
		{"no unit", node("    rate_limit: {requests_per_unit: 1}"), `a.yaml:4:5: unit: invalid rate limit unit ""`},
		{"unlimited with unit", node("    rate_limit: {unlimited: true, unit: day}"), "a.yaml:4:35: unit: an unlimited limit has no unit"},
		{"negative", node("    rate_limit: {unit: day, requests_per_unit: -1}"), `requests_per_unit: "-1" is not a whole number from 0 to 4294967295`},
		{"too many", node("    rate_limit: {unit: day, requests_per_unit: 4294967296}"), "is not a whole number from 0 to 4294967295"},
		{"quoted number", node("    rate_limit: {unit: day, requests_per_unit: '5'}"), `"5" is not a whole number`},
		{"quoted truth", node("    shadow_mode: 'true'"), "a.yaml:4:18: shadow_mode: is neither true nor false"},
		{"replaces nobody", node("    rate_limit: {unit: day, replaces: [{name: ''}]}"), "replaces: an entry has no name"},
		{"replaces itself", node("    rate_limit: {unit: day, name: x, replaces: [{name: x}]}"), "replaces: a limit cannot replace itself"},
		{"duplicate", node("  - key: a"), `a.yaml:4:5: key: duplicate descriptor composite key "d.a", taken at a.yaml:3:5; keep one`},
		{"collision", node("    value: b_c\n  - key: a_b\n    value: c"), `duplicate descriptor composite key "d.a_b_c", taken at a.yaml:3:5; rename a key: key "a" and key "a_b" make the same text key_value`},
		{"no such anchor", node("    rate_limit: *x"), `there is no anchor "x"`},
		{"circle of anchors", node("    descriptors: &x [{key: b, descriptors: *x}]"), "descriptors: nest deeper than 32"},
		{"tag", node("    value: !!str x"), `"!!str" starts a part of YAML (Tag) that configuration files do without`},
		{"control character", node("    value: \"\x01\""), "control character U+0001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseErr(envoyconfig.ReadOptions{}, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestDomainInTwoFiles(t *testing.T) {
	t.Parallel()
	one := "domain: d\ndescriptors:\n  - {key: a, value: x*, rate_limit: {unit: day, requests_per_unit: 1}}"
	two := "domain: d\ndescriptors:\n  - {key: a, value: '*y', rate_limit: {unit: day, requests_per_unit: 2}}"
	if _, err := parseErr(envoyconfig.ReadOptions{}, one, two); err == nil || !strings.Contains(err.Error(), `b.yaml:1:1: domain: "d" is in a.yaml:1:1 already`) {
		t.Errorf("got %v, want a fault", err)
	}
	tree := parse(t, one, two)
	if m, _ := tree.Match("d", request("a=xy")); m == nil || m.Limit.RequestsPerUnit != 1 {
		t.Errorf("got %+v, want the wildcard of the first file", m)
	}
	if m, _ := tree.Match("d", request("a=y")); m == nil || m.Node.At.File != "b.yaml" {
		t.Errorf("got %+v, want the one of the second file", m)
	}
	if _, err := parseErr(envoyconfig.ReadOptions{MergeDomains: true}, one, one); err == nil || !strings.Contains(err.Error(), "b.yaml:3:6: key: duplicate") {
		t.Errorf("got %v, want the duplicate", err)
	}
}

func TestSpellingsOfValues(t *testing.T) {
	t.Parallel()
	tree := parse(t, `---
domain: d
descriptors:
  - &first
    key: a
    value: 007
    shadow_mode: Yes
    rate_limit: &limit {unit: MINUTE, requests_per_unit: 5}
  - <<: *first
    value: true
  - key: b
    value: ~
    rate_limit: *limit
    metadata: {free: {text: 1.5}}
`)
	for req, shadow := range map[string]bool{"a=007": true, "a=true": true, "b=x": false} {
		m, _ := tree.Match("d", request(req))
		if m == nil || m.Shadow != shadow || m.Limit.RequestsPerUnit != 5 || m.Limit.Unit != envoyconfig.Minute {
			t.Errorf("%s: %+v", req, m)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	deep := "domain: d\n"
	for i := range envoyconfig.MaxDepth + 1 {
		deep += strings.Repeat("  ", i) + "descriptors:\n" + strings.Repeat("  ", i) + "- key: a\n"
	}
	bomb := "domain: d\ndescriptors:\n- &a0 {key: k}\n"
	for i := 1; i < 20; i++ {
		bomb += fmt.Sprintf("- &a%d {key: k%d, descriptors: [*a%d, {key: x, descriptors: [*a%d]}]}\n", i, i, i-1, i-1)
	}
	patterns := "domain: d\ndescriptors:\n"
	for i := range envoyconfig.MaxPatterns + 1 {
		patterns += fmt.Sprintf("- {key: a, value: x%dx*}\n", i)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"patterns": {patterns, "a.yaml:1003:4: value: more than 1000 values with a * of key"},
		"deep":     {deep, "nest deeper than 32"},
		"bomb":     {bomb, "more than 500000 keys"},
		"long":     {strings.Repeat("#", envoyconfig.MaxFileBytes+1), "bytes are above 4194304; split the configuration"},
		"lists":    {"domain: d\nmetadata: {}\ndescriptors:\n- {key: a, metadata: &m {x: &l [*l, *l]}}", "more than 500000 keys"},
		"yaml":     {"domain: " + strings.Repeat("[", 200), "nests deeper than"},
	} {
		if _, err := parseErr(envoyconfig.ReadOptions{}, tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %.300v, want %s", name, err, tt.want)
		}
	}
}

func TestReadOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := envoyconfig.Read(dir, envoyconfig.ReadOptions{}); err == nil {
		t.Error("an empty directory is read")
	}
	if _, err := envoyconfig.Read(filepath.Join(dir, "none"), envoyconfig.ReadOptions{}); !os.IsNotExist(err) {
		t.Errorf("no such path: %v", err)
	}
	for name, text := range map[string]string{
		"b.yml": "domain: b", "a.yaml": "domain: a", ".hidden.yaml": "no: 1", "readme.txt": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := envoyconfig.Read(dir, envoyconfig.ReadOptions{})
	if err != nil || len(tree.Domains) != 2 || tree.Domains[0].Name != "a" {
		t.Fatalf("%+v: %v", tree, err)
	}
	if lint := envoyconfig.Lint(tree); len(lint) != 1 || lint[0].File != "readme.txt" {
		t.Errorf("lint: %v, want that readme.txt is not read", lint)
	}
	if tree, err = envoyconfig.Read(filepath.Join(dir, "b.yml"), envoyconfig.ReadOptions{}); err != nil || tree.Domains[0].Name != "b" {
		t.Errorf("one file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(golden), true)
	f.Add([]byte(replacing), false)
	for _, s := range []string{
		"domain: d\ndescriptors: &x [{key: a, descriptors: *x}]", "domain: d\n<<: [{descriptors: []}]", "domain: [", "domain: &a",
		"domain: d\ndescriptors:\n- key: '*'\n  value: '*'\n  rate_limit: {unlimited: true}", "domain: d\nmetadata: {a: [*b]}",
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, calendar bool) {
		tree, err := envoyconfig.Parse([]envoyconfig.File{{Name: "f", Data: data}}, envoyconfig.ReadOptions{})
		if err != nil {
			if text := err.Error(); strings.Contains(text, "the YAML parser failed") {
				t.Fatal(text)
			}
			return
		}
		envoyconfig.Lint(tree)
		im, err := envoyconfig.Import(tree, envoyconfig.Options{CalendarWindows: calendar})
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, r := range im.Set.Rules {
			if err := r.Validate().Err(); err != nil || seen[r.ID] {
				t.Fatalf("rule %+v (taken: %v): %v", r, seen[r.ID], err)
			}
			seen[r.ID] = true
		}
		if _, err := im.RulesYAML(); err != nil {
			t.Fatal(err)
		}
	})
}

var _ rules.Source = (*envoyconfig.Source)(nil)
