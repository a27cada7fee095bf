package pod

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/limit"
)

const second = int64(time.Second)

func tokenBucket(rate, periodMS, burst int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: rate, PeriodMS: periodMS, Burst: burst}
}

func TestShareOf(t *testing.T) {
	day := limit.NewCalendar(limit.Day, time.UTC)
	month := limit.NewCalendar(limit.Month, time.UTC)
	for _, c := range []struct {
		name                string
		l                   *limit.Limit
		milli, pods, cost   int64
		most, aDown, aSecUp int64 // micro-tokens; of a second
	}{
		{"twice an equal part", tokenBucket(100, 1000, 200), OpenShare, 50, 1, 8 * micro, 4 * micro, 2 * micro},
		{"one request at least", tokenBucket(4, 10_000, 8), OpenShare, 150, 10, 8 * micro, 5333, 2666},
		{"no more than all of it", tokenBucket(4, 10_000, 8), OpenShare, 150, 1, micro, 5333, 2666},
		{"one pod", tokenBucket(100, 1000, 200), OpenShare, 1, 1, 400 * micro, 200 * micro, 100 * micro},
		{"an allowance", tokenBucket(100, 1000, 200), 100, 4, 1, 5 * micro, 2_500_000, 2_500_000},
		{"a window is a rate", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 6000, WindowMS: 60_000}, OpenShare, 50, 1, 4 * micro, 4 * micro, 2 * micro},
		{"of a window one request at least", &limit.Limit{Algorithm: limit.SlidingLog, Capacity: 5, WindowMS: 60_000}, OpenShare, 50, 1, micro, 3333, 1666},
		{"a day", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 86_400, Calendar: day, Align: limit.AlignCalendar}, OpenShare, 1, 1, 2 * micro, 2 * micro, micro},
		{"a month", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 31 * 86_400, Calendar: month, Align: limit.AlignCalendar}, OpenShare, 2, 5, 5 * micro, micro, micro / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := shareOf(c.l, c.milli, c.pods, c.cost)
			down, up := n.full(0), n.full(0)
			down.level, up.level = 0, 0
			down.refill(second, n.down)
			up.refill(second, n.up)
			wantDown, wantUp := min(c.aDown, n.most), min(c.aSecUp, n.most)
			if n.most != c.most || down.level != wantDown || up.level != wantUp {
				t.Errorf("holds %d, gets %d and %d a second; want %d, %d, %d", n.most, down.level, up.level, c.most, wantDown, wantUp)
			}
		})
	}
}

// However often and slowly it is asked, a fallback holds what exact arithmetic says,
// to a millionth of a token, at all bounds of limits and pods.
func TestFallback_exact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := tokenBucket(bound(t, "rate", limit.MaxNumber), bound(t, "period", limit.MaxPeriodMS), bound(t, "burst", limit.MaxNumber))
		if rapid.Bool().Draw(t, "window") {
			l = &limit.Limit{Algorithm: limit.SlidingWindow, Capacity: bound(t, "limit", limit.MaxNumber), WindowMS: bound(t, "window length", limit.MaxWindowMS)}
		}
		pods, milli := bound(t, "pods", 10_000), rapid.SampledFrom([]int64{OpenShare, 1000, 1}).Draw(t, "milli")
		n := shareOf(l, milli, pods, bound(t, "max_cost", limit.MaxCost))
		if n.most <= 0 {
			t.Fatalf("holds %d", n.most)
		}
		rate, period := l.Rate, l.PeriodMS
		if l.Algorithm != limit.TokenBucket {
			rate, period = l.Capacity, l.WindowMS
		}
		f := n.full(0)
		f.level = 0
		exact, now := new(big.Rat), int64(0)
		for i := range rapid.IntRange(1, 50).Draw(t, "asks") {
			elapsed := bound(t, "elapsed", 400*limit.DayMS) * rapid.SampledFrom([]int64{1, 1000, ms}).Draw(t, "unit")
			now += elapsed
			f.failed(now, n, elapsed, false)
			// milli/1000 × rate/period ÷ pods tokens a ms are as many micro-tokens a ns.
			came := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(milli), big.NewInt(rate)), new(big.Int).Mul(big.NewInt(1000*period), big.NewInt(pods)))
			exact.Add(exact, came.Mul(came, new(big.Rat).SetInt64(elapsed)))
			if most := new(big.Rat).SetInt64(n.most); exact.Cmp(most) > 0 {
				exact = most
			}
			less := new(big.Rat).Sub(exact, new(big.Rat).SetInt64(f.level))
			if less.Sign() < 0 || less.Cmp(big.NewRat(2, 1)) > 0 {
				t.Fatalf("ask %d: holds %d, exactly %s", i, f.level, exact.FloatString(3))
			}
			if cost := min(f.level/micro, limit.MaxCost); cost > 0 && f.has(cost) {
				f.draw(cost)
				exact.Sub(exact, new(big.Rat).SetInt64(cost*micro))
			}
			if f.level < n.most {
				if wait := f.waitMS(f.level/micro + 1); wait < 1 || wait > 1000 {
					t.Fatalf("tells to wait %d ms", wait)
				}
			}
		}
	})
}

