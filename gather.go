package tallygate

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/moment"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// scratch is what one check works with, reused from check to check.
type scratch struct {
	// stripe is the part of the meter that this check counts in, and view how it
	// numbers the rules of the check's snapshot; nil before there is one.
	stripe  uint32
	view    *view
	route   cachedRoute
	clock   moment.Clock
	entries []entry
	ops     []store.Op
	terms   []pod.Terms   // of the ops
	instead []pod.Instead // of the ops, once the store did not answer
	grants  []store.Grant
	matched []*rules.Compiled
	// known is what tells known keys from new ones.
	known knower
	bound []rules.Bound
	// trials are the rules of the check that have a candidate, and others the ops and
	// answers of the versions that are not in force.
	trials      []trial
	others      []store.Op
	otherTerms  []pod.Terms
	otherGrants []store.Grant
	onTrial     bool // some entry's rule has a candidate
	// token is of a reservation that the check makes, nil otherwise; told says that the
	// store surely was not reached.
	token *reservation.Token
	told  bool
	// looks says that the check is explained or looked through, not decided.
	looks bool
	// nowMS is when the check was made, where one is counted by the pod's clock.
	nowMS int64
	backs backs
	// anyway says that hits count whatever the verdict.
	anyway bool
	// refused says that an enforced rule refuses whatever the store would say.
	refused bool
}

// entry is one entry on its way from question to answer.
type entry struct {
	rule *rules.Compiled
	// inForce is the version of the rule that decides: itself, or its candidate.
	inForce *rules.Compiled
	key     string
	// raw is the key that was asked for, where newcomers may have to share another.
	raw  string
	cost int64
	// set is the place of the entry's set; whole says that its cost may be above the
	// rule's max_cost, and back is what it gives back instead of spending.
	set   int
	whole bool
	back  int64
	// op is the entry's place in ops, of one that gives back in backs, or none.
	op int
	// reason says why an entry without an op does not allow.
	reason Reason
}

// none is the op of an entry that is not counted.
const none = -1

// asks reports whether the entry is part of one of the check's ops, and not of one that
// gives back: those are a list of their own.
func (e *entry) asks() bool { return e.op != none && e.back == 0 }

// maxEntries is the largest number of entries of a check: each may be an op.
const maxEntries = store.MaxOps

// name takes the entries a check names. Their rules' match is ignored.
func (s *scratch) name(domain *rules.Domain, check *Check) error {
	switch {
	case len(check.Entries) == 0:
		return badRequest("", "a check needs entries or attributes")
	case len(check.Entries) > maxEntries:
		return badRequest("/entries", "%d entries are more than %d", len(check.Entries), maxEntries)
	case check.Cost != 0 || check.Look:
		return badRequest("/cost", "with entries, each entry has its own cost")
	}
	for i := range check.Entries {
		e := &check.Entries[i]
		rule := domain.Rule(e.Rule)
		if rule == nil {
			return &Error{
				Code: CodeUnknownRule, Field: field(i, "rule"),
				Message: fmt.Sprintf("there is no rule %s in domain %s", quote(e.Rule), quote(domain.Name())),
			}
		}
		cost, err := costOf(e.Cost, e.Look)
		if err != nil {
			err.Field, err.Rule = field(i, "cost"), rule.ID()
			return err
		}
		key, keyErr := keyOf(rule, e.Key)
		if keyErr != nil {
			return keyError(keyErr, field(i, "key"))
		}
		s.entries = append(s.entries, entry{rule: rule, key: key, cost: cost, op: none})
	}
	return nil
}

// match finds the rules for a check's attributes, and the key of each.
func (s *scratch) match(domain *rules.Domain, check *Check) error {
	if check.Entries != nil {
		return badRequest("/attributes", "a check has entries or attributes, not both")
	}
	cost, costErr := costOf(check.Cost, check.Look)
	if costErr != nil {
		costErr.Field = "/cost"
		return costErr
	}
	s.matched = domain.Match(check.Attributes, s.matched)
	bound, err := rules.Resolve(check.Attributes, s.matched, s.bound)
	s.bound = bound
	if err != nil {
		return keyError(err, "/attributes")
	}
	if len(bound) > maxEntries {
		return badRequest("/attributes", "%d rules match, more than %d", len(bound), maxEntries)
	}
	for _, b := range bound {
		s.entries = append(s.entries, entry{rule: b.Rule, key: b.Key, cost: cost, op: none})
	}
	return nil
}

