package tallygate

import (
	"errors"
	"math"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// reset empties v and keeps the memory of its entries.
func (v *Verdict) reset() { *v = Verdict{Entries: v.Entries[:0], Tightest: none} }

// answer makes the verdict of what the rules and the store said, or the pod in its
// place. Without grants nobody was asked, or nobody could answer.
func (s *scratch) answer(v *Verdict) {
	for i := range s.entries {
		e := &s.entries[i]
		v.Entries = append(v.Entries, EntryVerdict{
			Rule: e.rule.ID(), Set: e.set, Shadow: e.rule.Shadow(), Allow: true, Source: SourceRule,
			reports: e.inForce.Counting() == rules.CountingReport,
		})
		a := &v.Entries[i]
		switch {
		case e.reason != ReasonNone:
			a.Allow, a.Reason = false, e.reason
		case e.back > 0 && e.op != none:
			s.gaveBack(e, a, v)
		case e.op != none && len(s.grants) == 0:
			a.Source, a.Reason = SourceNone, Reason(v.Degraded)
		case e.op != none:
			a.read(&s.grants[e.op], s.ops[e.op].Limit)
			if a.Allow && !a.Counted {
				a.Reason = Reason(v.Degraded)
			}
			v.NowMS = max(v.NowMS, s.grants[e.op].NowMS)
		}
	}
	v.conclude()
}

// read takes over what the store said of one bucket. numbers are those it was
// asked by, in case the grant names none.
func (a *EntryVerdict) read(g *store.Grant, numbers *limit.Limit) {
	if g.Skipped {
		// Another entry had denied already: this one's own verdict is not known and
		// nothing of it was spent.
		a.Source = SourceNone
		return
	}
	if g.Limit != nil {
		numbers = g.Limit
	}
	a.Source = sourceOf(g.Source)
	if a.Source != SourceFallback && a.Source != SourceAllowlist {
		// What is left of the limit is the store's to know.
		a.Counted = true
		a.Limit, a.WindowMS = numbers.Full(), windowMS(numbers, g.NowMS)
		a.Remaining, a.ResetMS = g.Remaining, g.ResetMS
	}
	switch {
	case g.OK:
	case g.Reserved == store.ReservedSettled:
		a.Allow, a.Reason = false, ReasonSettled
	case g.Reserved == store.ReservedTooMany && !g.Never:
		a.Allow, a.Reason, a.RetryMS = false, ReasonTooManyReservations, g.RetryMS
	case g.Never:
		a.Allow, a.Reason = false, ReasonCostExceed
	default:
		a.Allow, a.Reason, a.RetryMS = false, ReasonOverLimit, g.RetryMS
	}
}

// sourceOf names who answered.
func sourceOf(s store.Source) Source {
	switch s {
	case store.FromLease:
		return SourceLease
	case store.FromDenyCache:
		return SourceDenyCache
	case store.FromPreLimit:
		return SourcePreLimit
	case store.FromAsync:
		return SourceAsync
	case store.FromLocal:
		return SourceLocal
	case store.FromFallback:
		return SourceFallback
	case store.FromAllowlist:
		return SourceAllowlist
	case store.FromStore:
	}
	return SourceStore
}

// conclude makes the check's verdict of its entries': the strictest, shadow
// entries aside.
func (v *Verdict) conclude() {
	v.Allow, v.Tightest = true, none
	strictest := none
	for i := range v.Entries {
		e := &v.Entries[i]
		switch {
		case !e.Enforced():
		case !e.Allow:
			if v.Allow || e.wait() > v.Entries[strictest].wait() {
				v.Allow, strictest = false, i
			}
		case v.Allow && e.Counted:
			if strictest == none || e.Remaining < v.Entries[strictest].Remaining {
				strictest = i
			}
		}
	}
	if strictest == none {
		return
	}
	e := &v.Entries[strictest]
	if e.Counted {
		v.Tightest = strictest
	}
	if !v.Allow {
		v.DeniedBy, v.RetryMS = e.Rule, e.RetryMS
	}
}

// wait is how long a denied entry keeps a request waiting: for ever where no
// waiting helps.
func (a *EntryVerdict) wait() int64 {
	if a.Reason != ReasonOverLimit && a.Reason != ReasonTooManyReservations {
		return math.MaxInt64
	}
	return a.RetryMS
}

// degradedBy names the reason why the store did not answer. A shard that was given up
// on is unavailable, whatever made it so.
func degradedBy(err error) Degraded {
	var e *store.StoreError
	if errors.As(err, &e) && e.Kind == store.Timeout && e.Down == 0 {
		return DegradedTimeout
	}
	return DegradedUnavailable
}

// storeError is what a check gets that a rule fails closed.
func storeError(rule string, err error) *Error {
	code := CodeStoreUnavailable
	if degradedBy(err) == DegradedTimeout {
		code = CodeStoreTimeout
	}
	return &Error{
		Code: code, Rule: rule, Err: err,
		Message: "the store did not answer and rule " + rule + " fails closed",
	}
}

// windowMS is the time in which the whole limit comes back.
func windowMS(l *limit.Limit, nowMS int64) int64 {
	switch {
	case l.Algorithm == limit.TokenBucket:
		return ceilDiv(l.Burst*l.PeriodMS, l.Rate)
	case l.Calendar != nil:
		start, end := l.Calendar.At(nowMS)
		return end - start
	default:
		return l.WindowMS
	}
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
