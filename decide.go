package tallygate

import (
	"context"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/rules"
)

// Decide is [Limiter.Check] into a verdict that is used again: with a store that
// is a store.Appender it does not allocate. v is overwritten, its Entries keep
// their memory; after an error it holds no verdict.
func (l *Limiter) Decide(ctx context.Context, check Check, v *Verdict) error {
	v.reset()
	s := l.scratch.Get().(*scratch) //nolint:forcetypeassert // the pool holds nothing else
	err := l.decide(ctx, s, &check, v)
	l.meter.count(s, &check, v, err)
	if len(s.trials) > 0 {
		l.countTrials(s)
	}
	l.free(s) // after a panic it is not used again
	return err
}

// decide is the path of a request. It owns the order of the questions and every
// branch; what it calls does one step each.
func (l *Limiter) decide(ctx context.Context, s *scratch, check *Check, v *Verdict) error {
	if err := l.usable(ctx); err != nil {
		return err
	}
	snapshot := l.rules.Snapshot()
	s.view = l.meter.viewOf(snapshot, l.now)

	// Identify and match: which rules apply, and which key each counts.
	domain, err := domainOf(snapshot, check.Domain)
	if err != nil {
		return err
	}
	if err := s.identify(domain, check); err != nil {
		return err
	}
	if len(s.entries) == 0 {
		v.Allow, v.Reason = true, ReasonNoRule
		return nil
	}

	// Gather: one op a bucket, with the numbers in force for its key.
	s.anyway = check.CountDenied && s.token == nil
	if err := s.gather(l.place); err != nil {
		return err
	}
	if len(s.backs.ops) > 0 {
		l.giveBack(ctx, s)
	}
	if s.token != nil {
		if err := s.hold(domain.Name()); err != nil {
			return err
		}
	}
	if s.anyway {
		apart(s.ops, s.terms)
	}

	// A rule that always refuses ends it here, so that nothing is spent anywhere;
	// a check of rules that count nothing needs no store.
	if s.refused && !s.anyway || len(s.ops) == 0 {
		s.answer(v)
		return nil
	}

	// Ask: the pod for what it has paid for or remembers (in pod.Local), else the
	// store, all buckets in one step, all or nothing. A reservation asks the store.
	began := s.begin()
	if s.token == nil {
		s.grants, err = l.store.AppendTake(ctx, s.grants[:0], s.ops, s.terms)
	} else {
		s.grants, err = l.direct(ctx, s.grants[:0], s.ops)
	}
	if err = pod.Short(s.ops, s.grants, err); err == nil {
		s.answer(v)
		// Try: of a rule with a candidate the version that is not in force is asked as
		// well, in the time that is left. It changes nothing of the verdict.
		if len(s.trials) > 0 && s.token == nil {
			l.try(ctx, s, v, began)
		}
		if s.anyway {
			l.countDenied(ctx, s, v)
		}
		return nil
	}

	return l.away(s, v, err)
}

// Valid returns the [Error] with which Check would refuse check by the rules in force
// now, and nil where it would decide it. It asks no store and spends nothing.
func (l *Limiter) Valid(check Check) error {
	s := l.scratch.Get().(*scratch) //nolint:forcetypeassert // the pool holds nothing else
	defer l.free(s)
	domain, err := domainOf(l.rules.Snapshot(), check.Domain)
	if err != nil {
		return err
	}
	if err := s.identify(domain, &check); err != nil {
		return err
	}
	s.looks = true // no key is new for it
	return s.gather(l.place)
}

// identify finds the rules that apply, and which key each counts.
func (s *scratch) identify(domain *rules.Domain, check *Check) error {
	switch {
	case check.Sets != nil:
		return s.matchSets(domain, check)
	case check.Attributes != nil:
		return s.match(domain, check)
	default:
		return s.name(domain, check)
	}
}

// away decides without the store, which did not answer. The cause is logged, since no
// answer shows it to the caller.
func (l *Limiter) away(s *scratch, v *Verdict, err error) error {
	l.log.StoreAway(s.clock.Now(), err)
	if s.refused { // it was asked only to count
		v.Degraded, s.grants = degradedBy(err), s.grants[:0]
		s.answer(v)
		return nil
	}
	if s.anyway {
		s.together()
	}

	// Closed wins over open: a rule that fails closed, and has nothing that lets the
	// check pass, ends it. Then what this pod has must do, for all buckets or none.
	s.insist()
	grants, closed := l.store.AppendAway(s.grants[:0], s.ops, s.terms, s.instead, err)
	s.grants = grants
	if closed != pod.NoneClosed {
		return storeError(s.ruleOf(closed), err)
	}
	v.Degraded, s.told = degradedBy(err), !reservation.Sent(err)
	s.answer(v)
	return nil
}

// domainOf returns the domain a check names.
func domainOf(snapshot *rules.Snapshot, name string) (*rules.Domain, error) {
	if name == "" {
		name = rules.DefaultDomain
	}
	domain := snapshot.Domain(name)
	if domain == nil {
		return nil, &Error{Code: CodeUnknownDomain, Field: "/domain", Message: "there is no rule in domain " + quote(name)}
	}
	return domain, nil
}

// free gives the scratch of a check back. It forgets the keys, so that an idle
// limiter does not hold on to them.
func (l *Limiter) free(s *scratch) {
	clear(s.entries)
	clear(s.ops)
	clear(s.grants)
	clear(s.matched)
	clear(s.bound)
	if s.onTrial {
		s.forgetTrials()
	}
	s.entries, s.ops, s.grants = s.entries[:0], s.ops[:0], s.grants[:0]
	s.matched, s.bound, s.terms = s.matched[:0], s.bound[:0], s.terms[:0]
	s.instead = s.instead[:0]
	s.backs.forget()
	s.refused, s.anyway, s.looks, s.view, s.token, s.told = false, false, false, nil, nil, false
	s.clock.Forget()
	l.scratch.Put(s)
}