// bound draws a number up to most, often one at the bounds.
func bound(t *rapid.T, name string, most int64) int64 {
	return rapid.OneOf(rapid.Just(int64(1)), rapid.Just(most), rapid.Int64Range(1, most), rapid.Int64Range(1, min(most, 100))).Draw(t, name)
}

// fallen is a fleet whose pods lose the store and find it again, in front of an exact
// bucket. Time is in ms.
type fallen struct {
	l     *limit.Limit
	cost  int64 // the largest
	pods  []*fallenPod
	nowMS int64
	level int64 // of the store's bucket, in micro-tokens
	// above is the most admitted in a span above slope × its length, and running what
	// a span that ends now has.
	slope, running, above int64
	outage                int64 // tokens admitted since the outage began
}

type fallenPod struct {
	f         *fallback
	d         debt
	downSince int64 // -1 while it is up
}

func newFallen(l *limit.Limit, pods int, cost, slope int64) *fallen {
	x := &fallen{l: l, cost: cost, level: l.Burst * micro, slope: slope}
	for range pods {
		x.pods = append(x.pods, &fallenPod{f: x.share().full(0), downSince: -1})
	}
	return x
}

func (x *fallen) share() share { return shareOf(x.l, OpenShare, int64(len(x.pods)), x.cost) }

// after lets time pass.
func (x *fallen) after(ms int64) {
	x.nowMS += ms
	x.level = min(x.l.Burst*micro, x.level+ms*x.l.Rate*micro/x.l.PeriodMS)
	x.running = max(0, x.running-x.slope*ms*x.l.Rate*micro/x.l.PeriodMS)
}

// admit books an admission.
func (x *fallen) admit(cost int64) {
	x.running += cost * micro
	x.above = max(x.above, x.running)
	x.outage += cost
}

// take asks the store's bucket.
func (x *fallen) take(cost int64) bool {
	if x.level < cost*micro {
		return false
	}
	x.level -= cost * micro
	return true
}

// How the store answers an ask.
const (
	answers = iota
	timesOutRun
	timesOutNotRun
	refuses
)

// ask asks pod i, and reports whether it passed.
func (x *fallen) ask(i int, cost int64, how int) bool {
	p, now := x.pods[i], x.nowMS*ms
	if p.downSince < 0 && how == answers {
		x.tell(p)
		p.f.answered(now)
		ok := x.take(cost)
		if ok {
			x.admit(cost)
		}
		return ok
	}
	var down int64
	if p.downSince >= 0 {
		down, how = max(1, (x.nowMS-p.downSince)*ms), refuses
	}
	if how == timesOutRun {
		x.take(cost)
	}
	p.f.failed(now, x.share(), down, how == refuses && down == 0)
	if !p.f.has(cost) {
		return false
	}
	p.f.draw(cost)
	if how == refuses {
		p.d.add(x.l, cost)
	}
	x.admit(cost)
	return true
}

