package rules_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/rules"
)

const (
	aClosed  = aBucket + `,'fail_mode':'closed'`
	byIP     = `'id':'r','covers_all':true,'identity':'ip','algorithm':'token_bucket','rate':1,'burst':5,'fail_mode':'closed'`
	byTwo    = `'id':'r','covers_all':true,'identity':['a','b'],'algorithm':'token_bucket','rate':1,'burst':5,'fail_mode':'closed'`
	onlyShut = `is only for rules that fail closed; say fail_mode: closed or remove it`
)

// What passes without the store, read, compiled and written again.
func TestClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, rule   string
		pass, refuse []string
		milli        int64
		replicas     int
	}{
		{"nothing", aClosed, nil, []string{"acct_1"}, 0, 0},
		{"one key", aClosed + `,'closed_allow':'acct_1'`, []string{"acct_1"}, []string{"acct_2", ""}, 0, 0},
		{"keys", aClosed + `,'closed_allow':['acct_1','acct_2']`, []string{"acct_1", "acct_2"}, []string{"acct_3"}, 0, 0},
		{"an address in any spelling", byIP + `,'closed_allow':['[::ffff:192.0.2.7]:80']`, []string{"192.0.2.7"}, []string{"::ffff:192.0.2.7"}, 0, 0},
		{"keys of several values", byTwo + `,'closed_allow':[['x','y'],['x','z']]`, []string{rules.Key([]string{"x", "y"})}, []string{"x", rules.Key([]string{"y", "x"})}, 0, 0},
		{"an allowance", aClosed + `,'closed_allowance':{'times':0.125}`, nil, []string{"acct_1"}, 125, 0},
		{"all of the limit", aClosed + `,'closed_allowance':{'times':1}`, nil, nil, 1000, 0},
		{"replicas", aClosed + `,'counting':'exact','replicas':2`, nil, nil, 0, 2},
		{"no replicas, said aloud", aBucket + `,'replicas':0`, nil, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := compiled(t, "{"+c.rule+"}")
			for _, key := range c.pass {
				if !r.ClosedAllow(key) {
					t.Errorf("%q does not pass", key)
				}
			}
			for _, key := range c.refuse {
				if r.ClosedAllow(key) {
					t.Errorf("%q passes", key)
				}
			}
			if r.ClosedAllowance() != c.milli || r.Replicas() != c.replicas {
				t.Errorf("allowance %d, replicas %d; want %d and %d", r.ClosedAllowance(), r.Replicas(), c.milli, c.replicas)
			}
			text, err := json.Marshal(r.Rule())
			if err != nil {
				t.Fatal(err)
			}
			var again rules.Rule
			if err := json.Unmarshal(text, &again); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !reflect.DeepEqual(again, *r.Rule()) {
				t.Errorf("%s reads back as %+v", text, again)
			}
		})
	}
}

func TestClosed_refused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", rules.MaxKeyBytes+1)
	for _, c := range []struct{ name, rule, want string }{
		{"list of an open rule", aBucket + `,'closed_allow':['a']`, "closed_allow: " + onlyShut},
		{"allowance of an open rule", aBucket + `,'fail_mode':'open','closed_allowance':{'times':0.1}`, "closed_allowance: " + onlyShut},
		{"replicas of an open rule", aBucket + `,'replicas':1`, "replicas: " + onlyShut},
		{"replicas of an async rule", aClosed + `,'counting':'async','replicas':1`, "replicas: means nothing with counting async, which admits before it asks; use exact or lease"},
		{"list of a local rule", aClosed + `,'counting':'local','closed_allow':['a']`, "closed_allow: means nothing with counting local, which needs no answer of the store; remove it"},
		{"allowance of a rule that reports", aClosed + `,'counting':'report','closed_allowance':{'times':0.1}`, "closed_allowance: means nothing with counting report"},
		{"list of a rule that counts nothing", `'id':'r','match':{'a':'b'},'action':'deny','closed_allow':['a']`, "closed_allow: is only for action limit"},
		{"one value for two names", byTwo + `,'closed_allow':['x']`, "closed_allow[0]: has 1 values, the rule counts by 2"},
		{"no address", byIP + `,'closed_allow':['192.0.2.7','office']`, `closed_allow[1]: "office" is not an address; write the key as the rule's identity has it`},
		{"a pattern", aClosed + `,'closed_allow':['acct_*']`, "closed_allow[0]: is a pattern; these keys are single ones; name one key"},
		{"twice", byIP + `,'closed_allow':['192.0.2.7','::ffff:192.0.2.7']`, "closed_allow[1]: \"::ffff:192.0.2.7\" is given twice; keep one"},
		{"too long", aClosed + `,'closed_allow':['` + long + `']`, "closed_allow[0]: 4097 bytes are above 4096"},
		{"no identity", `'id':'r','covers_all':true,'algorithm':'token_bucket','rate':1,'burst':5,'fail_mode':'closed','closed_allow':['x']`, "identity: missing"},
		{"too many names", `'id':'r','covers_all':true,'identity':['a','b','c','d','e'],'algorithm':'token_bucket','rate':1,'burst':5,'fail_mode':'closed','closed_allow':[['1','2','3','4','5']]`, "identity: 5 names are above 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, problems := rules.ParseRule([]byte(strings.ReplaceAll("{"+c.rule+"}", "'", `"`)))
			if got := lines(problems); !strings.Contains(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A list is as long as its bound and no longer; numbers that came by no decoder
// are held to theirs as well.
func TestClosed_bounds(t *testing.T) {
	t.Parallel()
	rule := mustRule(t, "{"+aClosed+"}")
	for i := range rules.MaxClosedAllow {
		rule.ClosedAllow = append(rule.ClosedAllow, []string{fmt.Sprint("acct_", i)})
	}
	if problems := rule.Validate().Faults(); len(problems) > 0 {
		t.Errorf("%d keys: %s", len(rule.ClosedAllow), lines(problems))
	}
	rule.ClosedAllow = append(rule.ClosedAllow, []string{"one more"})
	rule.ClosedAllowanceMilli, rule.Replicas = 1001, 6
	got := lines(rule.Validate())
	for _, want := range []string{"1001 keys are above 1000", "1001 is above 1000", "replicas: 6 is above 5"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A part that is given twice is a slip, of which the last must not win.
func TestClosedAllowance_twice(t *testing.T) {
	t.Parallel()
	var r rules.Rule
	text := strings.ReplaceAll(`{`+aClosed+`,'closed_allowance':{'times':0.1,'times':1}}`, "'", `"`)
	if err := json.Unmarshal([]byte(text), &r); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("err = %v, want a word of twice", err)
	}
}
