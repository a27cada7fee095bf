package tallygate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
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
	// RetryMS is how long until cost 1 passes, or in an explanation the check's cost;
	// ResetMS is the time to full or to the window's end.
	RetryMS, ResetMS int64
	// Override is the override in force for the key; nil for none.
	Override *rules.Override
	// Candidate says that the bucket is that of the rule's candidate.
	Candidate bool
	// Err says why the store did not answer for this bucket; nil if it did.
	Err error
}

// KeyRate is how fast this pod spends on one bucket, in tokens a second.
type KeyRate struct {
	Domain, Rule string
	// Key is as Config.ShowKey shows it.
	Key       string
	PerSecond float64
}

// version is a bucket of a key: of a rule's live version, or of its candidate.
type version struct {
	rule, counts *rules.Compiled
	key          string
}

// versions returns the buckets of a key: of one rule, or of all that can count it
// where id is "".
func versions(domain *rules.Domain, id string, key []string) ([]version, error) {
	var list []version
	var keyErr error
	for _, rule := range domain.Rules() {
		if id != "" && rule.ID() != id || rule.Action() != rules.ActionLimit || id == "" && len(rule.Rule().Identity) != len(key) {
			continue
		}
		encoded, err := rule.KeyOf(key)
		if err != nil {
			keyErr = err // it may be an address for another rule
			continue
		}
		list = append(list, version{rule, rule, encoded})
		if t := rule.Trial(); t != nil {
			list = append(list, version{rule, t.Rule, encoded})
		}
	}
	if len(list) == 0 && keyErr != nil {
		return nil, keyError(keyErr, "/key")
	}
	return list, nil
}

// find returns the domain and the buckets that a question about a key is about.
func (l *Limiter) find(ctx context.Context, domainName, id string, key []string) (*rules.Domain, []version, error) {
	if err := l.usable(ctx); err != nil {
		return nil, nil, err
	}
	domain, err := domainOf(l.rules.Snapshot(), domainName)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case len(key) == 0 || len(key) > rules.MaxIdentity:
		return nil, nil, badRequest("/key", "a key has 1 to %d values, not %d", rules.MaxIdentity, len(key))
	case id != "" && domain.Rule(id) == nil:
		return nil, nil, &Error{Code: CodeUnknownRule, Field: "/rule", Message: "there is no rule " + quote(id) + " in domain " + quote(domain.Name())}
	}
	list, err := versions(domain, id, key)
	return domain, list, err
}

// Usage looks at all buckets of a key, in the store and not in what pods hold; it
// spends nothing. Rules whose identity has as many values as the key can count it.
// What pods hold on leases is Out, and not part of Remaining. An error is an [Error]:
// there is no such domain, or the key is none. A bucket that does not answer says so
// by itself, in Err.
func (l *Limiter) Usage(ctx context.Context, domainName string, key []string) (Usage, error) {
	domain, list, err := l.find(ctx, domainName, "", key)
	if err != nil {
		return Usage{}, err
	}
	now := l.now()
	ops, terms := opsOf(list, store.Peek, now)
	for i := range ops {
		ops[i].Cost = 1
	}
	answers := l.look(ctx, ops, terms)
	u := Usage{Domain: domain.Name(), Key: key}
	for i := range list {
		u.Rules = append(u.Rules, usageOf(list[i].rule, list[i].counts, list[i].key, now, &answers[i]))
	}
	return u, nil
}

// Reset makes the buckets of a key full again, in the store and on this pod: of one
// rule, or of all rules of the domain that can count it where rule is "". It returns
// how many, those of candidates among them. Leases that this pod holds are dropped.
// Other pods forget theirs, and the denials they remember, only when a snapshot tells
// them. An error is an [Error]: with store_timeout or store_unavailable some buckets
// may have been reset; to ask again is harmless.
func (l *Limiter) Reset(ctx context.Context, domainName, rule string, key []string) (int, error) {
	_, list, err := l.find(ctx, domainName, rule, key)
	if err != nil {
		return 0, err
	}
	ops, terms := opsOf(list, store.Reset, l.now())
	answers := l.look(ctx, ops, terms)
	for i := range ops {
		if err := answers[i].err; err != nil {
			code := CodeStoreUnavailable
			if degradedBy(err) == DegradedTimeout {
				code = CodeStoreTimeout
			}
			return 0, &Error{Code: code, Rule: list[i].rule.ID(), Err: err, Message: "the store did not answer: some buckets may not be reset"}
		}
	}
	if l.pod != nil {
		for i := range ops {
			l.pod.Forget(ops[i].Bucket)
		}
	}
	return len(ops), nil
}

