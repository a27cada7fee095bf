package pod

import (
	"errors"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// Instead is what a rule says of an op that the store did not answer. The zero value
// is a rule that fails closed: only what is paid for passes.
type Instead struct {
	// Milli is the part of the limit, in thousandths, that all pods together may
	// admit: OpenShare of a rule that fails open, less of one that fails closed and
	// has an allowance.
	Milli int64
	// Pass says that the rule fails closed and lists the key: it passes, uncounted.
	Pass bool
}

// NoneClosed is what Away returns where no rule refuses.
const NoneClosed = -1

// Away answers a check whose call failed with err, and appends a grant an op to dst.
// All of it passes, or nothing is spent: where an enforced op of a rule that fails
// closed has nothing else to pass by, closed is its place, and there is no answer;
// else where a fallback has too little, the answer is no.
func (p *Pod) Away(now int64, dst []store.Grant, ops []store.Op, terms []Terms, rules []Instead, err error) (grants []store.Grant, closed int) {
	start := len(dst)
	for i := range ops {
		dst = append(dst, store.Grant{Skipped: true, Limit: ops[i].Limit})
	}
	q := alone{pod: p, now: now, ops: ops, terms: terms, rules: rules, grants: dst[start:], mayHaveRun: mayHaveRun(err)}
	if e, ok := errors.AsType[*store.StoreError](err); ok {
		q.downNS, q.refused = int64(e.Down), e.Kind == store.Refused
	}
	var hashes [store.MaxOps]uint64
	mask := p.lock(ops, hashes[:])
	closed = q.answer(hashes)
	p.buckets.Unlock(mask)
	if closed != NoneClosed {
		return dst[:start], closed
	}
	if q.sync != 0 {
		p.schedule(now, ops, terms, q.sync)
	}
	if q.owes != 0 {
		p.owe(now, ops, q.owes)
	}
	return dst, NoneClosed
}

// way is how an op passes without the store.
type way uint8

const (
	unasked   way = iota // a shadow rule, or one that only reports: it has no say
	listed               // its key is on the rule's list
	paid                 // from a lease
	estimated            // within what an async rule may admit before it tells
	drawn                // from the fallback
)

// alone is one check that the store did not answer, its buckets locked.
type alone struct {
	pod        *Pod
	now        int64
	ops        []store.Op
	terms      []Terms
	rules      []Instead
	grants     []store.Grant
	downNS     int64
	refused    bool
	mayHaveRun bool

	ways  [store.MaxOps]way
	known [store.MaxOps]*bucket
	from  [store.MaxOps]*fallback
	// sync and owes have a bit for each op whose count, and whose debt, is to be told.
	sync, owes uint32
}

// answer decides all ops, then spends or refuses.
func (q *alone) answer(hashes [store.MaxOps]uint64) (closed int) {
	for i := range q.ops {
		if !q.choose(i, hashes[i]) {
			return i
		}
	}
	overflowing := false
	for i := range q.ops {
		if q.ways[i] == drawn {
			overflowing = q.find(i, hashes[i], overflowing)
		}
	}
	short := NoneClosed
	for i := range q.ops {
		if q.ways[i] == drawn && !q.from[i].has(q.ops[i].Cost) {
			short = i
			break
		}
	}
	if short == NoneClosed {
		q.spend()
	} else {
		q.refuse()
	}
	for _, b := range q.known {
		if b != nil {
			b.flights--
		}
	}
	if overflowing {
		q.pod.overflow.mu.Unlock()
	}
	return NoneClosed
}

// choose finds how op i may pass; false if its rule refuses.
func (q *alone) choose(i int, hash uint64) bool {
	op, counting := &q.ops[i], Lease
	if q.terms != nil {
		counting = q.terms[i].Counting
	}
	b := q.pod.buckets.GetLocked(hash, keyed.Name(op.Bucket))
	mine := b != nil && b.bind(op)
	switch {
	case op.How == store.Add:
		if mine { // counted by Local
			q.yes(i, b, store.FromAsync)
		}
	case op.Shadow:
	case q.rules[i].Pass:
		q.ways[i] = listed
	case mine && op.Cost > 0 && counting == Lease && b.leases.tokens(q.now) >= op.Cost:
		q.ways[i] = paid
		q.pin(i, b)
	case mine && op.Cost > 0 && counting == Async && b.tally != nil && b.tally.may(q.now, op.Cost):
		q.ways[i] = estimated
		q.pin(i, b)
	case q.rules[i].Milli == 0:
		q.unpin()
		return false
	default:
		q.ways[i] = drawn
	}
	return true
}

// pin keeps a bucket in the table while room is made for others.
func (q *alone) pin(i int, b *bucket) {
	q.known[i] = b
	b.flights++
}

func (q *alone) unpin() {
	for i, b := range q.known {
		if b != nil {
			b.flights--
			q.known[i] = nil
		}
	}
}

// find brings the fallback of op i to now: its bucket's own, or, where the table has
// no room, the one that all such keys of its rule share.
func (q *alone) find(i int, hash uint64, overflowing bool) bool {
	op, p := &q.ops[i], q.pod
	b, l := p.holder(q.now, hash, op), op.Limit
	if b != nil && b.limit == l {
		l = b.numbers(q.now)
	}
	n := shareOf(l, q.rules[i].Milli, p.pods.Load(), op.MaxCost)
	if b != nil {
		q.pin(i, b)
		t := b.counts()
		if t.fallback == nil {
			t.fallback = n.full(q.now)
			p.fallen.Add(1)
		}
		q.from[i] = t.fallback
	} else {
		if !overflowing {
			p.overflow.mu.Lock()
		}
		overflowing = true
		q.from[i] = p.overflow.of(op.Bucket.Rule, n, q.now)
	}
	q.from[i].failed(q.now, n, q.downNS, q.refused)
	return overflowing
}

// spend takes what the ops cost.
func (q *alone) spend() {
	for i := range q.ops {
		op, b := &q.ops[i], q.known[i]
		switch q.ways[i] {
		case unasked:
		case listed:
			q.grants[i] = store.Grant{OK: true, Source: store.FromAllowlist, Limit: op.Limit, NowMS: q.pod.nowMS(q.now)}
		case paid:
			b.leases.spend(q.now, op.Cost)
			b.ask(q.now, op.Cost)
			b.view.remaining -= op.Cost
			q.yes(i, b, store.FromLease)
		case estimated:
			if b.tally.admit(op.Cost) {
				q.sync |= 1 << i
			}
			b.view.remaining -= op.Cost
			q.yes(i, b, store.FromAsync)
		case drawn:
			q.draw(i)
			q.grants[i] = store.Grant{OK: true, Source: store.FromFallback, Limit: op.Limit, NowMS: q.pod.nowMS(q.now)}
		}
	}
}

// yes answers op i from what the pod has.
func (q *alone) yes(i int, b *bucket, from store.Source) {
	q.grants[i] = store.Grant{} // not skipped
	q.pod.yes(&q.grants[i], q.now, b, from)
}

// draw takes what op i costs from its fallback, and notes what the store is to be
// told. Of keys that share a fallback nobody knows any more whose it was.
func (q *alone) draw(i int) {
	op, b := &q.ops[i], q.known[i]
	q.from[i].draw(op.Cost)
	if b == nil {
		q.pod.overflowed.Add(1)
		return
	}
	if q.mayHaveRun || op.Cost == 0 {
		return
	}
	d := &b.tally.fallback.debt
	d.add(b.numbers(q.now), op.Cost)
	d.heard = false
	if !d.queued {
		d.queued = true
		q.owes |= 1 << i
	}
}

// refuse answers no: each op that a fallback has too little for is a denial, of the
// others nothing is known.
func (q *alone) refuse() {
	for i := range q.ops {
		op, f := &q.ops[i], q.from[i]
		if q.ways[i] != drawn || f.has(op.Cost) {
			continue
		}
		g := store.Grant{Source: store.FromFallback, Limit: op.Limit, NowMS: q.pod.nowMS(q.now)}
		if op.Cost*micro > f.n.most {
			g.Never = true
		} else {
			g.RetryMS = f.waitMS(op.Cost)
		}
		q.grants[i] = g
	}
}
