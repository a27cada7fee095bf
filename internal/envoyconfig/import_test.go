package envoyconfig_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/envoyconfig"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

func rule(im *envoyconfig.Imported, id string) *rules.Rule {
	for i := range im.Set.Rules {
		if im.Set.Rules[i].ID == id {
			return &im.Set.Rules[i]
		}
	}
	return nil
}

func ids(im *envoyconfig.Imported) string {
	var out []string
	for _, r := range im.Set.Rules {
		out = append(out, r.ID)
	}
	return strings.Join(out, " ")
}

func one(limit string) string {
	return "domain: d\ndescriptors:\n  - key: a\n    rate_limit: " + limit + "\n"
}

func TestImportOfNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, limit string
		opts        envoyconfig.Options
		want        rules.Numbers
		maxCost     int64
		verdict     envoyconfig.Verdict
	}{
		{"minute", "{unit: minute, requests_per_unit: 5}", envoyconfig.Options{}, rules.Numbers{Limit: 5, WindowS: 60}, 5, envoyconfig.Kept},
		{"week", "{unit: week, requests_per_unit: 5}", envoyconfig.Options{}, rules.Numbers{Limit: 5, WindowS: 604_800}, 5, envoyconfig.Kept},
		{"month", "{unit: month, requests_per_unit: 5}", envoyconfig.Options{}, rules.Numbers{Limit: 5, WindowS: 30 * 86_400}, 5, envoyconfig.Kept},
		{"year", "{unit: year, requests_per_unit: 5}", envoyconfig.Options{}, rules.Numbers{Limit: 5, WindowS: 365 * 86_400}, 5, envoyconfig.Kept},
		{"largest", "{unit: day, requests_per_unit: 4294967295}", envoyconfig.Options{}, rules.Numbers{Limit: 4_294_967_295, WindowS: 86_400}, limit.MaxCost, envoyconfig.Kept},
		{"calendar week", "{unit: week, requests_per_unit: 5}", envoyconfig.Options{CalendarWindows: true}, rules.Numbers{Limit: 5, Window: "week"}, 5, envoyconfig.Differs},
		{"calendar day is the same", "{unit: day, requests_per_unit: 5}", envoyconfig.Options{CalendarWindows: true}, rules.Numbers{Limit: 5, WindowS: 86_400}, 5, envoyconfig.Kept},
		{"no calendar year", "{unit: year, requests_per_unit: 5}", envoyconfig.Options{CalendarWindows: true}, rules.Numbers{Limit: 5, WindowS: 365 * 86_400}, 5, envoyconfig.Differs},
		{"bucket", "{unit: minute, requests_per_unit: 60}", envoyconfig.Options{Algorithm: limit.TokenBucket}, rules.Numbers{Rate: 60, PerS: 60, Burst: 60}, 60, envoyconfig.Differs},
		{"bucket of a year", "{unit: year, requests_per_unit: 365}", envoyconfig.Options{Algorithm: limit.TokenBucket}, rules.Numbers{Rate: 1, PerS: 86_400, Burst: 365}, 365, envoyconfig.Differs},
		{"bucket above the bounds", "{unit: year, requests_per_unit: 1}", envoyconfig.Options{Algorithm: limit.TokenBucket}, rules.Numbers{Limit: 1, WindowS: 365 * 86_400}, 1, envoyconfig.Differs},
		{"sliding", "{unit: hour, requests_per_unit: 5}", envoyconfig.Options{Algorithm: limit.SlidingWindow}, rules.Numbers{Limit: 5, WindowS: 3_600}, 5, envoyconfig.Differs},
		{"sliding above the bounds", "{unit: year, requests_per_unit: 5}", envoyconfig.Options{Algorithm: limit.SlidingWindow}, rules.Numbers{Limit: 5, WindowS: 365 * 86_400}, 5, envoyconfig.Differs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			im := imported(t, tt.opts, one(tt.limit))
			r := rule(im, "d.a")
			if r == nil || r.Numbers != tt.want || r.MaxCost != tt.maxCost {
				t.Errorf("rule %+v, want %+v, max_cost %d", r, tt.want, tt.maxCost)
			}
			if !hasNote(im, "rate_limit:", tt.verdict, "") {
				t.Errorf("notes %v, want rate_limit to be %s", im.Notes, tt.verdict)
			}
		})
	}
}

