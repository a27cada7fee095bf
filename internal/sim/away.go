package sim

import (
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// failed ends a check that the store did not answer, as Limiter does: what was set
// aside goes back, a rule that fails closed ends it, and else what the pod has decides.
func (f *fleet) failed(at int32, err error) {
	c := &f.checks[at]
	m, s := &f.pods[c.pod], &f.kinds[c.kind]
	if m.crashed {
		f.endCheck(at, unanswered)
		return
	}
	now, ops := f.podNow(m), c.ops[:len(s.ops)]
	m.pod.Refund(now, ops, s.terms, c.lacking)
	decides := m.pod
	if f.spoil != nil {
		decides, err = f.spoil(c.pod, err)
	}
	grants, closed := decides.Away(now, f.grants[:0], ops, s.terms, s.instead, err)
	f.grants = grants[:0]
	shard := &f.tally.shards[f.shardOf(c.key)]
	if closed != pod.NoneClosed {
		shard.closed++
		f.endCheck(at, failedClosed)
		return
	}
	shard.open++
	o := f.book(c, grants)
	if o == allowedByFallback || o == deniedByFallback {
		shard.fallback++
	}
	f.endCheck(at, o)
}

// book books what a pod admitted by itself: it is paid for by leases or estimates, or
// comes from fallbacks. Either all ops pass or none is spent.
func (f *fleet) book(c *check, grants []store.Grant) outcome {
	for i := range grants {
		if !grants[i].OK {
			return deniedByFallback
		}
	}
	o := either(grants, store.FromAsync, allowedByEstimate, allowedByLease)
	for i := range grants {
		number, cost := f.bucket(c.key, f.config.Traffic[c.kind].Rules[i]), c.ops[i].Cost
		if grants[i].Source != store.FromFallback {
			f.admit(number, f.nowMS(), cost)
			continue
		}
		o = allowedByFallback
		if f.bounds == nil {
			// Calls that all arrive in time, and a check that waited for several of them.
			f.bounds = newBounds(f.config, f.limits)
		}
		b := &f.tally.buckets[number]
		b.admitted += cost
		b.fallback += cost
		f.bounds.admitAlone(f, number, cost)
	}
	return o
}
