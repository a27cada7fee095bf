// Package breaker is what a pod thinks of one shard of the store: whether to ask it
// (Breaker), and whether to believe what it counts after a failover or a restart
// (Hold). Both are pure: times and chance are arguments, and who shares one guards it.
package breaker

import (
	"math/bits"
	"time"
)

// The breaker's looks back.
const (
	// lookBack is how many of the last calls are looked at, of which half failing
	// opens the breaker: at 5 % of timeouts, three in a row take 8,400 calls.
	lookBack = 20
	// probeFrom is the part of ProbeEvery, in percent, after which a probe may go
	// at the earliest: pods that lost a shard together do not come back together.
	probeFrom = 80
)

// Breaker decides whether a shard is asked. Times are in ns of a monotonic clock.
//
//	closed ──(failures)──► open ──(a while)──► one probe ──► closed, or open again
type Breaker struct {
	// Failures opens it: so many in a row or, where Within is above 0, so many
	// within that time. At least 1.
	Failures int
	Within   time.Duration
	// ProbeEvery is the longest that an open one waits for its next probe.
	ProbeEvery time.Duration

	open    bool
	sinceNS int64 // when it opened
	probeNS int64 // when the next probe may go
	probing bool

	row    int     // failures since the last success
	rowNS  int64   // when the last of them was noticed
	failed []int64 // when the last ones were, for within
	last   uint32  // the last outcomes, the latest lowest: 1 is a failure
	known  int     // how many of them there are
}

// Permit says whether a call may be sent.
type Permit uint8

const (
	// Refuse says that it is not sent.
	Refuse Permit = iota
	// Send says that it is sent as any other.
	Send
	// Probe says that it is sent, and alone finds out whether the shard is back.
	Probe
)

// Ask says what to do with a call now. Whoever gets Probe must tell the outcome.
func (b *Breaker) Ask(now int64) Permit {
	switch {
	case !b.open:
		return Send
	case b.probing || now < b.probeNS:
		return Refuse
	default:
		b.probing = true
		return Probe
	}
}

// Success takes in an answer. It reports whether that closed the breaker.
func (b *Breaker) Success(p Permit) (closed bool) {
	if b.open {
		if p != Probe {
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

// Failure takes in a call without an answer, which was asked for at askedNS. chance,
// from 0 to 1, spreads the probes of many pods. It reports whether the breaker opened
// by it.
//
// Of calls that were under way together one counts in a row: they say once what they
// all met, such as a pause of a few milliseconds of either machine.
func (b *Breaker) Failure(now, askedNS int64, p Permit, chance float64) (opened bool) {
	if b.open {
		if p == Probe {
			b.probing = false
			b.probeNS = now + b.pause(chance)
		}
		return false
	}
	b.note(1)
	if b.row == 0 || askedNS >= b.rowNS {
		b.row++
		b.rowNS = now
		b.remember(now)
	}
	if !b.tooMany(now) {
		return false
	}
	b.open, b.sinceNS, b.probeNS = true, now, now+b.pause(chance)
	return true
}

// tooMany reports whether the failures so far, the one of now included, open it.
func (b *Breaker) tooMany(now int64) bool {
	if b.known == lookBack && bits.OnesCount32(b.last) >= lookBack/2 {
		return true
	}
	if b.Within == 0 {
		return b.row >= b.Failures
	}
	return len(b.failed) == b.Failures && now-b.failed[0] <= int64(b.Within)
}

// remember notes when a failure came, as far back as Within needs.
func (b *Breaker) remember(now int64) {
	if b.Within == 0 {
		return
	}
	if len(b.failed) == b.Failures {
		b.failed = append(b.failed[:0], b.failed[1:]...)
	}
	b.failed = append(b.failed, now)
}

func (b *Breaker) note(outcome uint32) {
	b.last = (b.last<<1 | outcome) & (1<<lookBack - 1)
	b.known = min(b.known+1, lookBack)
}

func (b *Breaker) pause(chance float64) int64 {
	from := float64(b.ProbeEvery) * probeFrom / 100
	return int64(from + chance*(float64(b.ProbeEvery)-from))
}

// Down is for how long calls have not been sent; 0 while they are.
func (b *Breaker) Down(now int64) time.Duration {
	if !b.open {
		return 0
	}
	return max(1, time.Duration(now-b.sinceNS))
}
