package pod

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// DefaultEntries bounds the buckets a pod remembers.
const DefaultEntries = 100_000

// Pod is the local state of one pod. Create it with New.
type Pod struct {
	buckets *keyed.Table[bucket]
	pods    atomic.Int64
	// offsetNS is the store's clock less the pod's, as of the last answer.
	offsetNS atomic.Int64
	figures  figures
	// fallen is how many buckets have a fallback, overflow those of keys without a
	// place in the table, and overflowed how often these were drawn on.
	fallen     atomic.Int64
	overflow   overflow
	overflowed atomic.Int64

	mu      sync.Mutex // guards what follows; buckets are locked after it, never before
	flights map[string]*flight
	// endings are the buckets whose leases end, by slot of TickEvery; ticked is the
	// next slot to look at.
	endings map[int64][]ending
	ticked  int64
	// surplus is what goes back since nobody took it.
	surplus []store.Op
	quiet   quiet
}

// New returns a pod that remembers at most so many buckets from now on; 0 means
// DefaultEntries.
func New(now int64, entries int) *Pod {
	if entries == 0 {
		entries = DefaultEntries
	}
	p := &Pod{
		buckets: keyed.New[bucket](entries),
		flights: map[string]*flight{},
		endings: map[int64][]ending{},
	}
	p.figures.rules, p.figures.over = map[string]*LeaseFigures{}, map[string]*OverFigures{}
	p.overflow.rules = map[string]*fallback{}
	p.quiet.most = mostTells
	p.pods.Store(1)
	p.ticked = now / int64(TickEvery)
	return p
}

// SetPods says how many pods are alive, this one included.
func (p *Pod) SetPods(n int64) { p.pods.Store(max(1, n)) }

// Pods returns how many pods are alive.
func (p *Pod) Pods() int64 { return p.pods.Load() }

// maxSharers is how many pods a lease leaves room for at most, however large the
// fleet. What a pod wants follows its own demand, so that more pods ask for less
// each; and of 150 pods that each left room for the others none could lease a token
// of a burst of 200, though the customer comes through five of them.
const maxSharers = 16

// sharers is the number of pods a lease leaves room for.
func (p *Pod) sharers() int64 { return min(p.pods.Load(), maxSharers) }

// Entries returns how many buckets the pod remembers.
func (p *Pod) Entries() int { return p.buckets.Len() }

// Call is a call of the store to be made. Its answer goes to Reply.
type Call struct {
	Ops     []store.Op
	askedNS int64
	// flight is who waits for the answer; nil for a call in the background.
	flight *flight
	// topUp says that the call fetches leases before they are used up, and triggers
	// which spends it pays for, by op.
	topUp    bool
	triggers []trigger
	// most is the largest lease each op may bring: its rule's.
	most []int64
	// terms are the ops' rules', or nil.
	terms []Terms
	// sync says that the call only tells counts: its flight asks after that.
	sync bool
	// tells says that the call only tells what fallbacks admitted, and forCheck that a
	// check waits to ask after it.
	tells, forCheck bool
}

// Tells reports whether the call only tells what was admitted without the store.
func (c *Call) Tells() bool { return c.tells }

// flightName names a set of buckets.
func flightName(ops []store.Op) string {
	if len(ops) == 1 {
		b := &ops[0].Bucket
		return b.Domain + "\x00" + b.Rule + "\x00" + b.Key
	}
	var s strings.Builder
	for i := range ops {
		b := &ops[i].Bucket
		for _, part := range []string{b.Domain, b.Rule, b.Key} {
			s.WriteString(strconv.Itoa(len(part)))
			s.WriteByte(':')
			s.WriteString(part)
		}
	}
	return s.String()
}

// Join asks the store for a check: with a call of its own, which is then
// returned, or by waiting for the one under way.
func (p *Pod) Join(now int64, w *Waiter) *Call {
	name := flightName(w.Ops)
	p.mu.Lock()
	f := p.flights[name]
	if f != nil {
		f.waiting = append(f.waiting, w)
		p.mu.Unlock()
		return nil
	}
	f = &flight{name: name, waiting: []*Waiter{w}}
	p.flights[name] = f
	speaksFor := f.depart()
	p.mu.Unlock()
	return p.call(now, f, speaksFor)
}

// Leave takes a waiter out, at its own deadline. It reports whether a call under
// way speaks for it: then its tokens may be spent.
func (p *Pod) Leave(w *Waiter) (sent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.gone = true
	return w.Sent
}

// call makes the call that speaks for these waiters.
func (p *Pod) call(now int64, f *flight, speaksFor []*Waiter) *Call {
	head := speaksFor[0]
	c := p.tellFirst(now, f, head.Ops)
	if c == nil {
		c = p.syncFirst(now, f, head)
	}
	if c != nil {
		p.notSent(speaksFor)
		return c
	}
	c = &Call{Ops: append([]store.Op(nil), head.Ops...), askedNS: now, flight: f, terms: head.Terms}
	var hashes [store.MaxOps]uint64
	mask := p.lock(c.Ops, hashes[:])
	defer p.buckets.Unlock(mask)
	pods := p.sharers()
	c.most = make([]int64, len(c.Ops))
	for i := range c.Ops {
		op := &c.Ops[i]
		c.most[i] = op.Want
		if b := p.entry(now, hashes[i], op); b != nil {
			b.flights++
			b.leases.expire(now)
			op.Reports = p.report(now, op.Bucket.Rule, b)
			op.Want, op.Pods = min(op.Want, b.want(now)), pods
			if c.terms != nil {
				op.Want = p.room(now, b, op, c.terms[i].Before, op.Want)
			}
		} else {
			op.Want = 0
		}
		for _, w := range speaksFor[1:] {
			op.Queue += w.cost(i)
		}
	}
	return c
}

// notSent says that the call under way does not include these checks.
func (p *Pod) notSent(speaksFor []*Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range speaksFor {
		w.Sent = false
	}
}

// lock locks the shards of all ops, and sets hashes to the hash of each.
func (p *Pod) lock(ops []store.Op, hashes []uint64) (mask uint64) {
	for i := range ops {
		hashes[i] = p.buckets.Hash(keyed.Name(ops[i].Bucket))
		mask |= p.buckets.Bit(hashes[i])
	}
	p.buckets.Lock(mask)
	return mask
}

// lockOne locks one bucket's shard and returns what is remembered of it, or nil.
func (p *Pod) lockOne(name store.Bucket) (b *bucket, mask uint64) {
	hash := p.buckets.Hash(keyed.Name(name))
	mask = p.buckets.Bit(hash)
	p.buckets.Lock(mask)
	return p.buckets.GetLocked(hash, keyed.Name(name)), mask
}

// entry returns the bucket's entry, made if there is room: a bucket without one
// takes the exact path.
func (p *Pod) entry(now int64, hash uint64, op *store.Op) *bucket {
	b := p.buckets.GetLocked(hash, keyed.Name(op.Bucket))
	if b == nil {
		b = p.buckets.InsertLocked(hash, keyed.Name(op.Bucket), func(b *bucket) bool { return p.forgettable(now, b) })
	}
	if b == nil || !b.bind(op) {
		return nil
	}
	return b
}

// ms is a millisecond in the pod's time.
const ms = int64(time.Millisecond)
