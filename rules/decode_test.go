package rules_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

func TestRuleUnmarshalJSON(t *testing.T) {
	t.Parallel()
	got, err := unmarshal(`{'id':'search','domain':'public-api','description':'d','owner':'o','match':{'route':'GET /s','plan':'*'},
		'covers_all':true,'identity':['user','ip'],'action':'limit','algorithm':'sliding_window','limit':100,'window_s':60,
		'burst_factor':1.505,'max_cost':3,'mode':'shadow','fail_mode':'closed','counting':'exact','supersedes':['a','b']}`)
	if err != nil {
		t.Fatal(err)
	}
	want := rules.Rule{
		ID: "search", Domain: "public-api", Description: "d", Owner: "o",
		Match: map[string]string{"route": "GET /s", "plan": "*"}, CoversAll: true,
		Identity: []string{"user", "ip"}, Action: rules.ActionLimit, Algorithm: limit.SlidingWindow,
		Numbers: rules.Numbers{Limit: 100, WindowS: 60, BurstFactorMilli: 1505}, MaxCost: 3,
		Mode: rules.ModeShadow, FailMode: rules.FailClosed, Counting: rules.CountingExact, Supersedes: []string{"a", "b"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRuleUnmarshalJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, fields, want string }{
		{"UX-02 misspelt field", `'windows_s':60`, `windows_s: unknown field; did you mean "window_s"?`},
		{"UX-02 unknown field", `'qps':60`, `qps: unknown field; remove it`},
		{"UX-02 other case", `'Rate':60`, `Rate: unknown field; did you mean "rate"?`},
		{"UX-02 misspelt word", `'mode':'enforced'`, `mode: "enforced" is none of enforce, shadow; did you mean "enforce"?`},
		{
			"UX-02 unknown algorithm", `'algorithm':'foo'`,
			`algorithm: "foo" is none of token_bucket, sliding_window, sliding_log, fixed_window; use one of these`,
		},
		{"given twice", `'rate':1,'rate':2`, `rate: is given twice; keep one`},
		{"null", `'rate':null`, `rate: has no value; give one or remove the field`},
		{"empty text", `'domain':''`, `domain: is empty; give a value or remove the field`},

		{"OVF-07 burst 2^53+1", `'burst':9007199254740993`, `burst: 9007199254740993 is above 1000000000000; lower it`},
		{"OVF-07 burst of int64", `'burst':9223372036854775807`, `burst: 9223372036854775807 is above 1000000000000; lower it`},
		{"OVF-07 rate 1e308", `'rate':1e308`, `rate: 1e308 is above 1000000000000; lower it`},
		{"OVF-07 rate beyond doubles", `'rate':1e999`, `rate: 1e999 is above 1000000000000; lower it`},
		{"OVF-07 limit 1e19", `'limit':1e19`, `limit: 1e19 is above 1000000000000; lower it`},
		{"OVF-07 limit in 20 digits", `'limit':10000000000000000000`, `limit: 10000000000000000000 is above 1000000000000; lower it`},
		{"OVF-07 far below", `'limit':-1e99`, `limit: -1e99 is below 1; raise it`},
		{"OVF-10 rate 0", `'rate':0`, `rate: 0 is below 1; raise it`},
		{"OVF-10 rate -1", `'rate':-1`, `rate: -1 is below 1; raise it`},
		{"OVF-10 limit 0", `'limit':0`, `limit: 0 is below 1; raise it`},
		{"OVF-10 window 0", `'window_s':0`, `window_s: 0 is below 1; raise it`},
		{"OVF-10 per_s 0", `'per_s':0`, `per_s: 0 is below 1; raise it`},
		{"OVF-10 max_cost 0", `'max_cost':0`, `max_cost: 0 is below 1; raise it`},
		{"OVF-10 negative zero", `'rate':-0`, `rate: 0 is below 1; raise it`},
		{"TTL-04 tiny rate", `'rate':1e-9`, `rate: 1e-9 is below 1; raise it`},
		{"fraction", `'rate':1.5`, `rate: 1.5 is not a whole number in digits; write one from 1 to 1000000000000`},
		{"exponent", `'rate':1e3`, `rate: 1e3 is not a whole number in digits; write one from 1 to 1000000000000`},
		{"number as text", `'rate':'5'`, `rate: "5" is not a number; write it in digits, without quotes`},
		{"number as list", `'rate':[5]`, `rate: [5] is not a number; write it in digits, without quotes`},
		{"number as bool", `'rate':true`, `rate: true is not a number; write it in digits, without quotes`},
		{"per_s above", `'per_s':2678401`, `per_s: 2678401 is above 2678400; lower it`},
		{"window above", `'window_s':31622401`, `window_s: 31622401 is above 31622400; lower it`},
		{"max_cost above", `'max_cost':1000000001`, `max_cost: 1000000001 is above 1000000000; lower it`},
		{"burst_factor below", `'burst_factor':0.9`, `burst_factor: 0.9 is below 1; raise it`},
		{"burst_factor above", `'burst_factor':10.001`, `burst_factor: 10.001 is above 10; lower it`},
		{"burst_factor too fine", `'burst_factor':1.0005`, `burst_factor: 1.0005 has more than three decimals; round it`},
		{"burst_factor as text", `'burst_factor':'2'`, `burst_factor: "2" is not a number; write it in digits, without quotes`},

		{"text as number", `'domain':5`, `domain: 5 is not a text; put it in quotes`},
		{"bool as text", `'covers_all':'true'`, `covers_all: "true" is neither true nor false; use one of these`},
		{"match as list", `'match':['a']`, `match: ["a"] is not a map of attribute to value; write {"plan":"growth"}`},
		{"match of numbers", `'match':{'plan':5}`, `match.plan: 5 is not a text; put it in quotes`},
		{"match given twice", `'match':{'a':'b','a':'c'}`, `match.a: is given twice; keep one`},
		{"identity of numbers", `'identity':['a',5]`, `identity[1]: 5 is not a text; put it in quotes`},
		{"window of hours", `'window':'hour'`, `window: "hour" is none of day, week, month; use one of these`},
		{"window of seconds", `'window':60`, `window: "60" is none of day, week, month; use one of these`},
		{"align", `'align':'first'`, `align: "first" is none of clock, first_request; use one of these`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := unmarshal(`{'id':'r',` + tt.fields + `}`)
			var problems rules.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error %v, want problems", err)
			}
			if got := lines(problems); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if problems[0].Rule != "r" {
				t.Errorf("names rule %q, want r", problems[0].Rule)
			}
		})
	}
}