// gather makes one op a bucket, entries that name the same one added up, and
// finds what needs no store to be refused.
func (s *scratch) gather(place int) error {
	for i := range s.entries {
		e := &s.entries[i]
		e.inForce = inForce(e.rule, place)
		switch e.rule.Action() {
		case rules.ActionAllow:
		case rules.ActionDeny:
			if e.back > 0 {
				continue // there is nothing to refuse
			}
			e.reason = ReasonDenied
			s.refused = s.refused || !e.rule.Shadow()
		case rules.ActionLimit:
			if err := s.count(i); err != nil {
				return err
			}
			s.onTrial = s.onTrial || e.rule.Trial() != nil
		}
	}
	if s.onTrial {
		s.pair()
	}
	return nil
}

// count adds entry i to the op of its bucket.
func (s *scratch) count(i int) error {
	e := &s.entries[i]
	if e.back > 0 {
		s.giveBackLater(i)
		return nil
	}
	if e.inForce.MaxNewKeys() > 0 && e.cost > 0 && !s.looks {
		s.admit(i)
	}
	now := s.clock.Of(e.inForce)
	numbers, maxCost := e.inForce.Effective(e.key, now)
	op := s.bucket(i)
	cost := e.cost
	if op != none {
		cost += s.ops[op].Cost
	}
	if over := cost - limit.MaxCost; over > 0 && e.whole && e.inForce.Counting() == rules.CountingReport {
		e.cost, cost = e.cost-over, limit.MaxCost // it has happened: it is counted as far as it can be
	}
	switch {
	case cost <= min(maxCost, limit.MaxCost), e.whole && cost <= limit.MaxCost:
	case s.exceeds(i, cost):
		if s.anyway && op == none && numbers.Algorithm == limit.FixedWindow {
			s.countMost(i, numbers, maxCost, now)
		}
		return nil
	case e.rule.Shadow():
		// What is not enforced refuses no check; it shows what it would have said.
		e.reason = ReasonCostExceed
		return nil
	default:
		s.refuse(i, cost)
		return &Error{
			Code: CodeInvalidCost, Field: s.costField(i), Rule: e.rule.ID(),
			Message: fmt.Sprintf("cost %d is above max_cost %d of rule %s", cost, maxCost, e.rule.ID()),
		}
	}
	if op == none {
		op = len(s.ops)
		terms := termsOf(e.inForce)
		how := store.Take
		if terms.Counting == pod.Report {
			how = store.Add // counted, never denied
		}
		s.terms = append(s.terms, terms)
		s.ops = append(s.ops, e.ask(how, numbers, maxCost, now))
	}
	e.op, s.ops[op].Cost = op, cost
	return nil
}

// ask is the op of an entry's bucket, without its cost.
func (e *entry) ask(how store.How, numbers *limit.Limit, maxCost int64, now time.Time) store.Op {
	return store.Op{
		How:      how,
		Bucket:   bucketOf(e.inForce, e.key),
		Limit:    numbers,
		Shadow:   e.rule.Shadow(),
		Closed:   e.failsClosed(),
		Replicas: e.inForce.Replicas(),
		NotFresh: e.inForce.NotFresh(e.key, now),
		Want:     e.inForce.Lease(),
		Pods:     1,
		MaxCost:  maxCost,

		NextWindow: e.inForce.NextWindow(),
	}
}

// bucketOf names the bucket of a key by a version of a rule.
func bucketOf(version *rules.Compiled, key string) store.Bucket {
	return store.Bucket{Domain: version.Domain(), Rule: version.BucketRule(), Key: key}
}

