package tallygate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// snapshot compiles one rule: 100 requests a second with bursts of 200, for each
// account on the growth plan.
func snapshot() *rules.Snapshot {
	s, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{{
		ID: "growth-global", Domain: "public-api",
		Match: map[string]string{"plan": "growth"}, Identity: []string{"api_key"},
		Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 100, Burst: 200}, MaxCost: 10,
	}}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		panic(err)
	}
	return s
}

// A check may name rule and key itself.
func ExampleLimiter_Check() {
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot())})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()

	verdict, err := limiter.Check(context.Background(), tallygate.Check{
		Domain:  "public-api",
		Entries: []tallygate.Entry{{Rule: "growth-global", Key: []string{"acct_7Q2"}, Cost: 5}},
	})
	if err != nil {
		fmt.Println(err) // no verdict: see Error
		return
	}
	fmt.Println(verdict.Allow, verdict.Entries[0].Remaining, "of", verdict.Entries[0].Limit)
	// Output: true 195 of 200
}

// Or it gives the request's attributes, and the rules match.
func ExampleLimiter_Check_attributes() {
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot())})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()

	for _, plan := range []string{"growth", "free"} {
		verdict, err := limiter.Check(context.Background(), tallygate.Check{
			Domain:     "public-api",
			Attributes: map[string]string{"plan": plan, "api_key": "acct_7Q2"},
		})
		fmt.Println(plan, verdict.Allow, verdict.Reason, len(verdict.Entries), err)
	}
	// Output:
	// growth true  1 <nil>
	// free true no_rule 0 <nil>
}

// Decide reuses the verdict: nothing is allocated for a check.
func ExampleLimiter_Decide() {
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot())})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()

	var verdict tallygate.Verdict
	for range 3 {
		check := tallygate.Check{
			Domain:  "public-api",
			Entries: []tallygate.Entry{{Rule: "growth-global", Key: []string{"acct_7Q2"}, Cost: 11}},
		}
		if err := limiter.Decide(context.Background(), check, &verdict); err != nil {
			var e *tallygate.Error
			fmt.Println(errors.As(err, &e), e.Code, e.Field)
		}
	}
	// Output:
	// true invalid_cost /entries/0/cost
	// true invalid_cost /entries/0/cost
	// true invalid_cost /entries/0/cost
}
