package tallygate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Settlement says what became of a reservation.
type Settlement string

// The settlements.
const (
	// SettlementCommitted: the cost is counted.
	SettlementCommitted Settlement = "committed"
	// SettlementCanceled: all of it was given back, where it still could be.
	SettlementCanceled Settlement = "canceled"
	// SettlementRepeated: it was settled before; nothing was changed.
	SettlementRepeated Settlement = "repeated"
	// SettlementLate: the reservation had ended in some bucket, and its whole cost was
	// added there.
	SettlementLate Settlement = "late"
	// SettlementUnknown: a cancel of what has ended; nothing was changed.
	SettlementUnknown Settlement = "unknown"
)

// Settled is the answer to a Commit or a Cancel. Entries are the buckets as they are
// after it; those of rules that are gone are left out.
type Settled struct {
	Settlement Settlement
	Entries    []EntryVerdict
}

// Commit settles a reservation with what the request really cost in each of its
// rules, 0 to 10^9 tokens: more than was reserved is added, whether it is there or
// not, as far as 0 left; less is given back. It can be repeated: the first one counts,
// for as long as the reservation would have held. Later than that the whole cost is
// added, each time. After an [Error] repeat it.
func (l *Limiter) Commit(ctx context.Context, r Reservation, cost int64) (Settled, error) {
	if err := realCost(cost, "/cost"); err != nil {
		return Settled{}, err
	}
	return l.settle(ctx, r, store.Commit, realCosts{all: cost})
}

// CommitEach is Commit with a cost for each rule, by its id; a rule that is not named
// cost what was reserved.
func (l *Limiter) CommitEach(ctx context.Context, r Reservation, costs map[string]int64) (Settled, error) {
	for rule, cost := range costs {
		if err := realCost(cost, "/costs/"+rule); err != nil {
			return Settled{}, err
		}
	}
	return l.settle(ctx, r, store.Commit, realCosts{each: costs, named: true})
}

// Cancel gives a reservation back. It can be repeated.
func (l *Limiter) Cancel(ctx context.Context, r Reservation) (Settled, error) {
	return l.settle(ctx, r, store.Cancel, realCosts{})
}

func realCost(cost int64, field string) error {
	if cost < 0 || cost > limit.MaxCost {
		return &Error{Code: CodeInvalidCost, Field: field, Message: fmt.Sprintf("cost %d is no number of tokens from 0 to %d", cost, limit.MaxCost)}
	}
	return nil
}

// realCosts are what a request really cost: in all its rules alike, or where named by
// rule, as much as was reserved where each has none.
type realCosts struct {
	all   int64
	each  map[string]int64
	named bool
}

func (c realCosts) of(rule string, reserved int64) int64 {
	if !c.named {
		return c.all
	}
	if cost, there := c.each[rule]; there {
		return cost
	}
	return reserved
}

// settling is a Commit or a Cancel under way.
type settling struct {
	ops   []store.Op
	rules []*rules.Compiled // of the ops
	kinds []reservation.Kind
	// left says that nothing is to be asked of some bucket: the pod that admitted it
	// has told, or will tell, all there is.
	left bool
}

func (l *Limiter) settle(ctx context.Context, r Reservation, how store.How, costs realCosts) (Settled, error) {
	if err := l.usable(ctx); err != nil {
		return Settled{}, err
	}
	token, err := l.sealer.Open(string(r))
	if err != nil || !validToken(&token) {
		return Settled{}, badRequest("/reservation", "this is no reservation of these pods")
	}
	snapshot, now := l.rules.Snapshot(), l.now()
	domain, err := domainOf(snapshot, token.Domain)
	if err != nil {
		return Settled{}, err
	}
	if err := costs.reserved(domain, &token); err != nil {
		return Settled{}, err
	}
	var s settling
	for i := range token.Entries {
		s.add(domain, &token, &token.Entries[i], how, costs, now)
	}
	var grants []store.Grant
	if len(s.ops) > 0 {
		if grants, err = l.direct(ctx, nil, s.ops); err != nil {
			l.log.storeAway(now, err)
			return Settled{}, settleError(err)
		}
	}
	l.meter.settled(l.meter.viewOf(snapshot, now), &s, grants)
	return s.answer(how, grants), nil
}

// reserved refuses costs of rules that the reservation does not have.
func (c realCosts) reserved(domain *rules.Domain, token *reservation.Token) error {
	for id := range c.each {
		if !slices.ContainsFunc(token.Entries, func(e reservation.Entry) bool {
			rule, _ := versionOf(domain, e.Rule)
			return e.Rule == id || rule != nil && rule.ID() == id
		}) {
			return &Error{Code: CodeUnknownRule, Field: "/costs/" + id, Message: "the reservation has no rule " + quote(id)}
		}
	}
	return nil
}

