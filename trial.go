package tallygate

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Trial is what a pod counted of a rule and its candidate, in slices of 10 s.
type Trial = candidate.Trial

// Trials returns what this pod counted of candidates in slices that began at
// sinceMS or later and have ended at now, by Config.Now. Three minutes are kept.
// Keys are as Config.ShowKey shows them.
func (l *Limiter) Trials(sinceMS int64, now time.Time) []Trial {
	snapshot := l.rules.Snapshot()
	told := l.tally.Since(sinceMS, now.UnixMilli())
	kept := told[:0]
	for _, t := range told {
		rule := snapshot.Rule(t.Rule)
		if rule == nil {
			continue // its trial has ended with it
		}
		for _, s := range t.Slices {
			for i := range s.Keys {
				s.Keys[i].Key = l.showKey(rule.Domain(), s.Keys[i].Key)
			}
		}
		kept = append(kept, t)
	}
	return kept
}

// inForce returns the version of a rule whose verdict holds on the pod at that place.
func inForce(rule *rules.Compiled, place int) *rules.Compiled {
	if t := rule.Trial(); t != nil && t.Stage == rules.StageCanary && place < t.Percent {
		return t.Rule
	}
	return rule
}

// trial is one bucket of a check whose rule has a candidate.
//
// Both versions are asked, each in a bucket of its own, and each spends where it
// would allow by itself; where another entry denies the check, neither does. So they
// cannot be asked in one step, in which a denial of the version in force would keep
// the other from spending: first the check is decided, and then, where it was allowed
// or denied by nothing but this trial, the other version is asked like a shadow rule.
type trial struct {
	entry int   // the first of its entries
	cost  int64 // of all of them
	// other is the op of the version that is not in force; none while it is not asked.
	other int
	// known says that the verdicts of both are, denied and otherDenied what they are.
	known, denied, otherDenied bool
}

// version returns the version of an entry's rule that is not in force.
func (e *entry) version() *rules.Compiled {
	if e.inForce == e.rule {
		return e.rule.Trial().Rule
	}
	return e.rule
}

// tried reports whether an entry is part of a trial: both versions may deny it.
func (e *entry) tried() bool {
	return e.rule.Trial() != nil && e.rule.Action() == rules.ActionLimit && e.cost > 0 &&
		e.inForce.Counting() != rules.CountingReport && e.version().Counting() != rules.CountingReport
}

// pair makes one trial of each bucket whose rule has a candidate.
func (s *scratch) pair() {
	s.nowMS = s.clock.Now().UnixMilli()
next:
	for i := range s.entries {
		e := &s.entries[i]
		if !e.tried() {
			continue
		}
		for j := range s.trials {
			if t := &s.trials[j]; s.sameBucket(t.entry, i) {
				t.cost += e.cost
				if e.reason != ReasonNone {
					s.overpriced(t)
				}
				continue next
			}
		}
		s.trials = append(s.trials, trial{entry: i, cost: e.cost, other: none})
		if e.reason != ReasonNone {
			s.overpriced(&s.trials[len(s.trials)-1])
		}
	}
}

// overpriced ends a trial whose cost is above the max_cost of the version in force. That
// counts as its denial, and as one of the other only where its max_cost is passed too:
// no bucket is asked, and nothing spent, as in a check that is refused for it.
func (s *scratch) overpriced(t *trial) {
	e := &s.entries[t.entry]
	_, most := e.version().Effective(e.key, s.clock.Now())
	t.known, t.denied, t.otherDenied = true, true, t.cost > most
}

// refuse makes the trial of an entry whose cost refuses the whole check.
func (s *scratch) refuse(i int, cost int64) {
	if s.entries[i].tried() {
		s.onTrial, s.nowMS = true, s.clock.Now().UnixMilli()
		s.trials = append(s.trials[:0], trial{entry: i, cost: cost, other: none})
		s.overpriced(&s.trials[0])
	}
}

