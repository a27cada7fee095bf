package sim

import (
	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// Envelope replays admissions through exact buckets: whatever a fleet admits in
// any span of t must fit burst + rate × (t + 1 ms), which is what a bucket of
// that size allows, and windows must hold their own limit. It uses the
// algorithms of the store without any of the leases.
//
// Admissions may be booked out of order, as long as they are no older than the
// lag behind the latest of them.
type Envelope struct {
	buckets []algorithm.State
	// scale turns tokens into the exact bucket's, by bucket.
	scale []int64
	// slots hold what was admitted in each ms and is not replayed yet, by ms
	// modulo their number; replayed is the first ms that is not.
	slots    [][]admission
	replayed int64
	// worst is the most tokens above the envelope in any span, by bucket.
	worst []int64
}

type admission struct {
	bucket int32
	tokens int64
}

// NewEnvelope returns an envelope of as many buckets as limits has, full at
// startMS. Admissions may be booked up to lagMS late.
func NewEnvelope(limits []*limit.Limit, startMS, lagMS int64) *Envelope {
	e := &Envelope{
		buckets:  make([]algorithm.State, len(limits)),
		scale:    make([]int64, len(limits)),
		worst:    make([]int64, len(limits)),
		slots:    make([][]admission, lagMS+1),
		replayed: startMS,
	}
	exact := map[*limit.Limit]*limit.Limit{}
	for i, l := range limits {
		x := exact[l]
		if x == nil {
			x = enveloping(l)
			exact[l] = x
		}
		e.scale[i] = 1
		if l.Algorithm == limit.TokenBucket {
			e.scale[i] = l.PeriodMS
		}
		e.buckets[i] = algorithm.Fresh(x, startMS)
	}
	return e
}

// enveloping returns the numbers of the exact bucket: a millisecond of refill
// larger. It counts in 1/P tokens, so that this is a whole number.
func enveloping(l *limit.Limit) *limit.Limit {
	if l.Algorithm != limit.TokenBucket {
		x := *l
		return &x
	}
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: l.Rate, PeriodMS: 1, Burst: l.Burst*l.PeriodMS + l.Rate}
}

// Admit books tokens of a bucket at a time, and replays what is older than the
// lag by then.
func (e *Envelope) Admit(bucket int32, atMS, tokens int64) {
	n := int64(len(e.slots))
	if atMS >= e.replayed+n {
		e.replay(atMS - n + 1)
	}
	// What is older than the lag counts as admitted as soon as can be.
	slot := &e.slots[max(atMS, e.replayed)%n]
	if n := len(*slot); n > 0 && (*slot)[n-1].bucket == bucket {
		(*slot)[n-1].tokens += tokens
		return
	}
	*slot = append(*slot, admission{bucket, tokens})
}

// Finish replays everything up to now.
func (e *Envelope) Finish(nowMS int64) { e.replay(nowMS + 1) }

// replay replays up to but not including an ms.
func (e *Envelope) replay(untilMS int64) {
	for ; e.replayed < untilMS; e.replayed++ {
		slot := &e.slots[e.replayed%int64(len(e.slots))]
		for _, a := range *slot {
			e.spend(a)
		}
		*slot = (*slot)[:0]
	}
}

// spend spends what was admitted, be it there or not: a bucket in debt owes what
// was too much in the span that ends now, and goes on from there.
func (e *Envelope) spend(a admission) {
	s, scale := &e.buckets[a.bucket], e.scale[a.bucket]
	now, tokens := e.replayed, a.tokens*scale
	s.Advance(s.Limit, now)
	over := tokens - s.Remaining(now) // of a bucket in debt, that is negative
	s.Spend(now, tokens)
	if over > 0 {
		e.worst[a.bucket] = max(e.worst[a.bucket], (over+scale-1)/scale)
	}
}

// Above returns the most tokens that a bucket admitted above the envelope, over
// all spans replayed so far; of a window, beyond what was left of it in one
// millisecond.
func (e *Envelope) Above(bucket int32) int64 { return e.worst[bucket] }
