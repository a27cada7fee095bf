package pod

import (
	"context"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// GiveBack asks the store, or this pod's own count, for ops that give back, and
// appends a grant an op to dst. Each is a call of its own, that no other check joins.
func (r *Runner) GiveBack(ctx context.Context, dst []store.Grant, ops []store.Op, terms []Terms) ([]store.Grant, error) {
	mine := locals(terms)
	here, others := pick(ops, mine), pick(ops, ^mine)
	var own, asked []store.Grant
	var err error
	if len(here) > 0 {
		if own, err = r.own.AppendTake(ctx, nil, here); err != nil {
			return dst, err
		}
	}
	if len(others) > 0 {
		asked, err = r.store.Take(ctx, others)
		if err = Short(others, asked, err); err != nil {
			return dst, err
		}
		r.pod.GaveBack(r.now(), others, asked)
	}
	return merge(dst, ops, mine, own, asked), nil
}

// GaveBack takes in what the store said of ops that give back: the pod's own bucket in
// front of the store has as much more, and a remembered denial may not be true any
// more. Other pods find that out when theirs end.
func (p *Pod) GaveBack(now int64, ops []store.Op, grants []store.Grant) {
	var hashes [store.MaxOps]uint64
	mask := p.lock(ops, hashes[:])
	defer p.buckets.Unlock(mask)
	for i := range ops {
		op := &ops[i]
		b := p.buckets.GetLocked(hashes[i], keyed.Name(op.Bucket))
		if b == nil || b.limit != op.Limit {
			continue
		}
		b.pre.credit(op.Limit, op.Cost)
		b.denial, b.pauseNS = denial{}, 0
		if grants[i].OK {
			b.see(now, op, &grants[i], b.leases.tokens(now))
		}
	}
}
