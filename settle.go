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
	settling := reservation.Settle(domain, &token, how, costs, now)
	var grants []store.Grant
	if len(settling.Ops) > 0 {
		if grants, err = l.direct(ctx, nil, settling.Ops); err != nil {
			l.log.StoreAway(now, err)
			e := storeError("", err)
			e.Message = "the store did not answer; repeat it, a reservation is settled once"
			return Settled{}, e
		}
	}
	l.meter.countSettled(l.meter.viewOf(snapshot, l.now), &settling, grants)
	settled := Settled{Settlement: Settlement(settling.All(grants))}
	for i := range grants {
		rule := settling.Rules[i]
		a := EntryVerdict{Rule: rule.ID(), Shadow: rule.Shadow(), Allow: true}
		a.read(&grants[i], settling.Ops[i].Limit)
		settled.Entries = append(settled.Entries, a)
	}
	return settled, nil
}
