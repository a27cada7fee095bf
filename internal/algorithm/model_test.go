package algorithm_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/limit"
)

// The models below are slow and obvious: rationals, a count for every window
// ever seen, a time for every token. They know only Take under a clock that
// does not step back, and one set of numbers.

// model says how many tokens could pass at now; spend spends them.
type model interface {
	left(now int64) *big.Rat
	spend(now, cost int64)
}

type bucketModel struct {
	l     *limit.Limit
	level *big.Rat // tokens
	ts    int64
}

func (m *bucketModel) left(now int64) *big.Rat {
	back := new(big.Rat).Mul(big.NewRat(m.l.Rate, m.l.PeriodMS), new(big.Rat).SetInt64(now-m.ts))
	level := new(big.Rat).Add(m.level, back)
	if full := new(big.Rat).SetInt64(m.l.Burst); level.Cmp(full) > 0 {
		return full
	}
	return level
}

func (m *bucketModel) spend(now, cost int64) {
	m.level = new(big.Rat).Sub(m.left(now), new(big.Rat).SetInt64(cost))
	m.ts = now
}

// windowModel holds the count of every window by its number.
type windowModel struct {
	l      *limit.Limit
	counts map[int64]int64
}

func (m *windowModel) left(now int64) *big.Rat {
	k := now / m.l.WindowMS
	left := new(big.Rat).SetInt64(m.l.Capacity - m.counts[k])
	if m.l.Algorithm == limit.SlidingWindow {
		weight := big.NewRat(m.l.WindowMS-now%m.l.WindowMS, m.l.WindowMS)
		left.Sub(left, weight.Mul(weight, new(big.Rat).SetInt64(m.counts[k-1])))
	}
	return left
}

func (m *windowModel) spend(now, cost int64) { m.counts[now/m.l.WindowMS] += cost }

// logModel holds the time of every token.
type logModel struct {
	l     *limit.Limit
	times []int64
}

func (m *logModel) left(now int64) *big.Rat {
	left := m.l.Capacity
	for _, t := range m.times {
		if now-t < m.l.WindowMS {
			left--
		}
	}
	return new(big.Rat).SetInt64(left)
}

func (m *logModel) spend(now, cost int64) {
	for range cost {
		m.times = append(m.times, now)
	}
}

func newModel(l *limit.Limit) model {
	switch l.Algorithm {
	case limit.TokenBucket:
		return &bucketModel{l: l, level: new(big.Rat).SetInt64(l.Burst)}
	case limit.SlidingLog:
		return &logModel{l: l}
	default:
		return &windowModel{l: l, counts: map[int64]int64{}}
	}
}

// floor returns ⌊r⌋, at least 0.
func floor(r *big.Rat) int64 {
	if r.Sign() < 0 {
		return 0
	}
	return new(big.Int).Quo(r.Num(), r.Denom()).Int64()
}

// drawLimit draws numbers of one algorithm: mostly small ones, which meet at
// edges, sometimes as large as they may be.
func drawLimit(t *rapid.T, a limit.Algorithm) *limit.Limit {
	l := &limit.Limit{Algorithm: a}
	large := rapid.IntRange(0, 4).Draw(t, "size") == 0
	switch {
	case a == limit.TokenBucket && large:
		l.PeriodMS = 1000 * rapid.Int64Range(1, limit.MaxPeriodMS/1000).Draw(t, "period")
		l.Burst = rapid.Int64Range(1, min(limit.MaxNumber, limit.MaxExact/l.PeriodMS)).Draw(t, "burst")
		slowest := l.Burst*l.PeriodMS/limit.MaxWindowMS + 1
		l.Rate = rapid.Int64Range(slowest, limit.MaxNumber).Draw(t, "rate")
	case a == limit.TokenBucket:
		l.PeriodMS = rapid.SampledFrom([]int64{1, 7, 1000, 60_000}).Draw(t, "period")
		l.Burst = rapid.Int64Range(1, 30).Draw(t, "burst")
		l.Rate = rapid.Int64Range(1, 30).Draw(t, "rate")
	case large && a != limit.SlidingLog:
		l.WindowMS = rapid.Int64Range(1, limit.MaxSlidingWindowMS).Draw(t, "window")
		l.Capacity = rapid.Int64Range(1, min(limit.MaxNumber, limit.MaxExact/l.WindowMS)).Draw(t, "capacity")
	default:
		l.WindowMS = rapid.SampledFrom([]int64{1, 10, 97, 1000}).Draw(t, "window")
		l.Capacity = rapid.Int64Range(1, 20).Draw(t, "capacity")
	}
	return l
}

