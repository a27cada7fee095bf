package redisstore

import (
	"math/bits"
	"time"
)

// The breaker's looks back.
const (
	// lookBack is how many of the last calls are looked at, of which half failing
	// opens the breaker: at 5 % of timeouts, three in a row take 8,400 calls.
	lookBack = 20
	// probeFrom is the part of probeEvery, in percent, after which a probe may go
	// at the earliest: pods that lost a shard together do not come back together.
	probeFrom = 80
)

// breaker decides whether a shard is asked. It is pure: times and chance are
// arguments. Time is in ns of a monotonic clock.
//
//	closed ──(failures)──► open ──(a while)──► one probe ──► closed, or open again
type breaker struct {
	// failures opens it: so many in a row or, where within is above 0, so many
	// within that time.
	failures   int
	within     time.Duration
	probeEvery time.Duration

	open    bool
	sinceNS int64 // when it opened
	probeNS int64 // when the next probe may go
	probing bool

	row    int     // failures since the last success
	failed []int64 // when the last ones were, for within
	last   uint32  // the last outcomes, the latest lowest: 1 is a failure
	known  int     // how many of them there are
}

// permit says whether a call may be sent.
type permit uint8

const (
	refused permit = iota
	sends
	probes // the one call that finds out whether the shard is back
)

// ask says what to do with a call now. Whoever gets probes must tell the outcome.
func (b *breaker) ask(now int64) permit {
	switch {
	case !b.open:
		return sends
	case b.probing || now < b.probeNS:
		return refused
	default:
		b.probing = true
		return probes
	}
}

// success takes in an answer. It reports whether that closed the breaker.
func (b *breaker) success(p permit) (closed bool) {
	if b.open {
		if p != probes {
			return false // it was sent before: the shard may be gone since
		}
		b.open, b.probing = false, false
		b.row, b.last, b.known, b.failed = 0, 0, 0, b.failed[:0]
		return true
	}
	b.row = 0
	b.note(0)
	return false
}

// failure takes in a call without an answer. chance, from 0 to 1, spreads the
// probes of many pods. It reports whether the breaker opened by it.
func (b *breaker) failure(now int64, p permit, chance float64) (opened bool) {
	if b.open {
		if p == probes {
			b.probing = false
			b.probeNS = now + b.pause(chance)
		}
		return false
	}
	b.row++
	b.note(1)
	if !b.tooMany(now) {
		return false
	}
	b.open, b.sinceNS, b.probeNS = true, now, now+b.pause(chance)
	return true
}

// tooMany reports whether the failures so far, the one of now included, open it.
func (b *breaker) tooMany(now int64) bool {
	if b.known == lookBack && bits.OnesCount32(b.last) >= lookBack/2 {
		return true
	}
	if b.within == 0 {
		return b.row >= b.failures
	}
	if len(b.failed) == b.failures {
		b.failed = append(b.failed[:0], b.failed[1:]...)
	}
	b.failed = append(b.failed, now)
	return len(b.failed) == b.failures && now-b.failed[0] <= int64(b.within)
}

func (b *breaker) note(outcome uint32) {
	b.last = (b.last<<1 | outcome) & (1<<lookBack - 1)
	b.known = min(b.known+1, lookBack)
}

func (b *breaker) pause(chance float64) int64 {
	from := float64(b.probeEvery) * probeFrom / 100
	return int64(from + chance*(float64(b.probeEvery)-from))
}

// down is for how long calls have not been sent; 0 while they are.
func (b *breaker) down(now int64) time.Duration {
	if !b.open {
		return 0
	}
	return max(1, time.Duration(now-b.sinceNS))
}
