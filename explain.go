package tallygate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/moment"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Explanation is what a check would be answered, and why; nothing is spent for it.
type Explanation struct {
	Revision int64
	Domain   string
	// Allow and DeniedBy are the verdict of the whole.
	Allow    bool
	DeniedBy string
	// Rules are those of the domain that match, superseded ones among them; of a check
	// with entries those that these name, one an entry.
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
	// Anonymous says that the identity is absent and the address is counted: by this
	// rule or, where Key is nil, by a rule for anonymous traffic that takes its place.
	Anonymous bool
	// SupersededBy is the rule that lifts this one; "" for none.
	SupersededBy string
	// Allow is what the rule says, Reason why not.
	Allow  bool
	Reason Reason
}

// Explain answers as [Limiter.Check] would, says of each rule why, and spends nothing.
// A check that Check refuses has the same [Error]. Where a rule's bucket does not
// answer, its Err says so, and it allows unless it fails closed; what a pod would
// admit by itself meanwhile is not looked at.
func (l *Limiter) Explain(ctx context.Context, check Check) (Explanation, error) {
	if err := l.usable(ctx); err != nil {
		return Explanation{}, err
	}
	snapshot, now := l.rules.Snapshot(), l.now()
	domain, err := domainOf(snapshot, check.Domain)
	if err != nil {
		return Explanation{}, err
	}
	s := &scratch{looks: true, clock: moment.New(func() time.Time { return now })}
	var met []rules.Met
	if check.Attributes != nil {
		met = domain.Meet(check.Attributes)
		err = s.match(domain, &check)
	} else {
		err = s.name(domain, &check)
	}
	if err == nil {
		err = s.gather(l.place)
	}
	if err != nil {
		return Explanation{}, err
	}
	for i := range s.ops {
		s.ops[i].How = store.Peek
	}
	answers := l.look(ctx, s.ops, s.terms)
	x := Explanation{Revision: snapshot.Revision(), Domain: domain.Name(), Unmatched: len(domain.Rules())}
	var v Verdict
	if check.Attributes == nil {
		for i := range s.entries {
			x.Rules = append(x.Rules, s.explain(i, answers, now, &v))
		}
		x.Unmatched -= s.named()
	} else {
		x.Rules = s.explainMet(met, answers, now, &v)
		x.Unmatched -= len(met)
	}
	v.conclude()
	x.Allow, x.DeniedBy = v.Allow, v.DeniedBy
	return x, nil
}

// named returns how many rules the entries name.
func (s *scratch) named() int {
	seen := map[*rules.Compiled]bool{}
	for i := range s.entries {
		seen[s.entries[i].rule] = true
	}
	return len(seen)
}

// explainMet explains the rules whose match holds: those that count or decide, and
// those that do not apply since another does.
func (s *scratch) explainMet(met []rules.Met, answers []answer, now time.Time, v *Verdict) []RuleExplanation {
	list := make([]RuleExplanation, 0, len(met))
	next := 0 // entries have the order of met, and are some of it
	for _, m := range met {
		if next < len(s.entries) && s.entries[next].rule == m.Rule {
			list = append(list, s.explain(next, answers, now, v))
			next++
			continue
		}
		e := RuleExplanation{RuleUsage: RuleUsage{Rule: m.Rule.ID()}, Action: m.Rule.Action(), Shadow: m.Rule.Shadow(), Allow: true}
		if m.SupersededBy != nil {
			e.SupersededBy = m.SupersededBy.ID()
		} else {
			e.Anonymous = true // and a rule that counts addresses takes over
		}
		list = append(list, e)
	}
	return list
}

// explain explains entry i, and adds its part of the verdict to v.
func (s *scratch) explain(i int, answers []answer, now time.Time, v *Verdict) RuleExplanation {
	e := &s.entries[i]
	x := RuleExplanation{RuleUsage: RuleUsage{Rule: e.rule.ID()}, Action: e.rule.Action(), Shadow: e.rule.Shadow(), Allow: true}
	part := EntryVerdict{Rule: x.Rule, Shadow: x.Shadow, Allow: true, reports: e.inForce.Counting() == rules.CountingReport}
	if x.Action == rules.ActionLimit {
		x.Key, x.Anonymous, _ = identity.Parts(e.key)
	}
	switch {
	case e.reason != ReasonNone:
		x.Allow, x.Reason = false, e.reason
	case e.op == none:
	case answers[e.op].err != nil:
		x.RuleUsage = usageOf(e.rule, e.inForce, e.key, now, &answers[e.op])
		x.Allow, x.Reason = !e.failsClosed(), Reason(degradedBy(x.Err))
	default:
		x.RuleUsage = usageOf(e.rule, e.inForce, e.key, now, &answers[e.op])
		part.read(&answers[e.op].grant, s.ops[e.op].Limit)
		x.Allow, x.Reason = part.Allow || part.reports, part.Reason
		if x.Allow {
			x.Reason = ReasonNone
		}
	}
	part.Allow, part.Reason = x.Allow, x.Reason
	v.Entries = append(v.Entries, part)
	return x
}