// Busiest returns the buckets this pod spends most on, the busiest first, at most n.
// It looks at the last second or so of what pass by leases, estimates or joined calls:
// a rule that asks the store for every check leaves no trace on the pod. Nil for a
// store in this process.
func (l *Limiter) Busiest(n int) []KeyRate {
	if l.pod == nil || n <= 0 {
		return nil
	}
	ids := map[string]string{} // by the names of buckets; of a trial those in force
	for _, r := range l.rules.Snapshot().Rules() {
		ids[inForce(r, l.place).BucketRule()] = r.ID()
	}
	var list []KeyRate
	for _, b := range l.pod.Busiest(n, func(b store.Bucket) bool { return ids[b.Rule] != "" }) {
		list = append(list, KeyRate{Domain: b.Bucket.Domain, Rule: ids[b.Bucket.Rule], Key: l.showKey(b.Bucket.Domain, b.Bucket.Key), PerSecond: b.PerSecond})
	}
	return list
}

// opsOf makes an op of each bucket.
func opsOf(list []version, how store.How, now time.Time) ([]store.Op, []pod.Terms) {
	ops, terms := make([]store.Op, len(list)), make([]pod.Terms, len(list))
	for i, v := range list {
		numbers, most := v.counts.Effective(v.key, now)
		terms[i] = termsOf(v.counts)
		ops[i] = store.Op{How: how, Bucket: bucketOf(v.counts, v.key), Limit: numbers, NotFresh: v.counts.NotFresh(v.key, now), NextWindow: v.counts.NextWindow(), Pods: 1, MaxCost: most}
	}
	return ops, terms
}

// answer is what the store said of one bucket, or why it did not.
type answer struct {
	grant store.Grant
	err   error
}

// look asks the store itself, or what this pod counts alone, in calls of at most
// MaxOps ops; what fails fails call by call.
func (l *Limiter) look(ctx context.Context, ops []store.Op, terms []pod.Terms) []answer {
	answers := make([]answer, len(ops))
	here, there := make([]int, 0, len(ops)), make([]int, 0, len(ops))
	for i := range ops {
		if l.pod != nil && terms[i].Counting == pod.Local {
			here = append(here, i)
		} else {
			there = append(there, i)
		}
	}
	if len(here) > 0 {
		askAll(ctx, l.pod.Own(), ops, here, answers)
	}
	askAll(ctx, l.behind, ops, there, answers)
	return answers
}

// askAll asks a store for those of the ops whose places are listed.
func askAll(ctx context.Context, s store.Store, ops []store.Op, places []int, answers []answer) {
	for len(places) > 0 {
		part := places[:min(len(places), store.MaxOps)]
		places = places[len(part):]
		call := make([]store.Op, len(part))
		for i, at := range part {
			call[i] = ops[at]
		}
		grants, err := s.Take(ctx, call)
		err = pod.Short(call, grants, err)
		for i, at := range part {
			if answers[at].err = err; err == nil {
				answers[at].grant = grants[i]
			}
		}
	}
}

// usageOf says what is left in the bucket of a version of a rule.
func usageOf(rule, counts *rules.Compiled, key string, now time.Time, a *answer) RuleUsage {
	numbers, _ := counts.Effective(key, now)
	if a.grant.Limit != nil {
		numbers = a.grant.Limit // the store may have newer ones
	}
	g := &a.grant
	return RuleUsage{
		Rule: rule.ID(), Limit: numbers.Full(), Remaining: g.Remaining, Out: g.Out, RetryMS: g.RetryMS, ResetMS: g.ResetMS,
		Override: counts.Override(key, now), Candidate: counts != rule, Err: a.err,
	}
}