func TestImportOfActionsAndModes(t *testing.T) {
	t.Parallel()
	im := imported(t, envoyconfig.Options{}, `domain: d
descriptors:
  - {key: free, rate_limit: {unlimited: true}}
  - {key: blocked, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
`)
	if r := rule(im, "d.free"); r == nil || r.Action != rules.ActionAllow {
		t.Errorf("unlimited: %+v, want action allow", r)
	}
	if r := rule(im, "d.blocked"); r == nil || r.Action != rules.ActionDeny {
		t.Errorf("0: %+v, want action deny", r)
	}
	if r := rule(im, "d.shadow"); r == nil || r.Mode != rules.ModeShadow {
		t.Errorf("shadow_mode: %+v, want mode shadow", r)
	}
	if r := rule(im, "d.quota"); r == nil || r.Mode == rules.ModeShadow || !hasNote(im, "quota_mode: true", envoyconfig.Differs, "refuses alone") {
		t.Errorf("quota_mode: %+v, want an enforced rule and a note", r)
	}
}

func TestImportOfWhatHides(t *testing.T) {
	t.Parallel()
	im := imported(t, envoyconfig.Options{}, golden)
	if got, want := ids(im), "mongo_cps.database.users mongo_cps.database mongo_cps.path._aany-"; !strings.HasPrefix(got, want) {
		t.Errorf("ids %s, want %s…", got, want)
	}
	users := rule(im, "mongo_cps.database.users")
	if !reflect.DeepEqual(users.Match, map[string]string{"database": "users", "envoy.path": "database"}) ||
		!reflect.DeepEqual(users.Identity, []string{"envoy.path"}) || !reflect.DeepEqual(users.Supersedes, []string{"mongo_cps.database"}) {
		t.Errorf("an exact value: %+v", users)
	}
	if r := rule(im, "mongo_cps.database"); !reflect.DeepEqual(r.Identity, []string{"database"}) || len(r.Supersedes) > 0 {
		t.Errorf("a default: %+v", r)
	}
	stand := rule(im, "mongo_cps.outer.inner.free.none")
	if stand == nil || stand.Action != rules.ActionAllow || !reflect.DeepEqual(stand.Supersedes, []string{"mongo_cps.outer.inner"}) {
		t.Errorf("a value without limit: %+v, want an allow that supersedes the default", stand)
	}
	if im.Nodes["mongo_cps.outer.inner.free.none"] != nil || im.Nodes["mongo_cps.outer.inner"] == nil {
		t.Error("Nodes holds rules of limits, and only these")
	}
	if rule(im, "mongo_cps.path._abany-") != nil || !strings.Contains(im.Text(), `can never apply: "path_/a*" at a.yaml:8:5 takes all of "path_/ab*"`) {
		t.Errorf("a wildcard behind a wider one is imported, or nothing is said:\n%s", im.Text())
	}
}

// TestIDsDependOnTheirOwnNodes: a counter is named by its rule, so that an id must not
// change with something else in the file.
func TestIDsDependOnTheirOwnNodes(t *testing.T) {
	t.Parallel()
	limit := ", rate_limit: {unit: day, requests_per_unit: 1}}\n"
	a, b := "  - {key: p, value: a/b"+limit, "  - {key: p, value: a b"+limit
	head := "domain: d\ndescriptors:\n"
	first := ids(imported(t, envoyconfig.Options{}, head+a+b))
	second := ids(imported(t, envoyconfig.Options{}, head+b+a))
	x, y, _ := strings.Cut(first, " ")
	if second != y+" "+x || x == y {
		t.Errorf("ids %q and %q, want the same two", first, second)
	}
	long := ids(imported(t, envoyconfig.Options{}, head+"  - {key: "+strings.Repeat("k", 127)+", value: "+strings.Repeat("v", 300)+limit))
	if len(long) != rules.MaxIDBytes {
		t.Errorf("id of %d bytes, want it cut at %d", len(long), rules.MaxIDBytes)
	}
	same := ids(imported(t, envoyconfig.Options{}, head+"  - {key: p, value: q"+limit+"  - {key: p, descriptors: [{key: q"+strings.TrimSpace(limit)+"]}\n"))
	if first, second, _ := strings.Cut(same, " "); first != "d.p.q" || !strings.HasPrefix(second, "d.p.q-") {
		t.Errorf("ids %s, want them told apart", same)
	}
}

func TestImportOfOtherDomains(t *testing.T) {
	t.Parallel()
	text := strings.Replace(one("{unit: day, requests_per_unit: 1}"), "domain: d", "domain: edge/eu", 1)
	im := imported(t, envoyconfig.Options{}, text)
	if d := im.Set.Rules[0].Domain; !strings.HasPrefix(d, "edge_eu-") || !hasNote(im, "domain: edge/eu", envoyconfig.Differs, d) {
		t.Errorf("domain %q, notes %v", d, im.Notes)
	}
	im = imported(t, envoyconfig.Options{Domain: "e"}, text, "domain: e")
	if len(im.Set.Rules) != 0 || !hasNote(im, "domain: edge/eu", envoyconfig.Ignored, "another domain") {
		t.Errorf("%d rules of another domain", len(im.Set.Rules))
	}
	if _, err := envoyconfig.Import(parse(t, text), envoyconfig.Options{Domain: "x"}); err == nil {
		t.Error("an unknown domain is imported")
	}
	if _, err := envoyconfig.Import(parse(t, text), envoyconfig.Options{Algorithm: limit.SlidingLog}); err == nil {
		t.Error("algorithm sliding_log is taken")
	}
}

