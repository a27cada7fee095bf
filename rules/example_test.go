package rules_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// A request's attributes find the rules that apply, the keys they count by and
// the numbers in force.
func Example() {
	var rule rules.Rule
	err := json.Unmarshal([]byte(`{"id":"growth-global","match":{"plan":"growth"},"identity":"api_key",
		"algorithm":"token_bucket","rate":100,"burst":200}`), &rule)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	launch := rules.Override{
		Rule: "growth-global", Key: []string{"acct_7Q2"},
		Numbers: rules.Numbers{Burst: 500}, ExpiresAt: now.Add(7 * 24 * time.Hour),
	}
	set := rules.Set{Rules: []rules.Rule{rule}, Overrides: []rules.Override{launch}}
	snapshot, problems := rules.Compile(nil, set, 1, now)
	if len(problems) > 0 {
		fmt.Println(problems)
	}

	attributes := map[string]string{"plan": "growth", "api_key": "acct_7Q2", "ip": "203.0.113.9"}
	matched := snapshot.Domain(rules.DefaultDomain).Match(attributes, nil)
	bound, err := rules.Resolve(attributes, matched, nil)
	if err != nil {
		fmt.Println(err)
	}
	for _, b := range bound {
		lim, maxCost := b.Rule.Effective(b.Key, now)
		fmt.Println(b.Rule.ID(), b.Key, lim, maxCost)
		lim, _ = b.Rule.Effective(b.Key, launch.ExpiresAt)
		fmt.Println("after launch week:", lim)
	}
	// Output:
	// growth-global acct_7Q2 token_bucket 100 per 1000ms burst 500 @2 1
	// after launch week: token_bucket 100 per 1000ms burst 200 @3
}

// Every fault is named with field, value, bound and what to do.
func ExampleParseRule() {
	_, problems := rules.ParseRule([]byte(`{"id":"login","windows_s":60,"rate":0,"burst":9007199254740993}`))
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// windows_s: unknown field; did you mean "window_s"?
	// rate: 0 is below 1; raise it
	// burst: 9007199254740993 is above 1000000000000; lower it
}