// tell charges the store what a pod owes.
func (x *fallen) tell(p *fallenPod) {
	x.level = max(0, x.level-p.d.untold*micro)
	p.d.untold = 0
}

func (x *fallen) down(i int) {
	if p := x.pods[i]; p.downSince < 0 {
		p.downSince = x.nowMS
	}
}

func (x *fallen) up(i int) { x.pods[i].downSince = -1 }

// bound is so many bursts, and what pods hold in single requests beyond that, in
// micro-tokens.
func (x *fallen) bound(bursts int64) int64 {
	most := bursts * x.l.Burst
	if 2*x.l.Burst/int64(len(x.pods)) < x.cost {
		most += int64(len(x.pods)) * x.cost
	}
	return most * micro
}

// anyLimit draws numbers whose refill in a ms is a whole number of micro-tokens.
func anyLimit(t *rapid.T) (*limit.Limit, int64) {
	l := tokenBucket(rapid.Int64Range(1, 500).Draw(t, "rate"), 1000, rapid.Int64Range(1, 500).Draw(t, "burst"))
	return l, rapid.Int64Range(1, min(10, l.Burst)).Draw(t, "max_cost")
}

// One pod, whatever happens to it: any span admits at most 3 bursts and twice the
// rate. Whole fleets too, where all are away together and come back together.
func TestFallback_anySpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, cost := anyLimit(t)
		pods := rapid.SampledFrom([]int{1, 1, 2, 7, 50}).Draw(t, "pods")
		x := newFallen(l, pods, cost, 2)
		down := false
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			x.after(rapid.SampledFrom([]int64{0, 1, 10, 100, 900, 5000}).Draw(t, "ms"))
			if rapid.IntRange(0, 3).Draw(t, "flip") == 0 {
				down = !down
				for i := range x.pods {
					if down {
						x.down(i)
					} else {
						x.up(i)
						x.tell(x.pods[i])
					}
				}
			}
			how := rapid.SampledFrom([]int{answers, answers, timesOutRun, timesOutNotRun, refuses}).Draw(t, "how")
			if pods > 1 && how == refuses {
				how = answers // a bucket that is refused is so by all: an outage
			}
			for range rapid.SampledFrom([]int{1, 3, 300}).Draw(t, "asks") {
				x.ask(rapid.IntRange(0, pods-1).Draw(t, "pod"), rapid.Int64Range(1, cost).Draw(t, "cost"), how)
			}
			if most := x.bound(3); x.above > most {
				t.Fatalf("%d of at most %d millionths beyond twice the rate, in some span", x.above, most)
			}
		}
	})
}

// Pods that lose and find the store each in its own time: three times the rate.
func TestFallback_anySpanOfAnyFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, cost := anyLimit(t)
		pods := rapid.SampledFrom([]int{2, 3, 7}).Draw(t, "pods")
		x := newFallen(l, pods, cost, 3)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			x.after(rapid.SampledFrom([]int64{0, 1, 10, 100, 900, 5000}).Draw(t, "ms"))
			i := rapid.IntRange(0, pods-1).Draw(t, "pod")
			switch rapid.IntRange(0, 3).Draw(t, "flip") {
			case 0:
				x.down(i)
			case 1:
				x.up(i)
			}
			how := rapid.IntRange(answers, refuses).Draw(t, "how")
			for range rapid.SampledFrom([]int{1, 3, 300}).Draw(t, "asks") {
				x.ask(i, rapid.Int64Range(1, cost).Draw(t, "cost"), how)
			}
			if most := x.bound(3); x.above > most {
				t.Fatalf("%d of at most %d millionths beyond three times the rate, in some span", x.above, most)
			}
		}
	})
}

