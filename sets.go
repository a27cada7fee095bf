package tallygate

import (
	"context"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Set is one of several groups of attributes of a request, each matched by itself.
// All sets of a check are decided together.
type Set struct {
	// Attributes are named facts, as in Check. Where no rule matches them, the set has
	// no entry in the verdict.
	Attributes map[string]string
	// Own is a rule of the caller's (see rules.Own) and the key it counts; where its
	// Rule is set it stands instead of the rules that the attributes match.
	Own rules.Bound
	// Cost is what the set spends on every rule of it, in tokens; 0 means 1. It may be
	// above a rule's max_cost: what is above the limit, or above 10^9, is denied.
	Cost int64
	// Look asks without spending; Cost is then 0.
	Look bool
	// Back gives the cost back instead, never above full and at most 10^9 at a time. It
	// is done whatever the other sets' verdict, and never denied.
	Back bool
}

// MaxSets is the largest number of sets of a check.
const MaxSets = 128

// Enforced reports whether the entry can deny: its rule is no shadow and does not
// only report.
func (a *EntryVerdict) Enforced() bool { return !a.Shadow && !a.reports }

// matchSets finds the rules for each set, and the key of each.
func (s *scratch) matchSets(domain *rules.Domain, check *Check) error {
	switch {
	case check.Entries != nil || check.Attributes != nil:
		return badRequest("/sets", "a check has sets, or entries, or attributes")
	case check.Cost != 0 || check.Look:
		return badRequest("/cost", "with sets, each set has its own cost")
	case len(check.Sets) > MaxSets:
		return badRequest("/sets", "%d sets are more than %d", len(check.Sets), MaxSets)
	}
	var ends [MaxSets]int // of each set's rules in s.matched
	for i := range check.Sets {
		set := &check.Sets[i]
		if err := set.check(i); err != nil {
			return err
		}
		if set.Own.Rule == nil {
			s.matched = domain.Match(set.Attributes, s.matched)
		}
		ends[i] = len(s.matched)
	}
	if len(check.Sets) > 1 {
		rules.SupersedeAcross(s.matched, check.Alternatives)
	}
	from := 0
	for i := range check.Sets {
		if err := s.bindSet(i, &check.Sets[i], s.matched[from:ends[i]]); err != nil {
			return err
		}
		from = ends[i]
	}
	return nil
}

// check says what is wrong with set i.
func (set *Set) check(i int) error {
	switch {
	case set.Cost < 0:
		return &Error{Code: CodeInvalidCost, Field: setField(i), Message: "cost " + strconv.FormatInt(set.Cost, 10) + " is below 0; to give back, say Back"}
	case set.Look && (set.Cost > 0 || set.Back):
		return &Error{Code: CodeInvalidCost, Field: setField(i), Message: "a look spends nothing and gives nothing back"}
	case set.Own.Rule != nil && len(set.Own.Key) > rules.MaxKeyBytes:
		return &Error{
			Code: CodeTooLarge, Field: setField(i), Rule: set.Own.Rule.ID(),
			Message: "a key of " + strconv.Itoa(len(set.Own.Key)) + " bytes is above " + strconv.Itoa(rules.MaxKeyBytes),
		}
	}
	return nil
}

// bindSet makes entries of the rules that set i has matched, or of its own.
func (s *scratch) bindSet(i int, set *Set, matched []*rules.Compiled) error {
	from := len(s.bound)
	if set.Own.Rule != nil {
		s.bound = append(s.bound, set.Own)
	} else {
		bound, err := rules.Resolve(set.Attributes, present(matched), s.bound)
		s.bound = bound
		if err != nil {
			return keyError(err, setField(i))
		}
	}
	if len(s.bound) > maxEntries {
		return badRequest("/sets", "%d rules match, more than %d", len(s.bound), maxEntries)
	}
	for _, b := range s.bound[from:] {
		s.entries = append(s.entries, set.entry(i, b))
	}
	return nil
}

// present moves the rules that were not cleared to the front of their places.
func present(matched []*rules.Compiled) []*rules.Compiled {
	n := 0
	for _, c := range matched {
		if c != nil {
			matched[n] = c
			n++
		}
	}
	return matched[:n]
}

// entry is the entry of set i for one of its rules.
func (set *Set) entry(i int, b rules.Bound) entry {
	cost := set.Cost
	if !set.Look {
		cost = max(cost, 1)
	}
	e := entry{rule: b.Rule, key: b.Key, set: i, whole: true, op: none}
	switch {
	case set.Back:
		e.back = min(cost, limit.MaxCost)
	case b.Rule.Counting() == rules.CountingReport:
		e.cost = min(cost, limit.MaxCost) // what has happened is counted, as far as it can be
	default:
		e.cost = cost
	}
	return e
}

// exceeds reports whether entry i, which may be above max_cost, asks more than any
// op may: a denial, since no bucket is asked.
func (s *scratch) exceeds(i int, cost int64) bool {
	e := &s.entries[i]
	if !e.whole || cost <= limit.MaxCost {
		return false
	}
	e.reason = ReasonCostExceed
	s.refused = s.refused || !e.rule.Shadow()
	return true
}

// backs are the ops of a check that give back, and what the store said of them.
type backs struct {
	ops   []store.Op
	terms []pod.Terms
	given []store.Grant
}

// giveBackLater adds entry i to the op that gives back to its bucket.
func (s *scratch) giveBackLater(i int, now time.Time) {
	e := &s.entries[i]
	for j := range i {
		if o := &s.entries[j]; o.back > 0 && o.op != none && o.rule == e.rule && o.key == e.key {
			e.op = o.op
			s.backs.ops[e.op].Cost = min(s.backs.ops[e.op].Cost+e.back, limit.MaxCost)
			return
		}
	}
	numbers, maxCost := e.inForce.Effective(e.key, now)
	e.op = len(s.backs.ops)
	s.backs.terms = append(s.backs.terms, termsOf(e.inForce))
	s.backs.ops = append(s.backs.ops, store.Op{
		How:        store.Back,
		Bucket:     bucketOf(e.inForce, e.key),
		Limit:      numbers,
		NextWindow: e.inForce.NextWindow(),
		Shadow:     e.rule.Shadow(),
		Pods:       1,
		MaxCost:    maxCost,
		Cost:       e.back,
	})
}

// giveBack gives back what the check's sets say. It is a call of its own, as it is
// done whatever the rest is answered; a store that does not answer is no denial: the
// cost stays spent.
func (l *Limiter) giveBack(ctx context.Context, s *scratch, now time.Time) {
	var err error
	if l.pod != nil {
		s.backs.given, err = l.pod.GiveBack(ctx, s.backs.given[:0], s.backs.ops, s.backs.terms)
	} else {
		s.backs.given, err = l.store.AppendTake(ctx, s.backs.given[:0], s.backs.ops, s.backs.terms)
	}
	if err == nil && len(s.backs.given) != len(s.backs.ops) {
		err = shortAnswer(len(s.backs.given), len(s.backs.ops))
	}
	if err != nil {
		s.backs.given = s.backs.given[:0]
		l.log.storeAway(now, err)
	}
}

// gaveBack says what is left in the bucket that entry e gave back to.
func (s *scratch) gaveBack(e *entry, a *EntryVerdict, v *Verdict) {
	if len(s.backs.given) == 0 {
		a.Source = SourceNone
		return
	}
	g := &s.backs.given[e.op]
	a.read(g, s.backs.ops[e.op].Limit)
	a.Allow, a.Reason, a.RetryMS = true, ReasonNone, 0 // a bucket that is not there was full
	v.NowMS = max(v.NowMS, g.NowMS)
}

func (b *backs) forget() {
	if len(b.ops) == 0 {
		return
	}
	clear(b.ops)
	clear(b.given)
	b.ops, b.terms, b.given = b.ops[:0], b.terms[:0], b.given[:0]
}

// routeOf is the route template that a check names, "" for none.
func (c *Check) routeOf() string {
	for i := range c.Sets {
		if name := c.Sets[i].Attributes[routeAttribute]; name != "" {
			return name
		}
	}
	return c.Attributes[routeAttribute]
}

// number is the number of a rule: that of all others for a caller's own.
func (v *view) number(rule *rules.Compiled) int {
	if rule.Ordinal() < 0 {
		return otherNumber
	}
	return v.numbers[rule.Ordinal()]
}

// setField is the JSON pointer of set i.
func setField(i int) string { return "/sets/" + strconv.Itoa(i) }
