package algorithm_test

import (
	"testing"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// perSecond is a token bucket of rate tokens every seconds.
func perSecond(rate, seconds, burst int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: rate, PeriodMS: seconds * 1000, Burst: burst}
}

func sliding(capacity, windowMS int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.SlidingWindow, Capacity: capacity, WindowMS: windowMS}
}

func fixed(capacity, windowMS int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.FixedWindow, Capacity: capacity, WindowMS: windowMS}
}

func slidingLog(capacity, windowMS int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.SlidingLog, Capacity: capacity, WindowMS: windowMS}
}

// at returns a copy of l of that revision.
func at(revision int64, l *limit.Limit) *limit.Limit {
	c := *l
	c.Revision = revision
	return &c
}

// rig is a store of one bucket: it keeps what must be kept and nothing else.
type rig struct {
	stored *algorithm.State
}

// now returns the state as of now under l, and whether it must be stored.
func (r *rig) now(l *limit.Limit, now int64) (s algorithm.State, dirty bool) {
	if r.stored == nil {
		return algorithm.Fresh(l, now), false
	}
	s = *r.stored
	return s, s.Advance(l, now)
}

// answer is what a caller is told.
type answer struct {
	algorithm.Answer
	remaining, reset, id int64
}

// take is a Take of one op.
func (r *rig) take(l *limit.Limit, now, cost int64) answer {
	s, dirty := r.now(l, now)
	a := answer{Answer: s.Ask(now, cost)}
	if a.OK && cost > 0 {
		a.id = s.Spend(now, cost)
		dirty = true
	}
	if dirty {
		r.stored = &s
	}
	a.remaining, a.reset = s.Remaining(now), s.ResetMS(now)
	return a
}

// passes reports whether cost would pass at now, changing nothing.
func (r *rig) passes(l *limit.Limit, now, cost int64) bool {
	s, _ := r.now(l, now)
	return s.Ask(now, cost).OK
}

// left returns what is left at now under the stored numbers.
func (r *rig) left(now int64) int64 {
	s, _ := r.now(r.stored.Limit, now)
	return s.Remaining(now)
}

// checkRetry fails unless a denial's retry is true to the millisecond.
func (r *rig) checkRetry(t interface {
	Helper()
	Fatalf(string, ...any)
}, l *limit.Limit, now, cost int64, a algorithm.Answer,
) {
	t.Helper()
	switch {
	case a.OK && a.RetryMS != 0:
		t.Fatalf("%s: cost %d passed at %d with retry %d", l, cost, now, a.RetryMS)
	case a.Never && (a.OK || a.RetryMS != 0):
		t.Fatalf("%s: cost %d is never there, and yet %+v", l, cost, a)
	case a.OK || a.Never:
	case a.RetryMS < 1:
		t.Fatalf("%s: cost %d denied at %d with retry %d", l, cost, now, a.RetryMS)
	case !r.passes(l, now+a.RetryMS, cost):
		t.Fatalf("%s: cost %d denied at %d, and again after retry %d", l, cost, now, a.RetryMS)
	case r.passes(l, now+a.RetryMS-1, cost):
		t.Fatalf("%s: cost %d denied at %d with retry %d, passes 1 ms earlier", l, cost, now, a.RetryMS)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func rigState(l *limit.Limit) algorithm.State { return algorithm.Fresh(l, 0) }
