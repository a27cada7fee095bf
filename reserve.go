package tallygate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/limit"
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
	maxReservationName    = 256 // bytes
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
// verdict can be degraded as that of any check. A rule of algorithm sliding_log, or
// with counting local, refuses with not_reservable; one with counting report is
// counted by the Commit. An [Error] with store_timeout may have reserved: it ends by
// itself, or reserve again with the same id.
func (l *Limiter) Reserve(ctx context.Context, check Check, id string, ttl time.Duration) (Verdict, Reservation, error) {
	var v Verdict
	v.reset()
	s := l.scratch.Get().(*scratch) //nolint:forcetypeassert // the pool holds nothing else
	r, err := l.reserve(ctx, s, &check, id, ttl, &v)
	l.meter.count(s, &check, &v, err)
	if err == nil {
		l.meter.reserved(s, &v)
	}
	l.free(s)
	return v, r, err
}

func (l *Limiter) reserve(ctx context.Context, s *scratch, check *Check, id string, ttl time.Duration, v *Verdict) (Reservation, error) {
	if err := l.usable(ctx); err != nil {
		return "", err
	}
	token, err := newToken(id, ttl)
	if err != nil {
		return "", err
	}
	snapshot, now := l.rules.Snapshot(), l.now()
	s.view = l.meter.viewOf(snapshot, now)
	domain, err := domainOf(snapshot, check.Domain)
	if err != nil {
		return "", err
	}
	if err := s.identify(domain, check); err != nil {
		return "", err
	}
	if len(s.entries) == 0 {
		v.Allow, v.Reason = true, ReasonNoRule
		return "", nil
	}
	if err := s.gather(now, l.place); err != nil {
		return "", err
	}
	token.Domain = domain.Name()
	if err := s.hold(&token); err != nil {
		return "", err
	}
	if s.refused || len(s.ops) == 0 {
		s.answer(v)
		return "", nil
	}
	s.grants, err = l.direct(ctx, s.grants[:0], s.ops)
	told := false
	if err != nil {
		l.log.storeAway(now, err)
		s.insist()
		grants, closed := l.store.AppendAway(s.grants[:0], s.ops, s.terms, s.instead, err)
		s.grants = grants
		if closed != pod.NoneClosed {
			return "", storeError(s.ruleOf(closed), err)
		}
		v.Degraded, told = degradedBy(err), !sent(err)
	}
	s.answer(v)
	if !v.Allow || len(s.grants) == 0 {
		return "", nil
	}
	s.held(&token, v.Degraded != "", told)
	if len(token.Entries) == 0 {
		return "", nil
	}
	text, err := l.sealer.Seal(&token)
	if err != nil { // hold has looked whether it fits
		return "", &Error{Code: CodeTooLarge, Message: "the reservation has no text", Err: err}
	}
	return Reservation(text), nil
}

// newToken begins the token of a reservation.
func newToken(id string, ttl time.Duration) (t reservation.Token, err error) {
	if ttl == 0 {
		ttl = DefaultReservationTTL
	}
	switch {
	case len(id) > maxReservationName:
		return t, &Error{Code: CodeTooLarge, Field: "/id", Message: fmt.Sprintf("an id of %d bytes is longer than %d", len(id), maxReservationName)}
	case ttl < MinReservationTTL || ttl > MaxReservationTTL:
		return t, badRequest("/ttl_ms", "a reservation holds for %d to %d ms, not %d", MinReservationTTL.Milliseconds(), MaxReservationTTL.Milliseconds(), ttl.Milliseconds())
	}
	if id == "" {
		id = rand.Text()
	}
	return reservation.Token{ID: reservation.Name(id), TTLMS: ttl.Milliseconds()}, nil
}

// hold makes the ops of a check reserve, and finds what cannot.
func (s *scratch) hold(token *reservation.Token) error {
	for i := range s.ops {
		op := &s.ops[i]
		op.Want = 0
		log, report := op.Limit.Algorithm == limit.SlidingLog, s.terms[i].Counting == pod.Report
		switch {
		case report, op.Shadow && (log || s.terms[i].Counting == pod.Local):
			// Shown, and never in the way; of a report all is added in the end.
			op.How, op.Shadow = store.Peek, true
		case log:
			return notReservable(s.ruleOf(i), "counts admissions one by one (sliding_log), of which none can be given back in part later; use token_bucket, sliding_window or fixed_window")
		case s.terms[i].Counting == pod.Local:
			return notReservable(s.ruleOf(i), "counts on each pod alone, and another pod may have to settle it; use counting lease or exact")
		case op.Cost == 0:
			return &Error{Code: CodeInvalidCost, Rule: s.ruleOf(i), Message: "a reservation of cost 0 reserves nothing; estimate 1 or more"}
		default:
			op.How, op.TTLMS = store.Reserve, token.TTLMS
			op.Reservation = reservation.In(token.ID, op.Bucket.Domain, op.Bucket.Rule, op.Bucket.Key)
		}
	}
	whole := *token
	for i := range s.ops {
		whole.Entries = append(whole.Entries, tokenEntry(&s.ops[i], reservation.Held))
	}
	if !reservation.Fits(&whole) {
		return &Error{Code: CodeTooLarge, Message: reservation.ErrTooLong.Error()}
	}
	return nil
}

func notReservable(rule, why string) *Error {
	return &Error{Code: CodeNotReservable, Rule: rule, Message: "rule " + rule + " " + why}
}

func tokenEntry(op *store.Op, kind reservation.Kind) reservation.Entry {
	return reservation.Entry{Rule: op.Bucket.Rule, Key: op.Bucket.Key, Cost: op.Cost, Kind: kind}
}

// held writes what an allowed check has set aside into its token. degraded says that
// the pod answered, and told that the call surely did not run: then what its fallback
// admitted is told the store without the reservation's name.
func (s *scratch) held(token *reservation.Token, degraded, told bool) {
	for i := range s.ops {
		op, g := &s.ops[i], &s.grants[i]
		kind := reservation.Held
		switch {
		case op.How == store.Peek && s.terms[i].Counting == pod.Report:
			kind = reservation.Reported
		case !g.OK || op.How != store.Reserve: // not enforced, and not spent
			continue
		case degraded && (g.Source == store.FromLease || g.Source == store.FromAsync || g.Source == store.FromFallback && told):
			kind = reservation.Told
		}
		token.Entries = append(token.Entries, tokenEntry(op, kind))
	}
}

// direct asks the store itself: a reservation is nothing that a pod could lease.
func (l *Limiter) direct(ctx context.Context, dst []store.Grant, ops []store.Op) ([]store.Grant, error) {
	var grants []store.Grant
	var err error
	if l.pod != nil {
		grants, err = l.pod.Direct(ctx, ops)
	} else {
		grants, err = l.behind.Take(ctx, ops)
	}
	if err == nil && len(grants) != len(ops) {
		err = shortAnswer(len(grants), len(ops))
	}
	if err != nil {
		return dst, err
	}
	return append(dst, grants...), nil
}

// sent reports whether a call that failed may have run.
func sent(err error) bool {
	e, ok := errors.AsType[*store.StoreError](err)
	return !ok || e.Sent
}
