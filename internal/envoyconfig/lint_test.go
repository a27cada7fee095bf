package envoyconfig_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/envoyconfig"
)

func TestLint(t *testing.T) {
	t.Parallel()
	node := func(s string) string { return "domain: d\ndescriptors:\n" + s }
	const lim = "rate_limit: {unit: day, requests_per_unit: 1}"
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", golden[:strings.Index(golden, "  - key: path")], ""},
		{"misplaced", node("  - key: a\n    rate_limit:\n      shadow_mode: true\n      unit: day\n      requests_per_unit: 1"), "a.yaml:5:7: shadow_mode: nothing reads this key here: it belongs to a descriptor, beside key; move it there or remove it"},
		{"misplaced at the top", node("") + "unit: day", "a.yaml:3:1: unit: nothing reads this key here: it belongs into rate_limit"},
		{"no number", node("  - {key: a, rate_limit: {unit: day}}"), "a.yaml:3:14: rate_limit: has no requests_per_unit, so that every request is over the limit"},
		{"unlimited and more", node("  - {key: a, shadow_mode: true, rate_limit: {unlimited: true}}"), "unlimited: shadow_mode, quota_mode and requests_per_unit do nothing beside it"},
		{"shadow without limit", node("  - {key: a, shadow_mode: true}"), "shadow_mode: does nothing: the descriptor has no rate_limit"},
		{"shared without star", node("  - {key: a, value: x, share_threshold: true, " + lim + "}"), "share_threshold: does nothing without a * in the value"},
		{"two metrics", node("  - {key: a, detailed_metric: true, value_to_metric: true, " + lim + "}"), "value_to_metric: does nothing beside detailed_metric"},
		{"wildcard behind a wider one", node("  - {key: a, value: x*, " + lim + "}\n  - {key: a, value: xy*, " + lim + "}"), `a.yaml:4:6: value: never applies: "a_x*" at a.yaml:3:6 comes first and takes all its values`},
		{"default behind a star", node("  - {key: a, value: '*', " + lim + "}\n  - {key: a, " + lim + "}"), `a.yaml:4:6: value: never applies: "a_*"`},
		{"no children where others have", node("  - {key: a, value: x, " + lim + "}\n  - {key: a, descriptors: [{key: b, " + lim + "}]}"), `a.yaml:3:6: value: has no descriptors of its own, so that requests with more entries meet no limit: those of "a" at a.yaml:4:6 are not tried`},
		{"wildcard takes another key", node("  - {key: user, value: '*', " + lim + "}\n  - {key: user_id, " + lim + "}"), `a.yaml:3:6: key: an entry of key "user_id" (at a.yaml:4:6) can make the text "user_*" too`},
		{"value takes another key", node("  - {key: a, value: b_c, " + lim + "}\n  - {key: a_b, " + lim + "}"), `a.yaml:3:6: key: an entry of key "a_b"`},
		{"value takes another key whole", node("  - {key: a, value: b, " + lim + "}\n  - {key: a_b, value: c, " + lim + "}"), `a.yaml:3:6: key: an entry of key "a_b"`},
		{"replaces nobody", node("  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: x}]}}"), `no limit of the domain has the name "x"`},
		{"replaces an unlimited one", node("  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: x}]}}\n  - {key: b, rate_limit: {unlimited: true, name: x}}"), `"x" at a.yaml:4:6 is unlimited and cannot be replaced`},
		{"replace each other", node("  - {key: a, rate_limit: {unit: day, requests_per_unit: 1, name: y, replaces: [{name: x}]}}\n  - {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: x, replaces: [{name: y}]}}"), "together neither is counted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := envoyconfig.Lint(parse(t, tt.text))
			if tt.want == "" && len(got) > 0 || !strings.Contains(got.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", got, tt.want)
			}
		})
	}
}
