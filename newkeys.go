package tallygate

import (
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/newcomers"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// A rule may bound how many new keys a second get a bucket of their own (see
// newcomers.Gate). Keys beyond share one bucket of the rule.

// knower tells keys that this pod knows from new ones.
type knower interface {
	// Knows reports whether there is an entry for the bucket, and keeps one that there
	// is from being forgotten for a second.
	Knows(b store.Bucket, t pod.Terms) bool
	// Meet makes an entry for a bucket that is let in, if there is room.
	Meet(op *store.Op, t pod.Terms)
}

// admit gives entry i the key that all newcomers share, unless its own is known or
// among the first new ones of the second. Entries of one key have the same answer.
func (s *scratch) admit(i int) {
	e := &s.entries[i]
	if e.rule.Ordinal() < 0 {
		return // a caller's own rule, of which nothing is kept from check to check
	}
	e.raw = e.key
	for j := range i {
		if o := &s.entries[j]; o.rule == e.rule && o.raw == e.raw {
			e.key = o.key
			return
		}
	}
	bucket, terms := bucketOf(e.inForce, e.key), termsOf(e.inForce)
	if s.known.Knows(bucket, terms) {
		return
	}
	now := s.clock.Now()
	if !s.view.gates[e.rule.Ordinal()].Admit(now, e.inForce.MaxNewKeys()) {
		e.key = identity.OverflowKey
		return
	}
	numbers, _ := e.inForce.Effective(e.key, now)
	s.known.Meet(&store.Op{Bucket: bucket, Limit: numbers}, terms)
}

// gatesOf returns one gate for each rule, that of the view before where it had the
// rule: a change of rules lets nobody in.
func gatesOf(last *view, list []*rules.Compiled) []*newcomers.Gate {
	gates := make([]*newcomers.Gate, len(list))
	for i, r := range list {
		if last != nil {
			if before := last.snapshot.Rule(r.ID()); before != nil {
				gates[i] = last.gates[before.Ordinal()]
			}
		}
		if gates[i] == nil {
			gates[i] = new(newcomers.Gate)
		}
	}
	return gates
}
