package reservation

import (
	"fmt"
	"slices"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Settlement is what became of a reservation.
type Settlement string

// The settlements.
const (
	Committed Settlement = "committed"
	Canceled  Settlement = "canceled"
	Repeated  Settlement = "repeated"
	Late      Settlement = "late"
	Unknown   Settlement = "unknown"
)

// Costs are what a request really cost: in all its rules alike or, where Named, by the
// id of the rule, as much as was reserved where Each has none.
type Costs struct {
	All   int64
	Each  map[string]int64
	Named bool
}

func (c Costs) of(rule string, reserved int64) int64 {
	if !c.Named {
		return c.All
	}
	if cost, there := c.Each[rule]; there {
		return cost
	}
	return reserved
}

// Check refuses costs that are none, or of a rule that is not in t.
func (c Costs) Check(domain *rules.Domain, t *Token) *Refused {
	if no := realCost(c.All, "/cost"); no != nil {
		return no
	}
	for id, cost := range c.Each {
		if no := realCost(cost, "/costs/"+id); no != nil {
			return no
		}
		if !slices.ContainsFunc(t.Entries, func(e Entry) bool {
			rule, _ := versionOf(domain, e.Rule)
			return e.Rule == id || rule != nil && rule.ID() == id
		}) {
			return &Refused{"unknown_rule", "/costs/" + id, "the reservation has no such rule", -1}
		}
	}
	return nil
}

// realCost refuses what is no cost.
func realCost(cost int64, field string) *Refused {
	if cost < 0 || cost > limit.MaxCost {
		return &Refused{"invalid_cost", field, fmt.Sprintf("cost %d is no number of tokens from 0 to %d", cost, limit.MaxCost), -1}
	}
	return nil
}

// Valid refuses what only a token can say that somebody else made.
func (t *Token) Valid() bool {
	ttl := time.Duration(t.TTLMS) * time.Millisecond
	return t.TTLMS <= store.MaxReservationTTL.Milliseconds() && ttl >= store.MinReservationTTL &&
		!slices.ContainsFunc(t.Entries, func(e Entry) bool {
			return e.Cost > limit.MaxCost || e.Key == "" || len(e.Key) > rules.MaxKeyBytes
		})
}

// Outcome is what becomes of a reservation in one bucket, as it is counted.
type Outcome int

// The outcomes, and how many there are.
const (
	OutcomeReserved Outcome = iota
	OutcomeDenied
	OutcomeCommitted
	OutcomeCanceled
	OutcomeLate
	Outcomes
)

// Outcome returns how a settlement is counted; false for one that changed nothing.
func (s Settlement) Outcome() (o Outcome, counted bool) {
	switch s {
	case Committed:
		return OutcomeCommitted, true
	case Canceled:
		return OutcomeCanceled, true
	case Late:
		return OutcomeLate, true
	case Repeated, Unknown:
	}
	return 0, false
}

// Settling is a commit or a cancel under way.
type Settling struct {
	// Ops are to be asked of the store; Rules are theirs.
	Ops   []store.Op
	Rules []*rules.Compiled
	how   store.How
	kinds []Kind
	// left says that nothing is to be asked of some bucket: the pod that admitted it
	// has told, or will tell, all there is.
	left bool
}

// Settle prepares to commit or cancel t by the rules as they are now.
func Settle(domain *rules.Domain, t *Token, how store.How, costs Costs, now time.Time) Settling {
	s := Settling{how: how}
	for i := range t.Entries {
		s.add(domain, t, &t.Entries[i], costs, now)
	}
	return s
}

// add adds the op that settles one entry, if its rule still counts.
func (s *Settling) add(domain *rules.Domain, t *Token, e *Entry, costs Costs, now time.Time) {
	rule, counts := versionOf(domain, e.Rule)
	if rule == nil || rule.Action() != rules.ActionLimit {
		return
	}
	cost := costs.of(rule.ID(), e.Cost)
	switch {
	case e.Kind == Held:
	case s.how == store.Cancel, e.Kind == Told && cost <= e.Cost:
		s.left = true // what was told stays: a repeat could not be told from the first
		return
	case e.Kind == Told:
		cost -= e.Cost
	}
	bucket := store.Bucket{Domain: t.Domain, Rule: counts.BucketRule(), Key: e.Key}
	if slices.ContainsFunc(s.Ops, func(o store.Op) bool { return o.Bucket == bucket }) {
		return // its own entry settles it
	}
	numbers, _ := counts.Effective(e.Key, now)
	s.Rules, s.kinds = append(s.Rules, rule), append(s.kinds, e.Kind)
	s.Ops = append(s.Ops, store.Op{
		Bucket: bucket,
		How:    s.how, Limit: numbers, Cost: cost,
		NextWindow: rule.NextWindow(), Replicas: counts.Replicas(),
		Reservation: In(t.ID, t.Domain, bucket.Rule, e.Key), TTLMS: t.TTLMS,
	})
}

// versionOf finds the version of a rule by the name of its buckets: a rule, or its
// candidate. Where the candidate is none any more its buckets are gone, and the rule
// takes what it cost: the request has happened.
func versionOf(domain *rules.Domain, name string) (rule, counts *rules.Compiled) {
	if rule := domain.Rule(name); rule != nil {
		return rule, rule
	}
	for _, rule := range domain.Rules() {
		if t := rule.Trial(); t != nil && t.Rule.BucketRule() == name {
			return rule, t.Rule
		}
	}
	if id, was := rules.CandidateOf(name); was {
		rule = domain.Rule(id)
	}
	return rule, rule
}

// Met is what became of op i. What was not set aside by its name is not late.
func (s *Settling) Met(i int, g *store.Grant) Settlement {
	switch met := g.Reserved; {
	case met == store.ReservedSettled:
		return Repeated
	case met == store.ReservedUnknown && s.how == store.Cancel:
		return Unknown
	case met == store.ReservedUnknown && s.kinds[i] == Held:
		return Late
	}
	return s.done()
}

func (s *Settling) done() Settlement {
	if s.how == store.Cancel {
		return Canceled
	}
	return Committed
}

// All says what became of it all: late before settled now, and that before a repeat.
func (s *Settling) All(grants []store.Grant) Settlement {
	all := Unknown
	if s.left {
		all = s.done()
	}
	for i := range grants {
		switch met := s.Met(i, &grants[i]); {
		case met == Late:
			return Late
		case met == s.done(), met == Repeated && all == Unknown:
			all = met
		}
	}
	return all
}
