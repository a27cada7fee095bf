package pod

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Slack of a pre-limit of the whole limit: it must never refuse what the store
// would allow, whose clock is another and runs at another speed.
const (
	slackPercent = 1
	slackTime    = 10 * time.Millisecond
)

// milli is the parts of a token that a pre-limit's level counts in.
const milli = 1000

// pre is what this pod alone has admitted: the level of a token bucket in
// thousandths of a token, or the count of a window.
type pre struct {
	level int64 // milli tokens spent and not yet refilled; a window's count
	atNS  int64 // up to when; a window's end
}

// preNumbers are a pre-limit's capacity and refill.
type preNumbers struct {
	most    int64 // milli tokens; a window's count
	perMS   int64 // milli tokens a ms × 1024; 0 for a window
	windowN int64 // a window's length in ns; 0 for a bucket
	// full and rate are most and perMS without slack: what a wait is told by, which must
	// be enough for the store.
	full, rate int64
}

// leastRate is the slowest refill, in milli tokens a ms × 1024, of a bucket with a
// pre-limit: a token in ten seconds. Rounding one up would be a slack of more than one
// percent, and so slow a bucket costs the store nothing.
const leastRate = 102

// numbers scales l for this pod. ok is false where there is no pre-limit: windows
// that do not follow the clock, logs.
func (p PreLimit) numbers(l *limit.Limit, pods, maxCost int64) (n preNumbers, ok bool) {
	if p.Milli == 0 {
		return n, false
	}
	full, slack := l.Full(), int64(slackPercent)
	if p.FairShare {
		full, slack = max(maxCost, full*p.Milli/1000/pods), 0
	} else {
		full = full * p.Milli / 1000
	}
	switch {
	case l.Algorithm == limit.TokenBucket:
		rate := float64(l.Rate) * float64(p.Milli) / float64(l.PeriodMS) * 1024
		if p.FairShare {
			rate /= float64(pods)
		}
		if rate < leastRate {
			return n, false
		}
		n.full, n.rate = full*1000, int64(rate)
		rate *= 1 + float64(slack)/100
		n.perMS = int64(rate) + 1
		n.most = full*(1000+10*slack) + n.perMS*int64(slackTime/time.Millisecond)/1024 + 1
		return n, full < 1<<50/1000
	case l.Algorithm == limit.FixedWindow && l.Align == limit.AlignClock, l.Algorithm == limit.SlidingWindow:
		n.most, n.windowN = full+full*slack/100+slack, l.WindowMS*ms
		return n, true
	default:
		return n, false
	}
}

// roll brings the pre-limit to now. clockNS is the store's clock at now.
func (b *pre) roll(now, clockNS int64, n preNumbers) {
	if n.windowN > 0 {
		if now >= b.atNS {
			// The window's end, a little early: the store's may have come.
			b.level, b.atNS = 0, now+n.windowN-clockNS%n.windowN-int64(slackTime)
			if b.atNS <= now {
				b.atNS += n.windowN
			}
		}
		return
	}
	elapsed := (now - b.atNS) / ms
	if elapsed <= 0 {
		return
	}
	b.atNS += elapsed * ms
	if elapsed > b.level*1024/n.perMS {
		b.level = 0
		return
	}
	b.level -= elapsed * n.perMS / 1024
}

// room caps what an op wants to what its pre-limit leaves beyond the cost: a lease
// must not pass what single checks may not.
func (p *Pod) room(now int64, b *bucket, op *store.Op, l PreLimit, want int64) int64 {
	n, ok := l.numbers(op.Limit, p.pods.Load(), op.MaxCost)
	offset := p.offsetNS.Load()
	if !ok || !b.sure(op) || n.windowN > 0 && offset == 0 { // or the store's clock is not known yet
		return want
	}
	b.pre.roll(now, now+offset, n)
	return max(0, min(want, (n.most-b.pre.level)/n.unit()-op.Cost))
}

// charge counts what the store granted: it is spent, or will be, or comes back. What
// it granted by other numbers does not count against these.
func (p *Pod) charge(now int64, b *bucket, op *store.Op, l PreLimit, tokens int64) {
	if b.other {
		b.pre = pre{}
		return
	}
	if n, ok := l.numbers(op.Limit, p.pods.Load(), op.MaxCost); ok && tokens > 0 {
		b.pre.roll(now, now+p.offsetNS.Load(), n)
		b.pre.level += tokens * n.unit()
	}
}

// credit takes back what was charged and not spent.
func (b *pre) credit(l *limit.Limit, tokens int64) {
	unit := int64(1)
	if l != nil && l.Algorithm == limit.TokenBucket {
		unit = milli
	}
	b.level = max(0, b.level-tokens*unit)
}

// unit is how many parts of a pre-limit's level a token is.
func (n preNumbers) unit() int64 {
	if n.windowN > 0 {
		return 1
	}
	return milli
}

// refuses reports whether this pod alone has admitted all there is, and for how
// long in ms.
func (b *pre) refuses(cost int64, now int64, n preNumbers) (retryMS int64, refused bool) {
	over := b.level + cost*n.unit() - n.most
	switch {
	case over <= 0:
		return 0, false
	case n.windowN > 0:
		return max(1, (b.atNS-now+ms-1)/ms), true
	default:
		over = b.level + cost*milli - n.full
		return max(1, (over*1024+n.rate-1)/n.rate), true
	}
}
