package pod

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// bucket is what a pod knows of one bucket. All of it is bound to the numbers it
// was learnt under: other numbers forget it, and what is left of leases goes back.
//
// A pod remembers many, and then a hit costs the cache lines it reads. What a lease
// hit reads comes first: it ends with the line after that of the name. A remembered
// denial reads one line more, and what few rules have is elsewhere.
type bucket struct {
	limit  *limit.Limit
	view   view
	demand demand
	// size is the last lease, of which a fifth left makes the pod ask for more.
	size int32
	// known says that the store has said something, and toppingUp that the pod
	// already asks for the next lease.
	known, toppingUp bool
	// other says that the store counts by other numbers than limit, see byOthers.
	other   bool
	denials int8 // in a row, each of which makes the pause longer
	leases  held // the first half of it

	denial denial
	// pauseNS is until when the pod does not ask for more of a bucket it found
	// empty: others ask too, and each asking for a token or two would cost the
	// store more than all the tokens are worth. After a denial smaller costs than
	// that one still ask.
	pauseNS int64
	earlier earlier
	flights int32 // under way for a set with this bucket in it
	pre     pre
	tally   *tally // of rules that count first and tell later; nil for others
	// by are the other numbers by which the store counts, nil if they are of no use here.
	by *limit.Limit
	// nextWindow is Op.NextWindow of what the pod says by itself.
	nextWindow bool
	_          [16]byte
}

// topUpAt is the part of a lease below which the pod asks for the next one, and
// smallLease what is too small to bother.
const (
	topUpAt    = 5 // one fifth
	smallLease = 5
)

// bind makes the bucket count by the numbers of op. It reports whether it does: a
// check that began before the numbers changed finds them newer than its own.
func (b *bucket) bind(op *store.Op) bool {
	l := op.Limit
	if b.limit == l {
		return true
	}
	if b.limit != nil {
		if l.Revision < b.limit.Revision {
			return false
		}
		if l.Revision > b.limit.Revision || !b.limit.Same(l) {
			b.leases.release()
			b.denial, b.view, b.known, b.pauseNS, b.size = denial{}, view{}, false, 0, 0
			b.pre, b.by, b.other = pre{}, nil, false
			if b.tally != nil {
				b.tally.budget = 0
			}
		}
	}
	b.limit, b.nextWindow = l, op.NextWindow
	return true
}

// droppable reports whether forgetting the bucket loses nothing.
func (b *bucket) droppable(now int64) bool {
	return b.flights == 0 && !b.toppingUp && now >= b.denial.untilNS && b.leases.idle() &&
		int32(now/int64(demandSpan)) > b.demand.slot+1+int32(len(b.earlier)) && now > b.pauseNS+denialsFor &&
		(b.tally == nil || b.tally.unpaid() == 0 && !b.tally.scheduled && (b.tally.fallback == nil || b.tally.fallback.whole(now)))
}

// pauses reports whether the pod does not ask for cost now.
func (b *bucket) pauses(now, cost int64) bool {
	return now < b.pauseNS && cost >= int64(b.denial.cost)
}

// low reports whether a background call should fetch the next lease.
func (b *bucket) low(now int64) bool {
	return b.size >= smallLease && b.leases.tokens(now)*topUpAt < int64(b.size) && !b.toppingUp && now >= b.pauseNS
}

// learn takes in what the store said of a take that was asked at askedNS.
func (b *bucket) learn(now, askedNS int64, op *store.Op, g *store.Grant, spent bool, pods int64) {
	if g.Skipped {
		return
	}
	if spent && g.Lease > 0 {
		b.leases.grant(g.Generation, g.Lease, askedNS+g.LeaseMS*ms)
		b.size = int32(g.Lease)
	}
	if op.Limit != b.limit {
		b.leases.release() // other numbers came into force while the call was under way
		return
	}
	b.see(now, op, g, b.leases.tokens(now))
	if b.tally != nil && b.tally.everyNS > 0 {
		b.renew(now, g.Remaining, pods)
	}
	switch {
	case !g.OK:
		b.denial.note(now, askedNS, op.Cost, g.RetryMS, g.Never)
		if b.by != nil {
			b.denial.untilNS = min(b.denial.untilNS, askedNS+g.ResetMS*ms) // then others may decide
		}
		b.rest(now, 0, pods)
	case op.Cost == 0 && op.Want == 0: // a look says nothing of how long to wait
	case spent && g.Remaining == 0:
		b.rest(now, op.Cost+g.Queue+g.Lease, pods)
	}
}

