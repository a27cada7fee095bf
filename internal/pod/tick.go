package pod

import (
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// TickEvery is how often Tick wants to be called: often enough that a lease that
// is about to end is still worth giving back.
const TickEvery = 20 * time.Millisecond

// ending is a bucket with a lease that goes back at a time.
type ending struct {
	bucket store.Bucket
	op     store.Op
}

// watch remembers to look at a bucket when its lease is about to end.
func (p *Pod) watch(op *store.Op, atNS int64) {
	slot := atNS / int64(TickEvery)
	p.endings[slot] = append(p.endings[slot], ending{bucket: op.Bucket, op: store.Op{Bucket: op.Bucket, Limit: op.Limit}})
}

// Tick returns the calls that give back what nobody spent: leases about to end,
// and tokens whose checks have left.
func (p *Pod) Tick(now int64) []*Call {
	p.mu.Lock()
	due := p.surplus
	p.surplus = nil
	slot := now / int64(TickEvery)
	var ends []ending
	for ; p.ticked <= slot; p.ticked++ {
		if list, ok := p.endings[p.ticked]; ok {
			ends = append(ends, list...)
			delete(p.endings, p.ticked)
		}
	}
	p.mu.Unlock()
	for i := range ends {
		if op, ok := p.returns(now, &ends[i], false); ok {
			due = append(due, op)
		}
	}
	return calls(now, due)
}

// Release returns the calls that give back all leases, at the end.
func (p *Pod) Release(now int64) []*Call {
	p.mu.Lock()
	due := p.surplus
	p.surplus = nil
	var ends []ending
	for slot, list := range p.endings {
		ends = append(ends, list...)
		delete(p.endings, slot)
	}
	p.mu.Unlock()
	for i := range ends {
		if op, ok := p.returns(now, &ends[i], true); ok {
			due = append(due, op)
		}
	}
	return calls(now, due)
}

// returns is the op that tells the store what became of a bucket's leases, if
// something is to go back.
func (p *Pod) returns(now int64, e *ending, all bool) (store.Op, bool) {
	hash := p.buckets.Hash(keyed.Name(e.bucket))
	mask := p.buckets.Bit(hash)
	p.buckets.Lock(mask)
	defer p.buckets.Unlock(mask)
	b := p.buckets.GetLocked(hash, keyed.Name(e.bucket))
	if b == nil {
		return store.Op{}, false
	}
	b.leases.expire(now)
	if all {
		b.leases.release()
	}
	if b.leases[0].back+b.leases[1].back == 0 {
		return store.Op{}, false
	}
	op := e.op
	op.Limit = b.limit
	op.Reports = b.leases.report(nil)
	return op, true
}

// calls puts ops of the same key into one call each, since they share a slot.
func calls(now int64, ops []store.Op) []*Call {
	var list []*Call
	at := map[[2]string]*Call{}
	for _, op := range ops {
		key := [2]string{op.Bucket.Domain, op.Bucket.Key}
		c := at[key]
		if c == nil || len(c.Ops) == store.MaxOps || names(c.Ops, op.Bucket) {
			c = &Call{askedNS: now}
			at[key] = c
			list = append(list, c)
		}
		c.Ops = append(c.Ops, op)
	}
	return list
}

func names(ops []store.Op, b store.Bucket) bool {
	for i := range ops {
		if ops[i].Bucket == b {
			return true
		}
	}
	return false
}
