package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// attributes returns n conditions in JSON.
func attributes(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`'a%d':'v'`, i)
	}
	return strings.Join(out, ",")
}

func TestRuleValidate(t *testing.T) {
	t.Parallel()
	const head = `'match':{'plan':'x'},'identity':'k','algorithm':`
	for _, tt := range []struct{ name, fields, want string }{
		{"good", `'id':'r',` + head + `'token_bucket','rate':1,'burst':1`, ``},
		{"good: OVF-02 large rate", `'id':'r',` + head + `'token_bucket','rate':980000000,'per_s':10,'burst':980000000`, ``},
		{"good: OVF-08 one a month", `'id':'r',` + head + `'token_bucket','rate':1,'per_s':2592000,'burst':1`, ``},
		{"good: largest bucket", `'id':'r',` + head + `'token_bucket','rate':1000000000000,'burst':1000000000000`, ``},
		{"good: longest log", `'id':'r',` + head + `'sliding_log','limit':10000,'window_s':31622400`, ``},
		{"good: first request", `'id':'r',` + head + `'fixed_window','limit':1,'window_s':60,'align':'first_request'`, ``},
		{"good: calendar", `'id':'r',` + head + `'fixed_window','limit':1000000000000,'window':'month','tz':'Europe/Berlin','align':'clock'`, ``},
		{"good: allow", `'id':'r','match':{'plan':'x'},'action':'allow','supersedes':['a'],'mode':'shadow'`, ``},
		{"good: 16 attributes", `'id':'r','match':{` + attributes(16) + `},'action':'deny'`, ``},

		{"no id", head + `'token_bucket','rate':1,'burst':1`, `id: missing; give 1 to 128 of A-Z a-z 0-9 . _ -`},
		{"MET-02 slash", `'id':'a.b/c:d','action':'deny','match':{'a':'b'}`, `id: "a.b/c:d" has characters other than A-Z a-z 0-9 . _ -; rename it`},
		{"MET-02 newline", `'id':'line\nbreak','action':'deny','match':{'a':'b'}`, `id: "line\nbreak" has characters other than A-Z a-z 0-9 . _ -; rename it`},
		{"MET-02 300 characters", `'id':'` + strings.Repeat("x", 300) + `','action':'deny','match':{'a':'b'}`, `id: 300 bytes are above 128; shorten it`},
		{"MET-02 domain", `'id':'r','domain':'{d}','action':'deny','match':{'a':'b'}`, `domain: "{d}" has characters other than A-Z a-z 0-9 . _ -; rename it`},
		{"long description", `'id':'r','description':'` + strings.Repeat("x", 4097) + `','action':'deny','match':{'a':'b'}`, `description: 4097 bytes are above 4096; shorten it`},

		{"UX-02 match missing", `'id':'r','identity':'k','algorithm':'token_bucket','rate':1,'burst':1`, `match: covers every route; name what it is for, or say covers_all: true`},
		{"all stars", `'id':'r','match':{'a':'*','b':'**'},'action':'deny'`, `match: covers every route; name what it is for, or say covers_all: true`},
		{"covers_all", `'id':'r','covers_all':true,'action':'deny'`, `warning: match: covers every route, as covers_all says; check that this is meant`},
		{"17 attributes", `'id':'r','match':{` + attributes(17) + `},'action':'deny'`, `match: 17 attributes are above 16; split the rule`},
		{"nameless attribute", `'id':'r','match':{'':'b','a':'b'},'action':'deny'`, `match.: an attribute's name is empty; name it`},
		{"blank in attribute", `'id':'r','match':{'a b':'b','a':'b'},'action':'deny'`, `match.a b: "a b" has blanks or control characters; rename it`},
		{"long value", `'id':'r','match':{'a':'` + strings.Repeat("x", 4097) + `'},'action':'deny'`, `match.a: 4097 bytes are above 4096; shorten it`},

		{"no identity", `'id':'r','match':{'a':'b'},'algorithm':'token_bucket','rate':1,'burst':1`, `identity: missing; say whom it counts, such as "api_key" or "ip"`},
		{"5 identities", `'id':'r','match':{'a':'b'},'identity':['a','b','c','d','e'],'algorithm':'token_bucket','rate':1,'burst':1`, `identity: 5 names are above 4; count by fewer`},
		{"identity twice", `'id':'r','match':{'a':'b'},'identity':['a','a'],'algorithm':'token_bucket','rate':1,'burst':1`, `identity[1]: "a" is given twice; keep one`},
		{"supersedes itself", `'id':'r','match':{'a':'b'},'action':'deny','supersedes':['r']`, `supersedes[0]: a rule cannot supersede itself; remove it`},

		{"deny with identity", `'id':'r','match':{'a':'b'},'action':'deny','identity':'k'`, `identity: is only for action limit; action deny counts nothing; remove it`},
		{
			"allow with numbers", `'id':'r','match':{'a':'b'},'action':'allow','algorithm':'token_bucket','rate':1,'max_cost':2,'fail_mode':'open'`,
			"rate: is only for action limit; action allow counts nothing; remove it\n" +
				"algorithm: is only for action limit; action allow counts nothing; remove it\n" +
				"max_cost: is only for action limit; action allow counts nothing; remove it\n" +
				"fail_mode: is only for action limit; action allow counts nothing; remove it",
		},

		{"UX-02 algorithm missing", `'id':'r','match':{'a':'b'},'identity':'k'`, `algorithm: missing; use one of token_bucket, sliding_window, sliding_log, fixed_window`},
		{"no burst", `'id':'r',` + head + `'token_bucket','rate':1`, `burst: missing; token_bucket needs it`},
		{"no rate", `'id':'r',` + head + `'token_bucket','burst':1`, `rate: missing; token_bucket needs it`},
		{"numbers of a window", `'id':'r',` + head + `'token_bucket','rate':1,'burst':1,'limit':5`, `limit: is not a field of token_bucket; remove it or use sliding_window`},
		{"numbers of a bucket", `'id':'r',` + head + `'fixed_window','limit':1,'window_s':1,'burst':5`, `burst: is not a field of fixed_window; remove it or use token_bucket`},
		{"factor of a log", `'id':'r',` + head + `'sliding_log','limit':1,'window_s':1,'burst_factor':1.5`, `burst_factor: is not a field of sliding_log; remove it or use sliding_window`},
		{"align of a log", `'id':'r',` + head + `'sliding_log','limit':1,'window_s':1,'align':'clock'`, `align: is not a field of sliding_log; remove it or use fixed_window`},
		{"day of a sliding window", `'id':'r',` + head + `'sliding_window','limit':1,'window':'day'`, `window: is not a field of sliding_window; remove it or use fixed_window`},
		{
			"TTL-04 burst × period", `'id':'r',` + head + `'token_bucket','rate':1000000000000,'per_s':2678400,'burst':1000000000000`,
			`burst: 1000000000000 is above 3362902 for this per_s (burst × per_s in ms is at most 2^53); lower burst or per_s`,
		},
		{"TTL-04 time to full", `'id':'r',` + head + `'token_bucket','rate':1,'per_s':3600,'burst':8785`, `burst: takes 31626000 s to fill, above 31622400; lower burst or raise rate`},
		{"good: 366 days to full", `'id':'r',` + head + `'token_bucket','rate':1,'per_s':3600,'burst':8784`, ``},
		{"log too long", `'id':'r',` + head + `'sliding_log','limit':10001,'window_s':1`, `limit: 10001 is above 10000 for sliding_log, which keeps every admission; lower it or use sliding_window`},
		{"sliding window too long", `'id':'r',` + head + `'sliding_window','limit':1,'window_s':15811201`, `window_s: 15811201 is above 15811200 for sliding_window; shorten it or use fixed_window`},
		{
			"sliding window product", `'id':'r',` + head + `'sliding_window','limit':1000000000,'window_s':3600,'burst_factor':10`,
			`limit: limit × burst_factor of 10000000000 is above 2501999792 for this window (times its length in ms it is at most 2^53); lower limit or shorten the window`,
		},
		{"no window", `'id':'r',` + head + `'fixed_window','limit':1`, `window_s: missing; give window_s, or window: day, week or month`},
		{"two windows", `'id':'r',` + head + `'fixed_window','limit':1,'window_s':1,'window':'day'`, `window: window_s and window are both given; keep one`},
		{"zone of no calendar", `'id':'r',` + head + `'fixed_window','limit':1,'window_s':1,'tz':'UTC'`, `tz: is only for window: day, week or month; remove it`},
		{"unknown zone", `'id':'r',` + head + `'fixed_window','limit':1,'window':'day','tz':'Mars/Olympus'`, `tz: "Mars/Olympus" is no known time zone; write a name such as "Europe/Berlin" or "UTC"`},
		{"zone of the machine", `'id':'r',` + head + `'fixed_window','limit':1,'window':'day','tz':'Local'`, `tz: "Local" is no known time zone; write a name such as "Europe/Berlin" or "UTC"`},
		{"zone of a path", `'id':'r',` + head + `'fixed_window','limit':1,'window':'day','tz':'../../etc/passwd'`, `tz: "../../etc/passwd" is no known time zone; write a name such as "Europe/Berlin" or "UTC"`},
		{"calendar from first request", `'id':'r',` + head + `'fixed_window','limit':1,'window':'day','align':'first_request'`, `align: a calendar window cannot start at its first request; remove align or use window_s`},
		{"burst below max_cost", `'id':'r',` + head + `'token_bucket','rate':1,'burst':5,'max_cost':6`, `burst: 5 is below max_cost 6; raise burst or lower max_cost`},
		{"limit below max_cost", `'id':'r',` + head + `'sliding_log','limit':5,'window_s':1,'max_cost':6`, `limit: 5 is below max_cost 6; raise limit or lower max_cost`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := unmarshal("{" + tt.fields + "}")
			if err != nil {
				t.Fatalf("not even read: %v", err)
			}
			problems := r.Validate()
			got := lines(problems)
			if len(problems.Warnings()) > 0 {
				got = "warning: " + got
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestRuleValidateOfRulesMadeInGo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want string
		change     func(*rules.Rule)
	}{
		{"OVF-10 negative rate", "rate: -1 is below 1; raise it", func(r *rules.Rule) { r.Rate = -1 }},
		{"OVF-07 huge burst", "burst: 9007199254740993 is above 1000000000000; lower it", func(r *rules.Rule) { r.Burst = 1<<53 + 1 }},
		{"negative period", "per_s: -5 is below 1; raise it", func(r *rules.Rule) { r.PerS = -5 }},
		{"negative cost", "max_cost: -5 is below 1; raise it", func(r *rules.Rule) { r.MaxCost = -5 }},
		{"no such algorithm", "algorithm: algorithm(9) is none; use one of token_bucket, sliding_window, sliding_log, fixed_window", func(r *rules.Rule) { r.Algorithm = 9 }},
		{"no such mode", `mode: "off" is none of enforce, shadow; use one of these`, func(r *rules.Rule) { r.Mode = "off" }},
		{"no such action", `action: "drop" is none of limit, allow, deny; use one of these`, func(r *rules.Rule) { r.Action = "drop" }},
		{"empty value", `match.plan: is empty; give a value, or * for any`, func(r *rules.Rule) { r.Match["plan"] = "" }},
		{"broken UTF-8", `match.plan: is not valid UTF-8; save it as UTF-8`, func(r *rules.Rule) { r.Match["plan"] = "\xff" }},
		{"factor", "burst_factor: 0.5 is not from 1 to 10; change it", func(r *rules.Rule) {
			r.Algorithm, r.Numbers = limit.SlidingWindow, rules.Numbers{Limit: 5, WindowS: 5, BurstFactorMilli: 500}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := mustRule(t, good)
			tt.change(&r)
			if got := lines(r.Validate()); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestCompiledNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, fields, want string }{
		{"bucket per second", `'algorithm':'token_bucket','rate':100,'burst':200`, "token_bucket 100 per 1000ms burst 200 @2"},
		{"bucket per minute", `'algorithm':'token_bucket','rate':6,'per_s':60,'burst':6`, "token_bucket 6 per 60000ms burst 6 @2"},
		{"sliding window", `'algorithm':'sliding_window','limit':100,'window_s':60`, "sliding_window 100 per 60000ms @2"},
		{"sliding window, factor floored", `'algorithm':'sliding_window','limit':7,'window_s':60,'burst_factor':1.5`, "sliding_window 10 per 60000ms @2"},
		{"log", `'algorithm':'sliding_log','limit':5,'window_s':60`, "sliding_log 5 per 60000ms @2"},
		{"fixed window", `'algorithm':'fixed_window','limit':5,'window_s':60`, "fixed_window 5 per 60000ms @2"},
		{"day", `'algorithm':'fixed_window','limit':5,'window':'day'`, "fixed_window 5 per day in UTC @2"},
		{"month elsewhere", `'algorithm':'fixed_window','limit':5,'window':'month','tz':'Asia/Tokyo'`, "fixed_window 5 per month in Asia/Tokyo @2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := mustCompile(t, nil, mustSet(t, `{'id':'r','match':{'a':'b'},'identity':'k',`+tt.fields+`}`), 1, start)
			lim, maxCost := s.Rule("r").Effective("any", start)
			if lim.String() != tt.want || maxCost != 1 {
				t.Errorf("got  %s, max_cost %d\nwant %s, max_cost 1", lim, maxCost, tt.want)
			}
		})
	}
	s := mustCompile(t, nil, mustSet(t, `{'id':'r','match':{'a':'b'},'identity':'k','algorithm':'fixed_window','limit':5,'window_s':9,'align':'first_request'}`), 1, start)
	if lim, _ := s.Rule("r").Effective("any", time.Time{}); lim.Align != limit.AlignFirstRequest || lim.Calendar != nil {
		t.Errorf("align %d, want first request", lim.Align)
	}
}
