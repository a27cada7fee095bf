package tallygate

import (
	"context"

	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/store"
)

// Settlement says what became of a reservation.
type Settlement string

// The settlements.
const (
	// SettlementCommitted: the cost is counted.
	SettlementCommitted = Settlement(reservation.Committed)
	// SettlementCanceled: all of it was given back, where it still could be.
	SettlementCanceled = Settlement(reservation.Canceled)
	// SettlementRepeated: it was settled before; nothing was changed.
	SettlementRepeated = Settlement(reservation.Repeated)
	// SettlementLate: the reservation had ended in some bucket, and its whole cost was
	// added there.
	SettlementLate = Settlement(reservation.Late)
	// SettlementUnknown: a cancel of what has ended; nothing was changed.
	SettlementUnknown = Settlement(reservation.Unknown)
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
	return l.settle(ctx, r, store.Commit, reservation.Costs{All: cost})
}

// CommitEach is Commit with a cost for each rule, by its id; a rule that is not named
// cost what was reserved.
func (l *Limiter) CommitEach(ctx context.Context, r Reservation, costs map[string]int64) (Settled, error) {
	return l.settle(ctx, r, store.Commit, reservation.Costs{Each: costs, Named: true})
}

// Cancel gives a reservation back. It can be repeated.
func (l *Limiter) Cancel(ctx context.Context, r Reservation) (Settled, error) {
	return l.settle(ctx, r, store.Cancel, reservation.Costs{})
}

func (l *Limiter) settle(ctx context.Context, r Reservation, how store.How, costs reservation.Costs) (Settled, error) {
	if err := l.usable(ctx); err != nil {
		return Settled{}, err
	}
	token, err := l.sealer.Open(string(r))
	if err != nil || !token.Valid() {
		return Settled{}, badRequest("/reservation", "this is no reservation of these pods")
	}
	snapshot, now := l.rules.Snapshot(), l.now()
	domain, err := domainOf(snapshot, token.Domain)
	if err != nil {
		return Settled{}, err
	}
	if no := costs.Check(domain, &token); no != nil {
		return Settled{}, refusal(no, "")
	}
	s := reservation.Settle(domain, &token, how, costs, now)
	var grants []store.Grant
	if len(s.Ops) > 0 {
		if grants, err = l.direct(ctx, nil, s.Ops); err != nil {
			l.log.storeAway(now, err)
			e := storeError("", err)
			e.Message = "the store did not answer; repeat it, a reservation is settled once"
			return Settled{}, e
		}
	}
	l.meter.settled(l.meter.viewOf(snapshot, now), &s, grants)
	a := Settled{Settlement: Settlement(s.All(grants))}
	for i := range grants {
		v := EntryVerdict{Rule: s.Rules[i].ID(), Shadow: s.Rules[i].Shadow(), Allow: true}
		v.read(&grants[i], s.Ops[i].Limit)
		a.Entries = append(a.Entries, v)
	}
	return a, nil
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
			c[reservation.OutcomeDenied]++
		case v.Allow && !s.reservedBefore(e.op):
			c[reservation.OutcomeReserved]++
		}
	}
}

// settled counts what was settled.
func (m *meter) settled(view *view, s *reservation.Settling, grants []store.Grant) {
	t := m.lock(m.next())
	defer t.mu.Unlock()
	for i := range grants {
		if o, counted := s.Met(i, &grants[i]).Outcome(); counted {
			t.rule(view.numbers[s.Rules[i].Ordinal()]).reservations[o]++
		}
	}
}