func TestWhatCannotBeImportedIsNoted(t *testing.T) {
	t.Parallel()
	deep := "domain: d\n"
	for i := range 16 {
		in := strings.Repeat("  ", i)
		deep += fmt.Sprintf("%sdescriptors:\n%s- key: k%d\n%s  value: v\n", in, in, i, in)
	}
	deep += strings.Repeat("  ", 16) + "rate_limit: {unit: day, requests_per_unit: 1}\n"
	wide := "domain: d\n"
	for i := range 5 {
		in := strings.Repeat("  ", i)
		wide += fmt.Sprintf("%sdescriptors:\n%s- key: k%d\n", in, in, i)
	}
	wide += strings.Repeat("  ", 5) + "rate_limit: {unit: day, requests_per_unit: 1}\n"
	for name, tt := range map[string]struct{ text, why string }{
		"17 conditions":    {deep, "17 attributes are above 16"},
		"5 values counted": {wide, "5 names are above 4"},
		"star in the key":  {"domain: d\ndescriptors: [{key: a*, rate_limit: {unit: day, requests_per_unit: 1}}]", `key "a*" has a *`},
	} {
		im := imported(t, envoyconfig.Options{}, tt.text)
		if len(im.Set.Rules) != 0 || !hasNote(im, "rate_limit:", envoyconfig.Ignored, tt.why) {
			t.Errorf("%s: %d rules\n%s", name, len(im.Set.Rules), im.Text())
		}
	}
	im := imported(t, envoyconfig.Options{}, "domain: d\ndescriptors: [{key: ip, rate_limit: {unit: day, requests_per_unit: 1}}]")
	if len(im.Set.Rules) != 1 || !hasNote(im, "rate_limit:", envoyconfig.Differs, "counts by address") {
		t.Errorf("an entry called ip:\n%s", im.Text())
	}
}