// failsClosed reports whether a rule refuses where the store may not know. One that
// is not enforced refuses nothing, nor does one whose answer needs no store.
func (e *entry) failsClosed() bool {
	return e.inForce.FailClosed() && !e.rule.Shadow() && e.inForce.NeedsStore()
}

// insist finds what the rules say of each op now that the store did not answer.
func (s *scratch) insist() {
	for range s.ops {
		s.instead = append(s.instead, pod.Instead{Milli: pod.OpenShare})
	}
	for i := range s.entries {
		e := &s.entries[i]
		if !e.asks() || !e.failsClosed() {
			continue
		}
		s.instead[e.op] = pod.Instead{Milli: e.inForce.ClosedAllowance(), Pass: e.inForce.ClosedAllow(cmp.Or(e.raw, e.key))}
	}
}

// ruleOf returns the id of the rule that an op counts.
func (s *scratch) ruleOf(op int) string {
	for i := range s.entries {
		if e := &s.entries[i]; e.asks() && e.op == op {
			return e.rule.ID()
		}
	}
	return ""
}

// termsOf is how a pod may answer for a rule.
func termsOf(rule *rules.Compiled) pod.Terms {
	before := rule.PreLimit()
	t := pod.Terms{Sync: rule.Sync(), Before: pod.PreLimit{Milli: before.TimesMilli, FairShare: before.Of == rules.OfFairShare}}
	switch rule.Counting() {
	case rules.CountingLease:
		t.Counting = pod.Lease
	case rules.CountingExact:
		t.Counting = pod.Exact
	case rules.CountingAsync:
		t.Counting = pod.Async
	case rules.CountingLocal:
		t.Counting = pod.Local
	case rules.CountingReport:
		t.Counting = pod.Report
	}
	return t
}

// bucket returns the op of an earlier entry with the bucket of entry i, or none.
func (s *scratch) bucket(i int) int {
	for j := range i {
		if e := &s.entries[j]; e.asks() && s.sameBucket(j, i) {
			return e.op
		}
	}
	return none
}

// costField names the cost that entry i came with.
func (s *scratch) costField(i int) string {
	if len(s.bound) > 0 {
		return "/cost"
	}
	return field(i, "cost")
}

// costOf returns what a request spends: 1 where it does not say.
func costOf(cost int64, look bool) (int64, *Error) {
	switch {
	case cost < 0 || cost > limit.MaxCost:
		return 0, &Error{
			Code:    CodeInvalidCost,
			Message: fmt.Sprintf("cost %d is no number of tokens from 0 to %d", cost, limit.MaxCost),
		}
	case look && cost > 0:
		return 0, &Error{Code: CodeInvalidCost, Message: fmt.Sprintf("cost %d on a look, which spends nothing", cost)}
	case look:
		return 0, nil
	default:
		return max(cost, 1), nil
	}
}

// keyOf returns the key that rule counts. A rule that counts nothing takes any:
// turning a limit into an allow or deny must not break those who name it.
func keyOf(rule *rules.Compiled, parts []string) (string, error) {
	if rule.Action() != rules.ActionLimit {
		return "", nil
	}
	return rule.KeyOf(parts)
}

// keyError turns what is wrong with a key into an Error about field.
func keyError(err error, field string) *Error {
	e := &Error{Code: CodeBadRequest, Field: field, Message: err.Error()}
	var k *rules.KeyError
	if !errors.As(err, &k) {
		return e
	}
	e.Rule = k.Rule
	switch {
	case k.TooLong:
		e.Code = CodeTooLarge
	case k.Missing:
		e.Code = CodeMissingIdentity
	}
	return e
}

// field is the JSON pointer of a field of entry i.
func field(i int, name string) string { return "/entries/" + strconv.Itoa(i) + "/" + name }

// quote shows text a caller sent: whole where short, never as it is.
func quote(s string) string {
	const enough = 64
	if len(s) > enough {
		return strconv.QuoteToASCII(s[:enough]) + "…"
	}
	return strconv.QuoteToASCII(s)
}
