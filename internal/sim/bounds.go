package sim

import (
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// bounds checks what is admitted while the store does not answer, by exact replay as
// the envelope does. For why these hold see fallback in internal/pod.
//
//   - Fallbacks alone, in any span of d, so also inside one outage: 2 (b + rd), of a
//     closed rule its allowance instead of 2, and nothing without one.
//   - All that is admitted, in any span: 3b + 3rd, and 3b + 2rd by a pod that is alone,
//     as long as no charge of its got lost.
//   - Rules that fail closed: nothing from a shard that lost its keys, while pods that
//     know of it must hold.
//
// The numbers grow with the pods that ever lived over the fewest that were alive, and
// where one share is less than max_cost. Each time a shard forgets spends a burst more
// may pass; less where all pods notice it.
type bounds struct {
	alone, all, together *Envelope
	// wide are the numbers of alone and sums those of all, by rule.
	wide, sums []limit.Limit
	// closed is what was admitted where nothing may be, by rule: without the store,
	// and from one that lost its keys.
	closed []int64
	// excused is what losses of the store explain, by bucket: of what is paid for, and
	// of all.
	excused, lost []int64
	outages       []outage // by bucket
	// worst is the most in an outage, in percent of its bound, by rule.
	worst []float64
	// pays says that a pod that is alone has charged the store for all it was to.
	pays bool
}

// outage is what a bucket's fallbacks admitted in the last outage of its shard.
type outage struct {
	serial   int32
	admitted int64
}

func newBounds(c *Config, limits []*limit.Limit) *bounds {
	b := &bounds{
		wide: make([]limit.Limit, len(c.Rules)), sums: make([]limit.Limit, len(c.Rules)), closed: make([]int64, len(c.Rules)),
		excused: make([]int64, len(limits)), lost: make([]int64, len(limits)),
		outages: make([]outage, len(limits)), worst: make([]float64, len(c.Rules)),
	}
	lived, least := c.fleetSizes()
	b.pays = lived == 1
	alone, all, together := make([]*limit.Limit, len(limits)), make([]*limit.Limit, len(limits)), make([]*limit.Limit, len(limits))
	for r := range c.Rules {
		rule := &c.Rules[r]
		b.wide[r] = fallbackLimit(rule, lived, least)
		paid := paidLimit(&rule.Limit)
		b.sums[r] = added(&b.wide[r], paid, rule.share() > 0)
		// Who is alone pays for the refill of outages out of what the store had.
		less := b.sums[r]
		if extra := rule.share() - 1000; extra > 0 {
			less.Rate -= b.wide[r].Rate * extra / rule.share()
		}
		for i := r; i < len(limits); i += len(c.Rules) {
			alone[i], all[i], together[i] = &b.wide[r], &b.sums[r], &less
		}
	}
	lag := lagMS(c)
	b.alone = NewEnvelope(alone, epochMS, lag)
	b.all = NewEnvelope(all, epochMS, lag)
	b.together = NewEnvelope(together, epochMS, lag)
	return b
}

// fleetSizes returns how many pods ever live, at most, and the fewest at a time.
func (c *Config) fleetSizes() (lived, least int64) {
	now := c.Pods
	lived, least = int64(c.Pods+len(c.Faults.Crashes)), int64(c.Pods)
	for _, s := range c.Faults.Scales {
		lived += int64(max(0, s.Pods-1)) // whatever their order
		least = min(least, int64(s.Pods))
	}
	if len(c.Faults.Scales) == 0 {
		lived = int64(now)
	}
	return lived, max(1, least-int64(len(c.Faults.Crashes)))
}

// fallbackLimit is a bucket as large as all pods' fallbacks of one together, with their
// refill while the store is away.
func fallbackLimit(r *Rule, lived, least int64) limit.Limit {
	l := paidLimit(&r.Limit)
	holds := l.Burst
	if r.Limit.Algorithm != limit.TokenBucket { // a second of its rate
		holds = ceilDiv(r.Limit.Capacity*min(r.Limit.WindowMS, 1000), r.Limit.WindowMS)
	}
	num, den := r.share()*lived, 1000*least
	g := gcd(num, den)
	num, den = num/g, den/g
	x := limit.Limit{Algorithm: limit.TokenBucket, PeriodMS: l.PeriodMS, Revision: 1}
	x.Burst = max(ceilDiv(holds*num, den), lived*min(r.MaxCost, r.Limit.Full()))
	if den > maxPeriodParts {
		x.Rate = max(1, ceilDiv(l.Rate*num, den))
	} else {
		x.Rate, x.PeriodMS = max(1, l.Rate*num), l.PeriodMS*den
	}
	return x
}

// maxPeriodParts bounds how finely a rate is told: beyond that it is rounded up.
const maxPeriodParts = 1000

// paidLimit is what a rule may admit of its own in any span, as a bucket: of a window
// twice its limit and its rate.
func paidLimit(l *limit.Limit) *limit.Limit {
	if l.Algorithm == limit.TokenBucket {
		return l
	}
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: l.Capacity, PeriodMS: l.WindowMS, Burst: 2 * l.Capacity, Revision: 1}
}

