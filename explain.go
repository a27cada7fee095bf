package tallygate

import (
	"context"
	"errors"

	"github.com/tallygate/tallygate/rules"
)

// Usage is what is left for one key, over all rules that count it.
type Usage struct {
	// Domain is the rules' domain, Key the values as they were asked for.
	Domain string
	Key    []string
	Rules  []RuleUsage
}

// RuleUsage is what is left in one bucket.
type RuleUsage struct {
	Rule string
	// Limit is burst, ceiling or limit of the numbers in force, Remaining what is
	// left of it, Out what of it pods hold on leases.
	Limit, Remaining, Out int64
	// RetryMS is how long until cost 1 passes, ResetMS the time to full or to the
	// window's end.
	RetryMS, ResetMS int64
	// Override is the override in force for the key; nil for none.
	Override *rules.Override
	// Candidate says that the bucket is that of the rule's candidate.
	Candidate bool
	// Err says why the store did not answer for this bucket; nil if it did.
	Err error
}

// Explanation is what a check would be answered, and why; nothing is spent for it.
type Explanation struct {
	Revision int64
	Domain   string
	// Allow and DeniedBy are the verdict of the whole.
	Allow    bool
	DeniedBy string
	// Rules are those of the domain that match, superseded ones among them.
	Rules []RuleExplanation
	// Unmatched is how many other rules the domain has.
	Unmatched int
}

// RuleExplanation is what one rule would say.
type RuleExplanation struct {
	RuleUsage
	Action rules.Action
	Shadow bool
	// Key is what the rule counts; nil where it counts nothing.
	Key []string
	// Anonymous says that the identity is absent and the address is counted.
	Anonymous bool
	// SupersededBy is the rule that lifts this one; "" for none.
	SupersededBy string
	// Allow is what the rule says, Reason why not.
	Allow  bool
	Reason Reason
}

// KeyRate is how fast this pod spends on one bucket, in tokens a second.
type KeyRate struct {
	Domain, Rule, Key string
	PerSecond         float64
}

var errSoon = errors.New("not yet")

// Usage looks at all buckets of a key; it spends nothing. An error says that there
// is no such domain or that the key is none; a store that does not answer is named
// by rule.
func (l *Limiter) Usage(_ context.Context, _ string, _ []string) (Usage, error) {
	return Usage{}, errSoon
}

// Explain answers as [Limiter.Check] would, says of each rule why, and spends nothing.
func (l *Limiter) Explain(_ context.Context, _ Check) (Explanation, error) {
	return Explanation{}, errSoon
}

// Reset makes the buckets of a key full again, in the store and on this pod: of one
// rule, or of all rules of the domain that can count it where rule is "". It returns
// how many.
func (l *Limiter) Reset(_ context.Context, _, _ string, _ []string) (int, error) {
	return 0, errSoon
}

// Busiest returns the buckets this pod spends most on, the busiest first, at most n.
// It looks at the last second or so.
func (l *Limiter) Busiest(_ int) []KeyRate { return nil }