// restFor is how long a pod leaves an empty bucket alone after a denial, and how
// often that doubles while denial follows denial: what refills meanwhile waits in
// the bucket.
const (
	restFor     = 10 * time.Millisecond
	restDoubles = 2
	// denialsFor is how long after the pause the last denial counts as one in a row,
	// in ns: after it, forgetting the bucket forgets nothing.
	denialsFor = int64(time.Second)
)

// rest leaves a bucket that was found empty alone for a while: after a call that
// brought the last of it until this pod's part of the refill is a token. Not at
// all if the call brought more than that part: then it is this pod the traffic
// comes to. No longer than a quarter of what fills the bucket, or refill would be
// lost.
func (b *bucket) rest(now, brought, pods int64) {
	l := b.limit
	if l.Algorithm != limit.TokenBucket {
		return
	}
	if brought > 0 || now > b.pauseNS+denialsFor {
		b.denials = 0
	}
	pause := min(restFor.Nanoseconds()<<b.denials, l.Burst*l.PeriodMS/l.Rate*ms/4)
	if brought == 0 {
		b.denials = min(b.denials+1, restDoubles)
	} else {
		pause = min(pause, pods*l.PeriodMS*ms/l.Rate)
		if brought > l.Rate*pause/(pods*l.PeriodMS*ms) {
			return
		}
		b.denial = denial{} // of a larger cost: now there is nothing for a smaller one
	}
	b.pauseNS = now + pause
}

// pauseMS is how long the pod leaves the bucket alone from now on, rounded up.
func (b *bucket) pauseMS(now int64) int64 { return max(0, ceil(b.pauseNS-now, ms)) }

// view is what the store last said is left, less what this pod spent since. Before
// the store said anything it is counted from the full limit.
type view struct {
	remaining int64
	atNS      int64 // when it said so; of others than token buckets, their reset
}

// see takes in what the store says is left, beside what the pod holds, and by which
// numbers.
func (b *bucket) see(now int64, op *store.Op, g *store.Grant, held int64) {
	b.byOthers(op, g.Limit)
	b.known, b.view = true, view{remaining: g.Remaining + held, atNS: now}
	if b.limit.Algorithm != limit.TokenBucket {
		b.view.atNS += g.ResetMS * ms // when a window ends, or a log is empty
	}
}

// outlook is what a local answer says is left, the view plus what came back, and
// the time to full by that, or to the window's end as the store told it.
func (b *bucket) outlook(now int64) (left, resetMS int64) {
	l, v := b.numbers(now), &b.view
	left = v.remaining
	if !b.known {
		left += l.Full()
	}
	if l.Algorithm != limit.TokenBucket {
		return max(0, min(left, l.Capacity)), max(0, (v.atNS-now+ms-1)/ms)
	}
	left = max(0, min(left+b.refill((now-v.atNS)/ms), l.Burst))
	return left, ceil((l.Burst-left)*l.PeriodMS, l.Rate)
}

// refill is what came back in so many ms, at most little more than a full bucket.
func (b *bucket) refill(elapsed int64) int64 {
	l := b.limit
	// Whether that fills the bucket is asked without a division: most checks come
	// before, and a division is a tenth of a hit.
	if elapsed > 1<<22 || (elapsed-1)*l.Rate > l.Burst*l.PeriodMS {
		elapsed = min(elapsed, l.Burst*l.PeriodMS/l.Rate+1)
	}
	return elapsed * l.Rate / l.PeriodMS
}
