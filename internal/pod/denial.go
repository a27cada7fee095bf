package pod

import (
	"time"

	"github.com/tallygate/tallygate/limit"
)

// maxDenial is how long a denial is believed at most: a raised override or a
// reset must not wait for the end of a day's quota.
const maxDenial = 10 * time.Second

// denial is a "no" of the store: until then, a cost of at least so much does not
// fit. It says nothing about smaller costs.
type denial struct {
	untilNS int64
	retryNS int64 // when the cost will fit, which may be long after the belief ends
	cost    int32
	never   bool // no waiting helps, until the numbers change
}

// covers reports whether the store would say no to cost.
func (d *denial) covers(now, cost int64) bool {
	return now < d.untilNS && cost >= int64(d.cost) && d.cost > 0
}

// note remembers that the store denied cost and told to wait retryMS from askedNS,
// the time before the call was sent. A denial of a smaller cost says more; a later
// one of a larger cost replaces it only when that has ended.
func (d *denial) note(now, askedNS, cost, retryMS int64, never bool) {
	until := askedNS + retryMS*int64(time.Millisecond)
	retry := until
	if longest := now + int64(maxDenial); never || until > longest {
		until = longest
	}
	if now < d.untilNS && int64(d.cost) <= cost && d.untilNS >= until {
		return
	}
	*d = denial{cost: int32(cost), untilNS: until, retryNS: retry, never: never} // costs are at most 10^9
}

// dearer is how much longer a larger cost waits than the one that was denied. Of a
// token bucket that is known; a window's denial says nothing of larger costs.
func dearer(l *limit.Limit, cost, denied int64) int64 {
	if l.Algorithm != limit.TokenBucket || cost <= denied {
		return 0
	}
	return ceil((cost-denied)*l.PeriodMS, l.Rate)
}

// retryMS is what is left to wait, rounded up.
func (d *denial) retryMS(now int64) int64 {
	if d.never {
		return 0
	}
	ms := int64(time.Millisecond)
	return max(1, (d.retryNS-now+ms-1)/ms)
}