// sameBucket reports whether two entries count in one bucket.
func (s *scratch) sameBucket(i, j int) bool {
	return s.entries[i].rule == s.entries[j].rule && s.entries[i].key == s.entries[j].key
}

// begin returns when a check with a trial asks for the first time. No other reads a
// clock for it.
func (s *scratch) begin() (began time.Time) {
	if len(s.trials) > 0 {
		began = time.Now() // not Config.Now, which may step: a deadline hangs on it
	}
	return began
}

// try asks the versions that are not in force, once the check is decided, and notes
// what both said.
func (l *Limiter) try(ctx context.Context, s *scratch, v *Verdict, began time.Time) {
	for i := range s.trials {
		s.other(&s.trials[i], v)
	}
	if len(s.others) == 0 {
		return
	}
	if s.anyway {
		apart(s.others, s.otherTerms)
	}
	if l.pod != nil {
		within, cancel := context.WithDeadline(ctx, began.Add(l.deadline))
		defer cancel()
		ctx = within
	}
	var err error
	s.otherGrants, err = l.store.AppendTake(ctx, s.otherGrants[:0], s.others, s.otherTerms)
	if err = pod.Short(s.others, s.otherGrants, err); err != nil {
		s.otherGrants = s.otherGrants[:0]
		l.log.StoreAway(time.UnixMilli(s.nowMS), err)
		return
	}
	for i := range s.trials {
		if t := &s.trials[i]; t.other != none {
			g := &s.otherGrants[t.other]
			t.known, t.otherDenied = !g.Skipped, !g.OK
		}
	}
}

// other takes in what the version in force said, and makes the op of the other one,
// unless that refuses the cost, or another entry denies the check and so nothing of it
// is spent.
func (s *scratch) other(t *trial, v *Verdict) {
	e := &s.entries[t.entry]
	if t.known || s.grants[e.op].Skipped || !s.anyway && !s.passesBut(t, v) {
		return
	}
	t.denied = !s.grants[e.op].OK
	asked, now := &s.ops[e.op], time.UnixMilli(s.nowMS)
	version := e.version()
	numbers, most := version.Effective(e.key, now)
	if t.cost > most {
		t.known, t.otherDenied = true, true
		return
	}
	t.other = len(s.others)
	s.otherTerms = append(s.otherTerms, termsOf(version))
	s.others = append(s.others, store.Op{
		Bucket:   bucketOf(version, e.key),
		Limit:    numbers,
		Shadow:   true,
		NotFresh: version.NotFresh(e.key, now),

		NextWindow: version.NextWindow(),
		Cost:       asked.Cost,
		Want:       version.Lease(),
		Pods:       1,
		MaxCost:    most,
	})
}

// passesBut reports whether a check passes, or would but for one trial's denial. An
// entry that was not asked since the trial had denied counts as one that does not.
func (s *scratch) passesBut(t *trial, v *Verdict) bool {
	if v.Allow {
		return true
	}
	for i := range v.Entries {
		if e := &v.Entries[i]; !e.Allow && e.Enforced() && !s.sameBucket(i, t.entry) {
			return false
		}
	}
	return true
}

// countTrials counts the trials of a check of which both verdicts are known.
func (l *Limiter) countTrials(s *scratch) {
	for i := range s.trials {
		t := &s.trials[i]
		if !t.known {
			continue
		}
		e := &s.entries[t.entry]
		live, next := t.denied, t.otherDenied
		if e.inForce != e.rule {
			live, next = next, live
		}
		l.tally.Add(e.rule.ID(), e.rule.Trial().SinceMS, s.nowMS, e.key, live, next)
		l.meter.countTrial(s, e.rule, live, next)
	}
}

// forgetTrials empties what trials left in the scratch.
func (s *scratch) forgetTrials() {
	clear(s.others)
	clear(s.otherGrants)
	s.trials, s.others, s.otherTerms = s.trials[:0], s.others[:0], s.otherTerms[:0]
	s.otherGrants, s.onTrial = s.otherGrants[:0], false
}
