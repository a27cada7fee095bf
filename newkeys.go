package tallygate

import (
	"sync"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// A rule may bound how many new keys a second get a bucket of their own on a pod: a
// flood of invented identities then fills neither the pod's table nor the store, and
// finds no fresh bucket for each. Keys beyond share one bucket of the rule.

// knower tells keys that this pod knows from new ones.
type knower interface {
	// Knows reports whether there is an entry for the bucket, and keeps one that there
	// is from being forgotten for a second.
	Knows(b store.Bucket, t pod.Terms) bool
	// Meet makes an entry for a bucket that is let in, if there is room.
	Meet(op *store.Op, t pod.Terms)
}

// knower returns what knows keys: the pod, or the store in this process; nil for a
// store in this process that does not tell.
func (l *Limiter) knower() knower {
	if l.pod != nil {
		return l.pod
	}
	if h, ok := l.behind.(holder); ok {
		return inTable{h}
	}
	return nil
}

// holder is a store in this process that says what it has.
type holder interface{ Holds(b store.Bucket) bool }

// inTable knows the keys that a store in this process has. Taking makes an entry.
type inTable struct{ holder }

func (t inTable) Knows(b store.Bucket, _ pod.Terms) bool { return t.Holds(b) }
func (inTable) Meet(*store.Op, pod.Terms)                {}

// admit gives entry i the key that all newcomers share, unless its own is known or
// among the first new ones of the second. Entries of one key have the same answer.
func (s *scratch) admit(i int, now time.Time) {
	e := &s.entries[i]
	e.raw = e.key
	for j := range i {
		if o := &s.entries[j]; o.rule == e.rule && o.raw == e.raw {
			e.key = o.key
			return
		}
	}
	bucket, terms := bucketOf(e.inForce, e.key), termsOf(e.inForce)
	if s.known == nil || s.known.Knows(bucket, terms) {
		return
	}
	if !s.view.newcomers[e.rule.Ordinal()].take(now, e.inForce.MaxNewKeys()) {
		e.key = identity.OverflowKey
		return
	}
	numbers, _ := e.inForce.Effective(e.key, now)
	s.known.Meet(&store.Op{Bucket: bucket, Limit: numbers}, terms)
}

// newcomers lets in so many new keys of a rule a second, and as many at once.
type newcomers struct {
	mu sync.Mutex // guards what follows
	// tokens are billionths of a key, as of atNS.
	tokens, atNS int64
}

// newcomersOf returns one for each rule, those of the view before where it had the
// rule: a change of rules lets nobody in.
func newcomersOf(last *view, list []*rules.Compiled) []*newcomers {
	all := make([]*newcomers, len(list))
	for i, r := range list {
		if last != nil {
			if before := last.snapshot.Rule(r.ID()); before != nil {
				all[i] = last.newcomers[before.Ordinal()]
			}
		}
		if all[i] == nil {
			all[i] = new(newcomers)
		}
	}
	return all
}

// take lets one in, if the rate of perS a second, at most 10^9, allows.
func (n *newcomers) take(now time.Time, perS int64) bool {
	const one = int64(time.Second)
	n.mu.Lock()
	defer n.mu.Unlock()
	at := now.UnixNano()
	// A clock that stepped back brings nothing; the first look finds all.
	if elapsed := min(at-n.atNS, one); elapsed > 0 {
		n.tokens += elapsed * perS
	}
	n.atNS, n.tokens = at, min(n.tokens, one*perS)
	if n.tokens < one {
		return false
	}
	n.tokens -= one
	return true
}