// TestAllHidden: more values than a list of supersedes holds are still all hidden.
func TestAllHidden(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n  - {key: a, value: free}\n  - key: a\n    descriptors:\n")
	for i := range 2*rules.MaxSupersedes + 10 {
		fmt.Fprintf(&b, "      - {key: b, value: v%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	im := imported(t, envoyconfig.Options{}, b.String())
	snapshot, problems := rules.Compile(nil, im.Set, 1, time.Unix(0, 0))
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	for _, value := range []string{"v0", "v1500", "v2009"} {
		for first, want := range map[string]int{"free": 0, "paid": 1} {
			n := 0
			for _, c := range snapshot.Domain("d").Match(envoyconfig.Attributes(request("a="+first+",b="+value).Entries), nil) {
				if im.Nodes[c.ID()] != nil {
					n++
				}
			}
			if n != want {
				t.Errorf("a=%s,b=%s meets %d limits, want %d", first, value, n, want)
			}
		}
	}
}

func TestTooManyLinksAreRefused(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 800 {
		fmt.Fprintf(&b, "  - {key: a, value: free%d}\n", i)
	}
	b.WriteString("  - key: a\n    descriptors:\n")
	for i := range 800 {
		fmt.Fprintf(&b, "      - {key: b, value: v%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	if _, err := envoyconfig.Import(parse(t, b.String()), envoyconfig.Options{}); err == nil || !strings.Contains(err.Error(), "more than 500000 entries of supersedes") {
		t.Errorf("got %v, want a bound", err)
	}
}

// TestEveryLineHasANote: what is in the report is what is in the files.
func TestEveryLineHasANote(t *testing.T) {
	t.Parallel()
	text := `# comments need none
domain: d
descriptors:
  - key: first
    rate_limit:
      unit: second
      shadow_mode: true
      requests_per_unit: 1
      name: first
    descriptors:
      - key: a
        value: x*
        share_threshold: true
  - key: last
    value: v
    shadow_mode: true
    quota_mode: false
    detailed_metric: true
    value_to_metric: true
    metadata:
      owner:
        - team: a
    rate_limit:
      unlimited: true
      name: last
      replaces:
        - name: first
`
	im := imported(t, envoyconfig.Options{}, text)
	noted := map[int]bool{}
	for _, n := range im.Notes {
		noted[n.Line] = true
		if n.Verdict != envoyconfig.Kept && n.Why == "" {
			t.Errorf("%v: no reason", n)
		}
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.Trim(line, " ") != "" && line[0] != '#' && !noted[i+1] {
			t.Errorf("line %d has no note: %s", i+1, line)
		}
	}
	if !hasNote(im, "shadow_mode: true", envoyconfig.Ignored, "nothing reads it in this place") {
		t.Error("a misplaced key is not noted")
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	im := imported(t, envoyconfig.Options{}, one("{unit: week, requests_per_unit: 5}"))
	text := im.Text()
	for _, want := range []string{
		"differs: a refused request is not counted; there it is (unless STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is on), as with --rls-count-denied\n",
		"a.yaml:4:18: kept: unit: week -> window_s: 604800; a week starts on Thursday 00:00 UTC, as there [d.a]\n",
		"a.yaml:4:30: kept: requests_per_unit: 5 -> limit: 5 [d.a]\n",
		"1 rules; of 6 lines 6 kept, 0 differ, 0 ignored\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("report lacks %q:\n%s", want, text)
		}
	}
	raw, err := im.JSON()
	var got struct {
		Notes []map[string]any
		Sums  map[string]int
	}
	if err != nil || json.Unmarshal(raw, &got) != nil || len(got.Notes) != len(im.Notes) || got.Sums["kept"] != 6 {
		t.Errorf("%s: %v", raw, err)
	}
}

// TestRulesYAMLReadsAsTheSameRules: what is written is what was imported.
func TestRulesYAMLReadsAsTheSameRules(t *testing.T) {
	t.Parallel()
	check := func(t interface{ Fatalf(string, ...any) }, im *envoyconfig.Imported) {
		text, err := im.RulesYAML()
		if err != nil {
			t.Fatalf("%v", err)
		}
		set, problems := yaml.Parse(text)
		if len(problems) > 0 {
			t.Fatalf("%v\n%s", problems, text)
		}
		if len(set.Rules) != len(im.Set.Rules) {
			t.Fatalf("%d rules, want %d\n%s", len(set.Rules), len(im.Set.Rules), text)
		}
		for i := range set.Rules {
			got, want := set.Rules[i], im.Set.Rules[i]
			got.At, want.At = rules.Position{}, rules.Position{}
			if len(want.Supersedes) == 0 {
				want.Supersedes = nil
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %+v\nwant %+v\n%s", got, want, text)
			}
		}
	}
	odd := "domain: d\ndescriptors:\n"
	for _, value := range []string{"true", "null", "'007'", `"a\"b\\c"`, "'é: #x'", "'<>&'", `"line\nbreak"`, `"\u2028"`, "'😀*'", "'*'"} {
		odd += "  - {key: 'k y', value: " + value + ", rate_limit: {unit: day, requests_per_unit: 1}}\n"
	}
	check(t, imported(t, envoyconfig.Options{}, odd))
	check(t, imported(t, envoyconfig.Options{}, golden))
	check(t, imported(t, envoyconfig.Options{}, "domain: d"))
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("domain: d\n")
		drawLevel(t, &b, "", 2)
		tree, err := envoyconfig.Parse([]envoyconfig.File{{Name: "d.yaml", Data: []byte(b.String())}}, envoyconfig.ReadOptions{})
		if err != nil {
			t.Skipf("%v", err)
		}
		im, err := envoyconfig.Import(tree, envoyconfig.Options{Algorithm: limit.Algorithm(rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "algorithm"))})
		if err != nil {
			t.Fatal(err)
		}
		check(t, im)
	})
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		entries []envoyconfig.Entry
		want    map[string]string
	}{
		{"none", nil, map[string]string{"envoy.path": ""}},
		{"two", []envoyconfig.Entry{{"a", "1"}, {"b", "2"}}, map[string]string{"a": "1", "b": "2", "envoy.path": "a/b"}},
		{"empty value", []envoyconfig.Entry{{"a", ""}}, map[string]string{"a": "(empty)", "envoy.path": "a"}},
		{"key twice", []envoyconfig.Entry{{"a", "1"}, {"a", "2"}, {"a#2", "3"}}, map[string]string{"a": "1", "a#2": "2", "a#2#2": "3", "envoy.path": "a/a/a#2"}},
		{"odd keys", []envoyconfig.Entry{{"a b", "1"}, {"c/d*%", "2"}, {"é", "3"}}, map[string]string{"a%20b": "1", "c/d*%": "2", "é": "3", "envoy.path": "a%20b/c%2Fd%2A%25/%C3%A9"}},
		{"a key of our name", []envoyconfig.Entry{{"envoy.path", "1"}}, map[string]string{"envoy.path#2": "1", "envoy.path": "envoy.path"}},
	} {
		if got := envoyconfig.Attributes(tt.entries); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