// added is the bucket that holds both, and gets both's refill; wide is part of it where
// the rule admits anything alone. The period of wide is a multiple of paid's.
func added(wide, paid *limit.Limit, alone bool) limit.Limit {
	parts := wide.PeriodMS / paid.PeriodMS
	x := limit.Limit{Algorithm: limit.TokenBucket, Rate: paid.Rate * parts, PeriodMS: wide.PeriodMS, Burst: paid.Burst, Revision: 1}
	if alone {
		x.Rate += wide.Rate
		x.Burst += wide.Burst
	}
	return x
}

// admit books what is paid for.
func (b *bounds) admit(number int32, atMS, tokens int64) {
	if b == nil {
		return
	}
	b.all.Admit(number, atMS, tokens)
	b.together.Admit(number, atMS, tokens)
}

// admitAlone books what a fallback admitted, now.
func (b *bounds) admitAlone(f *fleet, number int32, tokens int64) {
	ms := f.nowMS()
	b.admit(number, ms, tokens)
	b.alone.Admit(number, ms, tokens)
	r := int(number) % len(b.wide)
	if f.config.Rules[r].share() == 0 {
		b.closed[r] += tokens
	}
	s := &f.shards[f.shardOf(number/int32(len(b.wide)))]
	if s.outages == 0 {
		return
	}
	o, l := &b.outages[number], &b.wide[r]
	if o.serial != s.outages {
		*o = outage{serial: s.outages}
	}
	o.admitted += tokens
	b.worst[r] = max(b.worst[r], ofBound(o.admitted, l, time.Duration(f.now-s.began)))
}

// ofBound is what was admitted in a span, in percent of what a bucket like l may.
func ofBound(admitted int64, l *limit.Limit, span time.Duration) float64 {
	took := float64(span)/float64(time.Millisecond) + 1
	return 100 * float64(admitted) / (float64(l.Burst) + float64(l.Rate)*took/float64(l.PeriodMS))
}

// believed looks at what a check took from the store, at ranMS: of a rule that fails
// closed nothing may be from a shard whose keys its pod must know to be gone.
func (b *bounds) believed(f *fleet, c *check, op *store.Op, ranMS int64) {
	if b == nil || !op.Closed {
		return
	}
	v := &f.pods[c.pod].views[f.shardOf(c.key)]
	if v.holding && ranMS >= v.lossMS && ranMS < v.lossMS+min(fillMS(op.Limit), emptyFor.Milliseconds()) {
		b.closed[int(f.number(&op.Bucket))%len(b.closed)] += op.Cost
	}
}

// fillMS is the time in which an empty bucket of that limit is full again.
func fillMS(l *limit.Limit) int64 {
	if l.Algorithm != limit.TokenBucket {
		return l.WindowMS
	}
	return ceilDiv(l.Burst*l.PeriodMS, l.Rate)
}

// forgot excuses what a bucket may admit again since its shard forgot spends. Where
// all pods find it empty, it starts with one request, beside what is out on leases: it
// is full when it would have been.
func (b *bounds) forgot(f *fleet, number int32, noticed bool) {
	rule := &f.config.Rules[int(number)%len(f.config.Rules)]
	full := rule.Limit.Full()
	b.lost[number] += full
	if noticed && rule.Limit.Algorithm == limit.TokenBucket && fillMS(&rule.Limit) <= emptyFor.Milliseconds() {
		full = min(full, rule.MaxCost+f.store.out(f.nowMS(), number))
	}
	b.excused[number] += full
}

// heard looks at a call that a pod hears of: a charge may have got lost.
func (b *bounds) heard(c *call) {
	if b == nil || !b.pays || c.err == nil || !c.err.Sent || c.asked == nil || !c.asked.Tells() {
		return
	}
	for i := range c.ops {
		b.pays = b.pays && c.ops[i].How != store.Add
	}
}

// finish replays what is left.
func (b *bounds) finish(nowMS int64) {
	if b == nil {
		return
	}
	b.alone.Finish(nowMS)
	b.all.Finish(nowMS)
	b.together.Finish(nowMS)
}

// above are tokens of one bucket above its bounds.
type above struct{ paid, alone, all, together int64 }

// above returns what a bucket admitted too much.
func (f *fleet) above(number int32) (a above) {
	a.paid = f.envelope.Above(number)
	b := f.bounds
	if b == nil {
		return a
	}
	a.paid = max(0, a.paid-b.excused[number])
	rule := &f.config.Rules[int(number)%len(f.config.Rules)]
	if rule.share() > 0 {
		a.alone = b.alone.Above(number)
	}
	if rule.Terms.Counting == pod.Async {
		return a // what it estimates is not held to any span
	}
	a.all = max(0, b.all.Above(number)-b.lost[number])
	if b.together.Above(number) > b.lost[number] && rule.Limit.Algorithm == limit.TokenBucket {
		a.together = b.together.Above(number) - b.lost[number]
	}
	if b.pays {
		a.all = max(a.all, a.together)
	}
	return a
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(1, a)
}