// Inside one outage of d: 2 (burst + rate d), all pods together, wherever the
// customers come, and whatever was left when it began.
func TestFallback_oneOutage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, cost := anyLimit(t)
		pods := rapid.SampledFrom([]int{1, 2, 7, 50}).Draw(t, "pods")
		x := newFallen(l, pods, cost, 2)
		for range rapid.IntRange(0, 10).Draw(t, "asks before") {
			x.ask(rapid.IntRange(0, pods-1).Draw(t, "pod"), 1, rapid.IntRange(answers, refuses).Draw(t, "how"))
		}
		for i := range x.pods {
			x.down(i)
		}
		x.outage = 0
		start := x.nowMS
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			x.after(rapid.SampledFrom([]int64{0, 1, 10, 100, 5000}).Draw(t, "ms"))
			for range rapid.SampledFrom([]int{1, 10, 500}).Draw(t, "asks") {
				x.ask(rapid.IntRange(0, pods-1).Draw(t, "pod"), rapid.Int64Range(1, cost).Draw(t, "cost"), answers)
			}
		}
		most := x.bound(2) + 2*l.Rate*1000*(x.nowMS-start)
		if x.outage*micro > most {
			t.Fatalf("admitted %d of at most %d millionths in an outage of %d ms", x.outage*micro, most, x.nowMS-start)
		}
	})
}

// A hundred flaps of 0.9 s away and 0.1 s back, far more offered than fits.
func TestFallback_flaps(t *testing.T) {
	l := tokenBucket(100, 1000, 200)
	for _, c := range []struct {
		name string
		pods int
		// lagMS is how much later than the first the other pods come back.
		lagMS, rates int64
		above2       bool // more than twice the rate comes in
	}{
		{"one pod", 1, 0, 2, false},
		{"50 pods together", 50, 0, 2, false},
		{"50 pods, one is back 10 ms before the others", 50, 10, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newFallen(l, c.pods, 1, c.rates)
			overload := func(from, to, ms int64) {
				for range ms {
					for i := from; i < to; i++ {
						for x.ask(int(i), 1, answers) {
						}
					}
					x.after(1)
				}
			}
			all := int64(c.pods)
			for range 100 {
				for i := range x.pods {
					x.down(i)
				}
				overload(0, all, 900)
				x.up(0)
				if c.lagMS == 0 { // all charge before any asks
					for i := range x.pods {
						x.up(i)
						x.tell(x.pods[i])
					}
				}
				overload(0, all, c.lagMS)
				for i := range x.pods {
					x.up(i)
				}
				overload(0, all, 100-c.lagMS)
			}
			most := x.bound(3)
			perSecond := float64(x.outage) / float64(x.nowMS) * 1000
			t.Logf("%.0f a second of 100; at most %d above %d times the rate, may be %d", perSecond, x.above/micro, c.rates, most/micro)
			if x.above > most {
				t.Errorf("%d above %d times the rate, at most %d", x.above/micro, c.rates, most/micro)
			}
			if twice := 2 * l.Rate * x.nowMS / 1000; c.above2 != (x.outage > 3*l.Burst+twice) {
				t.Errorf("admitted %d in %d ms; more than 3 bursts and twice the rate: %t", x.outage, x.nowMS, !c.above2)
			}
		})
	}
}

// What comes back in an outage is for the outage: calls that time out after it, which
// the store may count, find no more than the equal part, nor does the next outage.
func TestFallback_savesNothingUp(t *testing.T) {
	x := newFallen(tokenBucket(100, 1000, 200), 1, 1, 2)
	for range 50 {
		x.down(0)
		x.after(2000)
		x.ask(0, 1, answers) // the pod sees that it is away
		x.up(0)
		for range 500 {
			x.ask(0, 1, timesOutNotRun)
		}
		for range 500 {
			x.ask(0, 1, answers)
		}
		if x.above > x.bound(3) {
			t.Fatalf("%d above twice the rate at %d ms, may be %d", x.above/micro, x.nowMS, x.bound(3)/micro)
		}
	}
}
