package pod

import (
	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Outcome is what a pod can say by itself.
type Outcome uint8

const (
	// Ask means that the store must be asked for the ops in Lacking; for the others
	// tokens are set aside, to be kept or given back by Refund.
	Ask Outcome = iota
	// Allowed means that what the pod has paid for, or may estimate, covers all of it.
	Allowed
	// Denied means that a denial of the store still holds, or that this pod alone
	// has admitted all there is. Nothing was spent.
	Denied
)

// Decision is a pod's own answer to a check.
type Decision struct {
	Outcome Outcome
	// Lacking has a bit for each op that the store must be asked for.
	Lacking uint32
	// TopUp is a call to be made in the background, or nil: the leases this check
	// spent from are low.
	TopUp *Call
}

// Local answers takes as far as the pod can, and appends a grant an op to dst:
// for an Ask, those of ops not Lacking. terms has one for each op; nil means that
// all of them lease.
func (p *Pod) Local(now int64, dst []store.Grant, ops []store.Op, terms []Terms) ([]store.Grant, Decision) {
	if len(ops) > fewOps {
		return p.localMany(now, dst, ops, terms)
	}
	var hashes [fewOps]uint64
	var known [fewOps]*bucket
	return p.local(now, dst, ops, terms, hashes[:len(ops)], known[:len(ops)])
}

// fewOps is how many ops nearly every check has at most: to clear room for MaxOps
// would cost it more than to look up a bucket.
const fewOps = 4

// localMany is Local of any number of ops. Its frame is its own, so that no other
// check clears it.
//
//go:noinline
func (p *Pod) localMany(now int64, dst []store.Grant, ops []store.Op, terms []Terms) ([]store.Grant, Decision) {
	var hashes [store.MaxOps]uint64
	var known [store.MaxOps]*bucket
	return p.local(now, dst, ops, terms, hashes[:len(ops)], known[:len(ops)])
}

func (p *Pod) local(now int64, dst []store.Grant, ops []store.Op, terms []Terms, hashes []uint64, known []*bucket) ([]store.Grant, Decision) {
	start := len(dst)
	for range ops {
		dst = append(dst, store.Grant{})
	}
	var q question // a literal would be made elsewhere and copied
	q.pod, q.now, q.ops, q.terms, q.grants, q.known = p, now, ops, terms, dst[start:], known
	mask := p.lock(ops, hashes)
	for i := range ops {
		q.find(i, hashes[i])
	}
	// The order of questions: what is paid for, a remembered denial, the pod's own
	// bucket in front of the store, the store.
	for i := range ops {
		q.say(i)
	}
	if q.outcome == Denied {
		q.refuse()
	} else {
		q.spend()
	}
	p.buckets.Unlock(mask)
	if q.sync != 0 {
		p.schedule(now, ops, terms, q.sync)
	}
	d := Decision{Outcome: q.outcome, Lacking: q.lacking}
	if q.low != 0 && q.outcome == Allowed { // an Ask makes a call anyway
		d.TopUp = p.topUp(now, ops, terms, q.low)
	}
	return dst, d
}

// question is one check as the pod looks at it, its buckets locked.
type question struct {
	pod    *Pod
	now    int64
	ops    []store.Op
	terms  []Terms
	grants []store.Grant
	known  []*bucket
	// outcome and lacking are the Decision's: one in here, with its pointer to a call,
	// would put known on the heap.
	outcome Outcome
	lacking uint32
	// low and sync have a bit for each op whose leases should be topped up, and
	// whose counts should be told.
	low, sync uint32
}

func (q *question) term(i int) Terms {
	if q.terms == nil {
		return Terms{}
	}
	return q.terms[i]
}

// find looks up what is known of an op's bucket. A rule that only reports needs
// an entry to count in.
func (q *question) find(i int, hash uint64) {
	op := &q.ops[i]
	if op.How == store.Add {
		q.known[i] = q.pod.entry(q.now, hash, op)
		return
	}
	if b := q.pod.buckets.GetLocked(hash, keyed.Name(op.Bucket)); b != nil && b.bind(op) {
		q.known[i] = b
		if t := q.term(i); t.Counting == Async {
			b.counts().everyNS = int64(t.sync())
		}
	}
}

// say decides one op: grants[i].OK, a bit of Lacking, or the check's denial.
func (q *question) say(i int) {
	op, b, counting := &q.ops[i], q.known[i], q.term(i).Counting
	if b == nil || op.Cost == 0 || counting == Exact || counting == Lease && op.Want == 0 {
		q.lacking |= 1 << i
		return
	}
	switch {
	case op.How == store.Add:
		q.grants[i].OK = true
	case counting == Lease && b.leases.tokens(q.now) >= op.Cost:
		q.grants[i].OK = true // paid for, whatever the store said since
	case b.denial.covers(q.now, op.Cost):
		q.pod.no(&q.grants[i], q.now, b, op.Cost)
		if !op.Shadow {
			q.outcome = Denied
		}
	case counting == Async && b.tally.may(q.now, op.Cost):
		q.grants[i].OK = true
	case b.pauses(q.now, op.Cost) && !op.Shadow:
		q.pod.no(&q.grants[i], q.now, b, op.Cost)
		q.outcome = Denied
	case q.before(i):
		q.outcome = Denied
	default:
		q.lacking |= 1 << i
	}
}

// before asks the pod's own bucket in front of the store, and reports whether that
// denies.
func (q *question) before(i int) (refused bool) {
	op, b := &q.ops[i], q.known[i]
	n, ok := q.term(i).Before.numbers(op.Limit, q.pod.pods.Load(), op.MaxCost)
	// A cost above the whole limit is the store's to answer: no waiting helps.
	if !ok || op.Shadow || !b.sure(op) || op.Cost > op.Limit.Full() {
		return false
	}
	b.pre.roll(q.now, q.now+q.pod.offsetNS.Load(), n)
	retryMS, refused := b.pre.refuses(op.Cost, q.now, n)
	if refused {
		_, resetMS := b.outlook(q.now)
		q.grants[i] = store.Grant{Source: store.FromPreLimit, Limit: b.limit, RetryMS: retryMS, ResetMS: resetMS, NowMS: q.pod.nowMS(q.now)}
	}
	return refused
}

// spend takes what the OK ops cost from what the pod has.
func (q *question) spend() {
	if q.lacking == 0 {
		q.outcome = Allowed
	}
	for i := range q.ops {
		if !q.grants[i].OK {
			continue
		}
		b, cost, from := q.known[i], q.ops[i].Cost, store.FromAsync
		switch {
		case q.ops[i].How == store.Add || q.term(i).Counting == Async:
			q.count(i)
		default:
			from = store.FromLease
			b.leases.spend(q.now, cost)
			b.ask(q.now, cost)
			if !q.ops[i].Shadow && b.low(q.now) {
				q.low |= 1 << i
			}
		}
		b.view.remaining -= cost
		q.pod.yes(&q.grants[i], q.now, b, from)
	}
}

// count counts an op that is told to the store later.
func (q *question) count(i int) {
	q.known[i].ask(q.now, q.ops[i].Cost)
	if q.known[i].counts().admit(q.ops[i].Cost) {
		q.sync |= 1 << i
	}
}

// refuse answers a check that is denied: what denied has its grant, of the others
// it says what is known. Rules that only report count what was asked.
func (q *question) refuse() {
	q.lacking = 0
	for i := range q.ops {
		op, b := &q.ops[i], q.known[i]
		g := &q.grants[i]
		switch {
		case g.Limit != nil:
		case op.How == store.Add && b != nil:
			q.count(i)
			q.pod.yes(g, q.now, b, store.FromAsync)
		case b != nil && b.known:
			q.pod.yes(g, q.now, b, store.FromLease)
		default:
			*g = store.Grant{Skipped: true, Limit: op.Limit}
		}
	}
}

// nowMS is the store's clock as far as the pod knows it, 0 before any answer.
func (p *Pod) nowMS(now int64) int64 {
	if offset := p.offsetNS.Load(); offset != 0 {
		return (now + offset) / ms
	}
	return 0
}

// yes writes an answer from what the pod has to g, a grant of zeros or OK. A grant
// is three cache lines: it is filled in where it is, not copied.
func (p *Pod) yes(g *store.Grant, now int64, b *bucket, from store.Source) {
	g.OK, g.Source, g.Limit, g.NowMS = true, from, b.numbers(now), p.nowMS(now)
	g.Remaining, g.ResetMS = b.outlook(now)
}

// no writes a denial from memory to g, a grant of zeros.
func (p *Pod) no(g *store.Grant, now int64, b *bucket, cost int64) {
	g.Source, g.Limit, g.NowMS = store.FromDenyCache, b.numbers(now), p.nowMS(now)
	var left int64
	left, g.ResetMS = b.outlook(now)
	if b.known {
		g.Remaining = left
	}
	switch {
	case now < b.denial.untilNS:
		g.Never = b.denial.never
		if !g.Never {
			g.RetryMS = max(b.denial.retryMS(now)+dearer(b.limit, cost, int64(b.denial.cost)), b.pauseMS(now))
		}
		g.Remaining = min(g.Remaining, int64(b.denial.cost)-1) // the cost was not there
	default:
		g.RetryMS = max(1, b.pauseMS(now))
		if b.limit.Algorithm == limit.TokenBucket { // empty as of the last answer
			g.RetryMS = max(g.RetryMS, ceil(cost*b.limit.PeriodMS, b.limit.Rate))
		}
		g.Remaining = 0
	}
}

// Refund gives back what Local set aside for a check that was then denied, or
// whose answer is not known to have allowed it. Reports stay counted.
func (p *Pod) Refund(now int64, ops []store.Op, terms []Terms, lacking uint32) {
	var hashes [store.MaxOps]uint64
	mask := p.lock(ops, hashes[:])
	defer p.buckets.Unlock(mask)
	for i := range ops {
		if lacking&(1<<i) != 0 || ops[i].How == store.Add {
			continue
		}
		b := p.buckets.GetLocked(hashes[i], keyed.Name(ops[i].Bucket))
		if b == nil {
			continue
		}
		if terms != nil && terms[i].Counting == Async {
			b.counts().takeBack(ops[i].Cost)
		} else {
			b.leases.refund(now, ops[i].Cost)
		}
		b.view.remaining += ops[i].Cost
	}
}
