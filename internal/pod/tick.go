package pod

import (
	"maps"
	"slices"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// TickEvery is how often Tick wants to be called: often enough that a lease that
// is about to end is still worth giving back.
const TickEvery = 20 * time.Millisecond

// maxCalls bounds the calls of one Tick; the rest come with the next.
const maxCalls = 1000

// ending is a bucket to look at when its time has come: a lease of it is about to
// end, or its counts are to be told.
type ending struct {
	bucket store.Bucket
	limit  *limit.Limit
	sync   bool
}

// at remembers to look at a bucket at a time: for the end of a lease rather too
// early, for a sync rather too late.
func (p *Pod) at(atNS int64, e ending) {
	if e.sync {
		atNS += int64(TickEvery) - 1
	}
	slot := max(p.ticked, atNS/int64(TickEvery))
	p.endings[slot] = append(p.endings[slot], e)
}

// Tick returns the calls that are due: leases about to end and tokens whose checks
// have left go back, counts are told.
func (p *Pod) Tick(now int64) []*Call {
	p.mu.Lock()
	due := p.surplus
	p.surplus = nil
	slot := now / int64(TickEvery)
	var ends []ending
	for ; p.ticked <= slot && len(ends) < maxCalls; p.ticked++ {
		ends = append(ends, p.endings[p.ticked]...)
		delete(p.endings, p.ticked)
	}
	p.mu.Unlock()
	return append(p.due(now, due, ends, false), p.tellQuiet(now)...)
}

// Release returns the calls that give back all leases and tell all counts, at the
// end.
func (p *Pod) Release(now int64) []*Call {
	p.mu.Lock()
	due := p.surplus
	p.surplus = nil
	var ends []ending
	for _, slot := range slices.Sorted(maps.Keys(p.endings)) {
		ends = append(ends, p.endings[slot]...)
	}
	clear(p.endings)
	p.mu.Unlock()
	return p.due(now, due, ends, true)
}

func (p *Pod) due(now int64, ops []store.Op, ends []ending, all bool) []*Call {
	for i := range ends {
		var op store.Op
		var ok bool
		if ends[i].sync {
			op, ok = p.tells(&ends[i])
		} else {
			op, ok = p.returns(now, &ends[i], all)
		}
		if ok {
			ops = append(ops, op)
		}
	}
	return calls(now, ops)
}

// returns is the op that tells the store what became of a bucket's leases, if
// something is to go back.
func (p *Pod) returns(now int64, e *ending, all bool) (store.Op, bool) {
	b, mask := p.lockOne(e.bucket)
	defer p.buckets.Unlock(mask)
	if b == nil {
		return store.Op{}, false
	}
	b.leases.expire(now)
	if all {
		b.leases.release()
	}
	if b.leases.back == [2]int32{} {
		p.settle(now, e.bucket.Rule, b, all)
		return store.Op{}, false
	}
	return store.Op{Bucket: e.bucket, Limit: b.limit, NextWindow: b.nextWindow, Reports: p.report(now, e.bucket.Rule, b)}, true
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