func TestFieldsRefusedWhenRead(t *testing.T) {
	t.Parallel()
	const later = ": not supported yet; remove it"
	for _, tt := range []struct{ name, fields, want string }{
		{"regions", `'regions':{'us-east':0.6}`, "regions" + later},

		{"max_new_keys_per_s of none", `'max_new_keys_per_s':0`, "max_new_keys_per_s: 0 is below 1; raise it"},
		{"max_new_keys_per_s above", `'max_new_keys_per_s':1000000001`, "max_new_keys_per_s: 1000000001 is above 1000000000; lower it"},
		{"max_new_keys_per_s misspelt", `'max_new_keys_per_s':'of'`, "max_new_keys_per_s: \"of\" is none of off; did you mean \"off\"?"},
		{"on_change misspelt", `'on_change':'next'`, "on_change: \"next\" is none of now, next_window; use one of these"},
		{"max_lease above", `'max_lease':1000001`, "max_lease: 1000001 is above 1000000; lower it"},
		{"replicas above", `'replicas':6`, "replicas: 6 is above 5; lower it"},
		{"replicas below", `'replicas':-1`, "replicas: -1 is below 0; raise it"},
		{"closed_allow shape", `'closed_allow':5`, "closed_allow: 5 is not a text; put it in quotes"},
		{"closed_allow with an empty key", `'closed_allow':['a','']`, "closed_allow[1]: is empty; give a value or remove the field"},
		{"closed_allowance shape", `'closed_allowance':0.1`, "closed_allowance: is not an object; write an object"},
		{"closed_allowance without times", `'closed_allowance':{}`, "closed_allowance.times: missing; say which part of the limit, such as 0.1"},
		{"closed_allowance of nothing", `'closed_allowance':{'times':0}`, "closed_allowance.times: 0 is below 0.001; raise it"},
		{"closed_allowance above", `'closed_allowance':{'times':1.001}`, "closed_allowance.times: 1.001 is above 1; lower it"},
		{"closed_allowance too fine", `'closed_allowance':{'times':0.0015}`, "closed_allowance.times: 0.0015 has more than three decimals; round it"},
		{"closed_allowance misspelt", `'closed_allowance':{'time':0.1}`, "closed_allowance.time: unknown field; did you mean \"closed_allowance.times\"?"},
		{"sync_ms below", `'sync_ms':5`, "sync_ms: 5 is below 20; raise it"},
		{"priority above", `'priority':1001`, "priority: 1001 is above 1000; lower it"},
		{"priority below", `'priority':-1`, "priority: -1 is below 0; raise it"},
		{"shed_floor 0", `'shed_floor':0`, "shed_floor: 0 is below 0.05; raise it"},
		{"shed_floor above", `'shed_floor':1.1`, "shed_floor: 1.1 is above 1; lower it"},
		{"shed_floor too fine", `'shed_floor':0.1234`, "shed_floor: 0.1234 has more than three decimals; round it"},
		{"regions above", `'regions':{'a':2}`, "regions.a: 2 is not above 0 and at most 1; change it\nregions" + later},
		{"regions of null", `'regions':{'a':null}`, "regions.a: \"\" is not a number; write it in digits, without quotes\nregions" + later},
		{"pre_limit shape", `'pre_limit':5`, "pre_limit: is not an object; write an object"},
		{
			"pre_limit of", `'pre_limit':{'of':'share','time':1}`,
			"pre_limit.of: \"share\" is none of limit, fair_share; use one of these\n" +
				"pre_limit.time: unknown field; did you mean \"pre_limit.times\"?",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := unmarshal(`{'id':'r',` + tt.fields + `}`)
			var problems rules.Problems
			if !errors.As(err, &problems) || lines(problems) != tt.want {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestParseRuleRefusesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `[]`, `5`, `null`, `"a"`, `{`, `{"id":"a"`, `{"id":"a"}{}`, `{"id":"a"} x`, "{\"id\":\"\xff\"}", `{"id"}`} {
		if _, problems := rules.ParseRule([]byte(text)); len(problems) == 0 {
			t.Errorf("%q is taken for a rule", text)
		}
	}
	if _, problems := rules.ParseRule([]byte(strings.Repeat("[", 1<<20))); len(problems) == 0 {
		t.Error("a million brackets are taken for a rule")
	}
}

func TestParseRuleNamesEveryFault(t *testing.T) {
	t.Parallel()
	r, problems := rules.ParseRule([]byte(`{ "rate" : 0 , "id" : "r" , "x":{"y":[1]}, "domain":"d" }`))
	if got, want := lines(problems), "rate: 0 is below 1; raise it\nx: unknown field; remove it"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if r.ID != "r" || r.Domain != "d" {
		t.Errorf("read as %q in %q, want r in d", r.ID, r.Domain)
	}
}

func TestProblemsAreOneShortLineEach(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 1<<16)
	_, problems := rules.ParseRule([]byte(`{"id":"a\nb","rate":` + long + `,"` + long + `":1,"mode":"` + long + `"}`))
	for _, p := range problems {
		if s := p.String(); len(s) > 300 || strings.ContainsAny(s, "\n\x00") {
			t.Errorf("%d bytes: %.400q", len(s), s)
		}
	}
	if len(problems) != 3 {
		t.Errorf("%d problems, want 3: %v", len(problems), problems)
	}
}

func TestOverrideJSON(t *testing.T) {
	t.Parallel()
	var got rules.Override
	text := `{"account":"acct_7Q2","rule":"growth","rate":25000,"burst":50000,"max_cost":7,
		"expires_at":"2026-10-01T02:00:00+02:00","reason":"launch week","owner":"ops"}`
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Key) != 1 || got.Key[0] != "acct_7Q2" || got.Rate != 25000 || got.Burst != 50000 || got.MaxCost != 7 ||
		!got.ExpiresAt.Equal(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)) || got.Reason != "launch week" {
		t.Errorf("got %+v", got)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"field of rules", `{"rule":"r","key":"k","id":"x","rate":1}`, `id: unknown field; remove it`},
		{"both names", `{"rule":"r","key":"k","account":"k","rate":1}`, `account: key and account are the same field; keep one`},
		{"bad time", `{"rule":"r","key":"k","rate":1,"expires_at":"tomorrow"}`, `expires_at: "tomorrow" is not a time of RFC 3339; write it like "2026-10-01T00:00:00Z"`},
		{"empty key", `{"rule":"r","key":"","rate":1}`, `key: is empty; give a value or remove the field`},
		{"no key", `{"rule":"r","rate":1}`, `key: missing; say whose numbers these are`},
		{"no rule", `{"key":"k","rate":1}`, `rule: missing; give 1 to 128 of A-Z a-z 0-9 . _ -`},
		{"no numbers", `{"rule":"r","key":"k"}`, `the override has no numbers; give at least one, such as rate or limit`},
		{"wildcard in a list", `{"rule":"r","key":["acct_*","x"],"rate":1}`, `key[0]: patterns (*) are only for rules that count by one name; name one key`},
		{"long key", `{"rule":"r","key":"` + strings.Repeat("k", 4097) + `","rate":1}`, `key: 4097 bytes are above 4096; shorten it`},
		{"OVF-10 rate 0", `{"rule":"r","key":"k","rate":0}`, `rate: 0 is below 1; raise it`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, problems := rules.ParseOverride([]byte(tt.text)); lines(problems) != tt.want {
				t.Errorf("got  %s\nwant %s", lines(problems), tt.want)
			}
		})
	}
}

