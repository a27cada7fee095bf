package pod

import (
	"math/bits"
	"time"

	"github.com/tallygate/tallygate/limit"
)

// fallback is what one pod admits by itself of one bucket while the store does not
// answer: a token bucket of the pod's share of the limit. It is stepped: each method
// is told the time.
//
// With P pods and a limit of rate r and burst b, let the share of an open rule be 2.
// A full fallback holds max(2b/P, max_cost). Two refills feed it: r/P at all times,
// and as much again while the store is surely away. Why that is bounded, first for
// pods that are away together, max_cost aside:
//
//   - Inside one outage of d the store admits nothing, and the pods at most what
//     theirs held and got: P × (2b/P + 2r/P × d) = 2(b + rd).
//   - In any span of d, with outages in it, count three parts. What the fallbacks
//     held and what r/P brought them is at most 2b + rd. What the store had and got
//     is at most b + rd, whether it was admitted or charged. The third is the extra
//     refill in outages. It may be used only in its own outage: what is left of it
//     at the end is dropped (the level goes back to where it stood when the outage
//     began, if it is above), so that flaps do not save it up. So of an outage of w
//     at most as much of it is used as the pods admitted meanwhile, which they tell
//     the store. The store pays for it: either it could charge all that was told, or
//     it was charged down to 0, and lost at least the rw that had come in meanwhile.
//     The third part is thus taken out of the second, and 3b + 2rd remain.
//
// The last step needs the store to be charged before it admits again, of that bucket,
// what came in during the outage. One pod sees to that. Of many, one may be back
// first and spend what the others come to charge too late; then the extra refill
// comes on top: 3b + 3rd, the sum of the three parts as they stand, which holds in
// any case.
//
// All arithmetic is whole: the level is in millionths of a token and a fraction of
// 2^-64 of these, so that however often and slowly a bucket is asked nothing is lost
// and nothing gained. Bounds of limits and pods keep every product within 128 bits.
type fallback struct {
	level  int64  // micro-tokens
	part   uint64 // of one more, in 2^-64
	atNS   int64  // up to when it was refilled
	mark   int64  // the level when the outage began; none outside of one
	n      share
	debt   debt
	refuse bool // the last word was that the store refuses this bucket
}

// share is how large a fallback is, and what comes back of it in a time.
type share struct {
	most int64 // micro-tokens that a full one holds
	// up and down, over den, are micro-tokens a ns: while the store answers, and
	// while it is away.
	up, down, den uint64
}

const (
	// OpenShare is the part of its limit, in thousandths, that all pods together may
	// admit of a rule that fails open while the store does not answer: twice, since
	// customers come to a few pods and not to all alike.
	OpenShare = 2000
	// onceShare is the part that comes back while the store answers.
	onceShare = 1000
	// micro is the parts of a token that a level counts in.
	micro = 1_000_000
	// mostSharing bounds the pods a share is divided by, so that products stay exact.
	mostSharing = 100_000
	// noMark is the mark outside of an outage.
	noMark = -1
)

// shareOf scales l to one of so many pods, milli thousandths of it. A window's share
// is a rate, not its whole limit at once: that would be admitted in every outage.
func shareOf(l *limit.Limit, milli, pods, maxCost int64) share {
	pods = max(1, min(pods, mostSharing))
	rate, periodMS := l.Rate, l.PeriodMS
	most := milli * l.Burst * (micro / 1000) / pods
	if l.Algorithm != limit.TokenBucket {
		rate, periodMS = l.Capacity, l.LengthMS()
		most = product(milli*rate, min(periodMS, 1000)*(micro/1000), periodMS*pods) // of a second
	}
	least := min(max(maxCost, 1), l.Full()) // what is above the limit never passes
	return share{
		most: max(most, least*micro),
		up:   uint64(min(milli, onceShare) * rate),
		down: uint64(milli * rate),
		den:  uint64(1000 * periodMS * pods),
	}
}

// product is a × b / c, which must fit.
func product(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// full is a new fallback: whoever was not asked for has all of its share.
func (n share) full(now int64) *fallback {
	return &fallback{level: n.most, atNS: now, mark: noMark, n: n}
}

// resize makes other numbers hold: fewer tokens fit, none come with it.
func (f *fallback) resize(n share) {
	f.n = n
	f.level = min(f.level, n.most)
}

// failed brings the fallback to now, when the store did not answer for its bucket:
// since the breaker has been open for downNS, since it refuses the bucket, or else
// though it was asked.
func (f *fallback) failed(now int64, n share, downNS int64, refuses bool) {
	elapsed := max(0, now-f.atNS)
	away := downNS > 0 || refuses
	if !away {
		f.end() // the call was sent: the store may count it, and the outage is over
	}
	f.resize(n)
	down := min(max(0, downNS), elapsed)
	if refuses && f.refuse {
		down = elapsed // it has been refusing all the time
	}
	f.refill(elapsed-down, f.n.up)
	if away && f.mark == noMark {
		f.mark = f.level
	}
	f.refill(down, f.n.down)
	f.refuse, f.atNS = refuses, max(now, f.atNS)
}

// answered brings the fallback to now, when the store answered for its bucket.
func (f *fallback) answered(now int64) {
	f.end()
	f.refill(max(0, now-f.atNS), f.n.up)
	f.refuse, f.atNS = false, max(now, f.atNS)
}

// end ends an outage: what came back in it and nobody used is dropped.
func (f *fallback) end() {
	if f.mark != noMark && f.level > f.mark {
		f.level, f.part = f.mark, 0
	}
	f.mark = noMark
}

// refill adds what rate brings in so many ns.
func (f *fallback) refill(ns int64, rate uint64) {
	hi, lo := bits.Mul64(uint64(ns), rate)
	room := uint64(f.n.most - f.level)
	if hi >= f.n.den {
		f.level, f.part = f.n.most, 0
		return
	}
	whole, rest := bits.Div64(hi, lo, f.n.den)
	part, _ := bits.Div64(rest, 0, f.n.den)
	part, carry := bits.Add64(f.part, part, 0)
	if whole >= room || whole+carry >= room {
		f.level, f.part = f.n.most, 0
		return
	}
	f.level, f.part = f.level+int64(whole+carry), part
}

// has reports whether cost is there.
func (f *fallback) has(cost int64) bool { return f.level >= cost*micro }

// draw takes cost, which has said is there.
func (f *fallback) draw(cost int64) { f.level -= cost * micro }

// longestWait bounds the wait that a denial tells: the store is tried again about
// once a second, and may allow what this pod alone may not.
const longestWait = time.Second

// waitMS is when cost would be there if all stays as it is, in ms.
func (f *fallback) waitMS(cost int64) int64 {
	rate := f.n.up
	if f.mark != noMark {
		rate = f.n.down
	}
	hi, lo := bits.Mul64(uint64(cost*micro-f.level), f.n.den)
	if hi >= rate {
		return longestWait.Milliseconds()
	}
	ns, _ := bits.Div64(hi, lo, rate)
	if ns >= uint64(longestWait) {
		return longestWait.Milliseconds()
	}
	return max(1, ceil(int64(ns)+1, ms))
}

// whole reports whether the fallback is full by now, counted by what surely came
// back, and has nothing to tell: forgetting it gives nobody a token.
func (f *fallback) whole(now int64) bool {
	if f.debt.any() {
		return false
	}
	g := *f
	g.answered(now)
	return g.level == g.n.most
}