// TestTake_agreesWithTheModel: the same verdict and the same rest, exactly, for
// any history; every told retry true to the millisecond.
func TestTake_agreesWithTheModel(t *testing.T) {
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.SlidingLog, limit.FixedWindow} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t, a)
				r, m := rig{}, newModel(l)
				now := rapid.Int64Range(0, 1<<41).Draw(t, "start")
				if b, ok := m.(*bucketModel); ok {
					b.ts = now
				}
				scale := max(1, l.WindowMS, l.PeriodMS)
				for range rapid.IntRange(1, 40).Draw(t, "ops") {
					now += rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 3), rapid.Int64Range(0, scale), rapid.Int64Range(0, 3*scale)).Draw(t, "wait")
					cost := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, min(limit.MaxCost, l.Full()+1))).Draw(t, "cost")
					stepBoth(t, &r, m, l, now, cost)
				}
			})
		})
	}
}

func stepBoth(t *rapid.T, r *rig, m model, l *limit.Limit, now, cost int64) {
	left := m.left(now)
	want := cost <= l.Full() && left.Cmp(new(big.Rat).SetInt64(cost)) >= 0
	got := r.take(l, now, cost)
	if got.OK != want {
		t.Fatalf("%s: cost %d at %d: ok %v, want %v with %s left", l, cost, now, got.OK, want, left.FloatString(6))
	}
	r.checkRetry(t, l, now, cost, got.Answer)
	if want {
		m.spend(now, cost)
	}
	if rest := floor(m.left(now)); got.remaining != rest {
		t.Fatalf("%s: cost %d at %d: remaining %d, want %d", l, cost, now, got.remaining, rest)
	}
	checkReset(t, m, l, now, got)
}

// checkReset holds the told reset against the model: full at that time, and for
// a bucket and a log not a millisecond before.
func checkReset(t *rapid.T, m model, l *limit.Limit, now int64, got answer) {
	full := new(big.Rat).SetInt64(l.Full())
	switch l.Algorithm {
	case limit.TokenBucket, limit.SlidingLog:
		if m.left(now+got.reset).Cmp(full) != 0 {
			t.Fatalf("%s: not full at %d after reset %d", l, now, got.reset)
		}
		if got.reset > 0 && m.left(now+got.reset-1).Cmp(full) == 0 {
			t.Fatalf("%s: full at %d a millisecond before reset %d", l, now, got.reset)
		}
	default:
		if want := l.WindowMS - now%l.WindowMS; got.reset != want {
			t.Fatalf("%s: reset %d at %d, want %d", l, got.reset, now, want)
		}
	}
}

// TestFull_forgettingGivesNothing: wherever Full says that a state may be
// forgotten, it holds no less than a fresh one, now and at any later time.
func TestFull_forgettingGivesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := limit.Algorithm(rapid.IntRange(1, 4).Draw(t, "algorithm"))
		l := drawLimit(t, a)
		r, now := rig{}, int64(1<<40)
		for range rapid.IntRange(1, 10).Draw(t, "ops") {
			now += rapid.Int64Range(0, max(2, l.WindowMS)).Draw(t, "wait")
			r.take(l, now, rapid.Int64Range(0, min(limit.MaxCost, l.Full())).Draw(t, "cost"))
		}
		if r.stored == nil {
			return
		}
		now += rapid.Int64Range(-5, 3*max(2, l.WindowMS)).Draw(t, "idle")
		if r.stored.Full(now) && r.left(now) != l.Full() {
			t.Fatalf("%s: full at %d with %d left", l, now, r.left(now))
		}
		s, _ := r.now(l, now)
		r.stored = &s
		if ttl := s.TTLMS(now); r.left(now+ttl) != l.Full() {
			t.Fatalf("%s: not full at %d after its TTL of %d", l, now, ttl)
		}
	})
}
