package sim

import (
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// check is a check that waits for the store.
type check struct {
	waiter  *pod.Waiter
	at      int64
	serial  int32 // grows with each use of the place, so that old deadlines miss it
	pod     int32
	kind    int32
	key     int32
	lacking uint32
	// told is how many calls have told the store first, and sent says that its own
	// call, if it asks alone, was sent.
	told  int8
	alone bool
	sent  bool
	// ops are all of the check's; the waiter has those that it asks for.
	ops [MaxRules]store.Op
}

// outcome is how a check ends.
type outcome uint64

const (
	allowedByLease    outcome = iota
	allowedByEstimate         // of an async rule
	allowedByStore
	deniedByCache
	deniedByPreLimit
	deniedByStore
	unanswered // its pod has crashed
	allowedByFallback
	deniedByFallback
	failedClosed

	outcomes = iota
)

// check has a pod decide, as a gateway would.
func (f *fleet) check(p, kind, key int32) {
	m, s := &f.pods[p], &f.kinds[kind]
	if m.crashed {
		f.decided(p, kind, key, unanswered)
		return
	}
	for i := range s.ops {
		s.ops[i].Bucket.Key = f.keys[key]
	}
	grants, d := m.pod.Local(f.podNow(m), f.grants[:0], s.ops, s.terms)
	f.grants = grants
	if d.TopUp != nil {
		f.send(p, d.TopUp, forLeases)
	}
	switch d.Outcome {
	case pod.Allowed:
		f.admitLeased(kind, key, f.nowMS(), 0)
		f.decided(p, kind, key, either(grants, store.FromAsync, allowedByEstimate, allowedByLease))
	case pod.Denied:
		f.decided(p, kind, key, either(grants, store.FromPreLimit, deniedByPreLimit, deniedByCache))
	case pod.Ask:
		f.wait(p, kind, key, d.Lacking)
	}
}

// either tells outcomes apart by who answered any of a check's ops.
func either(grants []store.Grant, by store.Source, yes, no outcome) outcome {
	for i := range grants {
		if grants[i].Source == by {
			return yes
		}
	}
	return no
}

// wait joins a call of the store for the ops that lack tokens.
func (f *fleet) wait(p, kind, key int32, lacking uint32) {
	m, s := &f.pods[p], &f.kinds[kind]
	at := f.newCheck()
	c := &f.checks[at]
	c.at, c.pod, c.kind, c.key, c.lacking = f.now, p, kind, key, lacking
	c.told, c.sent = 0, false
	copy(c.ops[:], s.ops)
	w := c.waiter
	ops, terms := w.Ops[:0], w.Terms[:0]
	alone := true // nothing to share with other checks: see Runner
	for i := range s.ops {
		if lacking&(1<<i) != 0 {
			ops, terms = append(ops, s.ops[i]), append(terms, s.terms[i])
			alone = alone && s.ops[i].Want == 0 && s.terms[i].Counting != pod.Async
		}
	}
	*w = pod.Waiter{Ops: ops, Terms: terms, Grants: w.Grants[:0]}
	f.waiting[w] = at
	f.deadlines.push(deadline{at: f.now + int64(f.config.Network.Patience), check: at, serial: c.serial})
	c.alone = alone
	if alone {
		f.sendAlone(p, at)
		return
	}
	if call := m.pod.Join(f.podNow(m), w); call != nil {
		f.send(p, call, forChecks)
	}
}

// newCheck returns the place of a check to fill in.
func (f *fleet) newCheck() int32 {
	if n := len(f.freeChecks); n > 0 {
		at := f.freeChecks[n-1]
		f.freeChecks = f.freeChecks[:n-1]
		return at
	}
	f.checks = append(f.checks, check{waiter: newWaiter()})
	return int32(len(f.checks) - 1)
}

func newWaiter() *pod.Waiter {
	return &pod.Waiter{
		Ops: make([]store.Op, 0, MaxRules), Terms: make([]pod.Terms, 0, MaxRules), Grants: make([]store.Grant, 0, MaxRules),
	}
}

// answered ends a check that the store was asked for, at ranMS.
func (f *fleet) answered(w *pod.Waiter, ranMS int64) {
	at, ok := f.waiting[w]
	if !ok {
		return // it has left
	}
	c := &f.checks[at]
	if w.Err != nil {
		f.failed(at, w.Err)
		return
	}
	allowed := true
	for i := range w.Grants {
		allowed = allowed && w.Grants[i].OK
	}
	if !allowed {
		f.endCheck(at, deniedByStore)
		return
	}
	f.admitLeased(c.kind, c.key, epochMS+c.at/int64(time.Millisecond), c.lacking)
	for i := range w.Grants {
		spentMS := ranMS
		if w.Grants[i].Source != store.FromStore {
			spentMS = f.nowMS() // of what the pod had, when the answer came
		} else {
			f.bounds.believed(f, c, &w.Ops[i], ranMS)
		}
		f.admit(f.number(&w.Ops[i].Bucket), spentMS, w.Ops[i].Cost)
	}
	f.endCheck(at, allowedByStore)
}

// expire ends a check whose patience has ended, if it still waits.
func (f *fleet) expire(at, serial int32) {
	c := &f.checks[at]
	if c.serial != serial {
		return
	}
	m := &f.pods[c.pod]
	if e := (event{at: f.now, what: expires, pod: c.pod, ref: at, extra: serial}); f.defers(&e) {
		return
	}
	sent := m.pod.Leave(c.waiter)
	if c.alone {
		sent = c.sent
	}
	f.failed(at, &store.StoreError{Kind: store.Timeout, Sent: sent})
	// The pod, or a call of it, may still look at the waiter.
	f.checks[at].waiter = newWaiter()
}

// endCheck decides a check that waited and frees its place.
func (f *fleet) endCheck(at int32, o outcome) {
	c := &f.checks[at]
	m := &f.pods[c.pod]
	n := len(f.kinds[c.kind].ops)
	if o == deniedByStore && !m.crashed {
		m.pod.Refund(f.podNow(m), c.ops[:n], f.kinds[c.kind].terms, c.lacking)
	}
	f.tally.waited(f.now - c.at)
	f.decided(c.pod, c.kind, c.key, o)
	delete(f.waiting, c.waiter)
	c.serial++
	f.freeChecks = append(f.freeChecks, at)
}

// admitLeased books what a check took from leases: all but the ops it lacked.
func (f *fleet) admitLeased(kind, key int32, atMS int64, lacking uint32) {
	t := &f.config.Traffic[kind]
	for i, r := range t.Rules {
		if lacking&(1<<i) == 0 {
			f.admit(f.bucket(key, r), atMS, t.Cost)
		}
	}
}

func (f *fleet) admit(number int32, atMS, tokens int64) {
	f.tally.buckets[number].admitted += tokens
	f.envelope.Admit(number, atMS, tokens)
	f.bounds.admit(number, atMS, tokens)
}

// decided counts a decision and adds it to the trace.
func (f *fleet) decided(p, kind, key int32, o outcome) {
	f.tally.outcomes[o]++
	f.tally.trace(uint64(f.now))
	f.tally.trace(uint64(p)<<48 | uint64(kind)<<40 | uint64(uint32(key))<<8 | uint64(o))
}