func TestJSONRoundTrip(t *testing.T) {
	t.Parallel()
	text := rapid.StringMatching(`[a-zA-Z<&"\\é{}*/ ]{1,8}`)
	numbers := rapid.Custom(func(t *rapid.T) rules.Numbers {
		some := rapid.Int64Range(0, 3_000)
		return rules.Numbers{
			Rate: some.Draw(t, "rate"), PerS: some.Draw(t, "per_s"), Burst: some.Draw(t, "burst"),
			Limit: some.Draw(t, "limit"), WindowS: some.Draw(t, "window_s"),
			Window: rapid.SampledFrom([]string{"", "day", "week"}).Draw(t, "window"), TZ: rapid.SampledFrom([]string{"", "UTC"}).Draw(t, "tz"),
			Align:            rapid.SampledFrom([]string{"", "clock", "first_request"}).Draw(t, "align"),
			BurstFactorMilli: rapid.SampledFrom([]int64{0, 1000, 1001, 1500, 9999, 10000}).Draw(t, "factor"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		rule := rules.Rule{
			ID: text.Draw(t, "id"), Match: rapid.MapOfN(text, text, 1, 3).Draw(t, "match"),
			Identity: rapid.SliceOfN(text, 1, 4).Draw(t, "identity"), CoversAll: rapid.Bool().Draw(t, "all"),
			Algorithm: limit.Algorithm(rapid.IntRange(0, 4).Draw(t, "algorithm")), Numbers: numbers.Draw(t, "numbers"),
			Mode: rapid.SampledFrom([]rules.Mode{"", "shadow"}).Draw(t, "mode"), MaxCost: rapid.Int64Range(0, 9).Draw(t, "max"),
			OnChange:       rapid.SampledFrom([]string{"", rules.OnChangeNow, rules.OnChangeNextWindow}).Draw(t, "on_change"),
			MaxNewKeysPerS: rapid.SampledFrom([]int64{0, 1, rules.MaxNewKeysPerS}).Draw(t, "new keys"),
			Priority:       rapid.Int64Range(0, rules.MaxPriority).Draw(t, "priority"),
			ShedFloorMilli: rapid.SampledFrom([]int64{0, 50, 123, 1_000}).Draw(t, "shed floor"),
		}
		var back rules.Rule
		roundTrip(t, rule, &back)
		if !reflect.DeepEqual(back, rule) {
			t.Fatalf("rule became %+v, was %+v", back, rule)
		}
		override := rules.Override{
			Rule: text.Draw(t, "rule"), Key: rapid.SliceOfN(text, 1, 3).Draw(t, "key"), Numbers: numbers.Draw(t, "other"),
			ExpiresAt: time.Unix(rapid.Int64Range(1, 1<<33).Draw(t, "end"), 5_000_000).UTC(),
		}
		var other rules.Override
		roundTrip(t, override, &other)
		if !reflect.DeepEqual(other, override) {
			t.Fatalf("override became %+v, was %+v", other, override)
		}
	})
}

func roundTrip(t *rapid.T, from, to any) {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

func FuzzParseRule(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(good, "'", `"`)))
	f.Add([]byte(`{"id":"a","pre_limit":{"of":"limit"},"regions":{"a":0.1},"match":{"a":null}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, problems := rules.ParseRule(data)
		_, _ = rules.ParseOverride(data)
		if len(problems) > 0 {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, problems := rules.ParseRule(again); len(problems) > 0 {
			t.Fatalf("%s is good, written again as %s it is not: %v", data, again, problems)
		}
		_, problems = rules.Compile(nil, rules.Set{Rules: []rules.Rule{r}}, 1, start)
		if err := problems.Err(); err != nil {
			t.Fatalf("%s is valid and does not compile: %v", data, err)
		}
	})
}
