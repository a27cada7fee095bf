package tallygate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/store"
)

// Reservation is what [Limiter.Reserve] gives out and Commit and Cancel take: text of
// at most 16 KiB for any pod of the same store and Config.ReservationSecret. Without
// that secret it can be read, and made by whoever knows its form.
type Reservation string

// Bounds of a reservation. The time it holds is MinReservationTTL to
// MaxReservationTTL; 0 means DefaultReservationTTL.
const (
	MinReservationTTL     = store.MinReservationTTL
	MaxReservationTTL     = store.MaxReservationTTL
	DefaultReservationTTL = time.Minute
)

// Reserve decides check as [Limiter.Check] does, for a cost that is known only later:
// the cost of check is an estimate, set aside until Commit says what it came to or
// Cancel gives it back. After ttl, on the store's clock, what was not settled comes
// back by itself. The store is asked each time, never a lease or a remembered denial.
//
// id, up to 256 bytes, makes a repeat harmless: while the reservation of that id is
// open in a bucket, reserving it again is allowed there and spends nothing; once it is
// settled, it is denied. Ids are told apart by bucket. "" is one nobody else has.
//
// A denied check has no Reservation, nor has one of rules that set nothing aside. The
// verdict can be degraded as that of any check. A rule of algorithm sliding_log, with
// counting local, or of the caller's own (Set.Own) refuses with not_reservable; one
// with counting report is counted by the Commit. An [Error] with store_timeout may have
// reserved: it ends by itself, or reserve again with the same id.
func (l *Limiter) Reserve(ctx context.Context, check Check, id string, ttl time.Duration) (Verdict, Reservation, error) {
	var v Verdict
	v.reset()
	if ttl == 0 {
		ttl = DefaultReservationTTL
	}
	token, no := reservation.Begin(id, ttl)
	if no != nil {
		return v, "", refusal(no, "")
	}
	s := l.scratch.Get().(*scratch) //nolint:forcetypeassert // the pool holds nothing else
	s.token = &token
	err := l.decide(ctx, s, &check, &v)
	l.meter.count(s, &check, &v, err)
	var r Reservation
	if err == nil {
		l.meter.countReserved(s, &v)
		r, err = l.seal(s, &v)
	}
	l.free(s)
	return v, r, err
}

// seal writes the reservation of a check that was decided, "" where nothing is set
// aside.
func (l *Limiter) seal(s *scratch, v *Verdict) (Reservation, error) {
	if !v.Allow || len(s.grants) == 0 {
		return "", nil
	}
	s.token.Took(s.ops, s.grants, s.countingOf, v.Degraded != "", s.told)
	if len(s.token.Entries) == 0 {
		return "", nil
	}
	text, err := l.sealer.Seal(s.token)
	if err != nil { // not expected: hold has looked whether it fits
		return "", &Error{Code: CodeTooLarge, Message: "the reservation has no text", Err: err}
	}
	return Reservation(text), nil
}

// hold makes the ops of a check reserve, or says which rule cannot.
func (s *scratch) hold(domain string) error {
	for i := range s.entries {
		if e := &s.entries[i]; e.asks() && e.rule.Ordinal() < 0 {
			return &Error{
				Code: CodeNotReservable, Field: setField(e.set), Rule: e.rule.ID(),
				Message: "the rule is the caller's own, and no snapshot has it, by which a reservation is settled",
			}
		}
	}
	s.token.Domain = domain
	no := s.token.Hold(s.ops, s.countingOf)
	if no == nil {
		return nil
	}
	return refusal(no, s.ruleOf(no.Op)) // "" where it is of no op but of the whole
}

// refusal is the error of a check or a settlement that was refused because of a rule,
// "" for none.
func refusal(no *reservation.Refused, rule string) *Error {
	return &Error{Code: Code(no.Code), Field: no.Field, Rule: rule, Message: no.Message}
}

// countingOf is what a reservation has to know of how an op is counted.
func (s *scratch) countingOf(op int) reservation.Counting {
	switch s.terms[op].Counting {
	case pod.Report:
		return reservation.Report
	case pod.Local:
		return reservation.Alone
	case pod.Lease, pod.Exact, pod.Async:
	}
	return reservation.Shared
}

// direct asks the store itself: a reservation is nothing that a pod could lease.
func (l *Limiter) direct(ctx context.Context, dst []store.Grant, ops []store.Op) ([]store.Grant, error) {
	take := l.behind.Take
	if l.pod != nil {
		take = l.pod.Direct // which first tells the store what the pod owes it
	}
	grants, err := take(ctx, ops)
	if err = pod.Short(ops, grants, err); err != nil {
		return dst, err
	}
	return append(dst, grants...), nil
}