// validToken refuses what only a token made by somebody else can say.
func validToken(t *reservation.Token) bool {
	ttl := time.Duration(t.TTLMS) * time.Millisecond
	for i := range t.Entries {
		if t.Entries[i].Cost > limit.MaxCost || t.Entries[i].Key == "" {
			return false
		}
	}
	return t.TTLMS <= MaxReservationTTL.Milliseconds() && ttl >= MinReservationTTL
}

// add adds the op that settles one entry, if its rule still counts.
func (s *settling) add(domain *rules.Domain, token *reservation.Token, e *reservation.Entry, how store.How, costs realCosts, now time.Time) {
	rule, counts := versionOf(domain, e.Rule)
	if rule == nil || rule.Action() != rules.ActionLimit {
		return
	}
	cost := costs.of(rule.ID(), e.Cost)
	switch {
	case e.Kind == reservation.Held:
	case how == store.Cancel, e.Kind == reservation.Told && cost <= e.Cost:
		s.left = true // what was told stays: a repeat could not be told from the first
		return
	case e.Kind == reservation.Told:
		cost -= e.Cost
	}
	numbers, _ := counts.Effective(e.Key, now)
	s.rules, s.kinds = append(s.rules, rule), append(s.kinds, e.Kind)
	s.ops = append(s.ops, store.Op{
		How: how, Bucket: bucketOf(counts, e.Key), Limit: numbers, Cost: cost,
		NextWindow: rule.NextWindow(), Replicas: counts.Replicas(),
		Reservation: reservation.In(token.ID, token.Domain, e.Rule, e.Key), TTLMS: token.TTLMS,
	})
}

// versionOf finds the version of a rule by the name of its buckets: a rule, or its
// candidate.
func versionOf(domain *rules.Domain, name string) (rule, counts *rules.Compiled) {
	if rule := domain.Rule(name); rule != nil {
		return rule, rule
	}
	for _, rule := range domain.Rules() {
		if t := rule.Trial(); t != nil && t.Rule.BucketRule() == name {
			return rule, t.Rule
		}
	}
	return nil, nil
}

// answer says what became of it all: late before settled now, and that before a
// repeat.
func (s *settling) answer(how store.How, grants []store.Grant) Settled {
	done := SettlementCommitted
	if how == store.Cancel {
		done = SettlementCanceled
	}
	a := Settled{Settlement: SettlementUnknown}
	if s.left {
		a.Settlement = done
	}
	for i := range grants {
		v := EntryVerdict{Rule: s.rules[i].ID(), Shadow: s.rules[i].Shadow(), Allow: true}
		v.read(&grants[i], s.ops[i].Limit)
		a.Entries = append(a.Entries, v)
		switch met := s.met(i, &grants[i]); {
		case met == store.ReservedUnknown && how == store.Commit:
			a.Settlement = SettlementLate
		case met == store.ReservedNow && a.Settlement != SettlementLate:
			a.Settlement = done
		case met == store.ReservedSettled && a.Settlement == SettlementUnknown:
			a.Settlement = SettlementRepeated
		}
	}
	return a
}

// met is what an op met. What was not set aside by its name is not late.
func (s *settling) met(i int, g *store.Grant) store.Reserved {
	if g.Reserved == store.ReservedUnknown && s.kinds[i] != reservation.Held {
		return store.ReservedNow
	}
	return g.Reserved
}

// settleError is what a Commit or Cancel gets that the store did not answer.
func settleError(err error) *Error {
	code := CodeStoreUnavailable
	if degradedBy(err) == DegradedTimeout {
		code = CodeStoreTimeout
	}
	message := "the store did not answer; repeat it, a reservation is settled once"
	if e, ok := errors.AsType[*store.StoreError](err); ok && e.Kind == store.Refused {
		message = "the store refused to settle the reservation; it ends by itself"
	}
	return &Error{Code: code, Message: message, Err: err}
}

// reserved counts the entries of a check that reserved.
func (m *meter) reserved(s *scratch, v *Verdict) {
	t := m.lock(s.stripe)
	defer t.mu.Unlock()
	for i := range v.Entries {
		e := &s.entries[i]
		if e.op == none || s.ops[e.op].How != store.Reserve {
			continue
		}
		c := &t.rule(s.view.numbers[e.rule.Ordinal()]).reservations
		switch {
		case !v.Entries[i].Allow:
			c.Denied++
		case v.Allow && !s.reservedBefore(e.op):
			c.Reserved++
		}
	}
}

// settled counts what was settled.
func (m *meter) settled(view *view, s *settling, grants []store.Grant) {
	t := m.lock(m.next())
	defer t.mu.Unlock()
	for i := range grants {
		c := &t.rule(view.numbers[s.rules[i].Ordinal()]).reservations
		switch met, commit := s.met(i, &grants[i]), s.ops[i].How == store.Commit; {
		case met == store.ReservedNow && commit:
			c.Committed++
		case met == store.ReservedNow:
			c.Canceled++
		case met == store.ReservedUnknown && commit:
			c.Late++
		}
	}
}
