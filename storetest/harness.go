package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Harness is a store under test.
type Harness struct {
	// Store is what is tested.
	Store store.Store
	// Advance moves the store's clock, which must otherwise stand still; d may be
	// negative. Nil means that the clock is real: tests of time are skipped.
	Advance func(d time.Duration)
	// Leases says that the store grants leases.
	Leases bool
}

// Run runs the suite. Open returns a store for one test; it may be the same one
// for all, and need not be empty.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, group := range []struct {
		name  string
		cases []testCase
	}{
		{"take", takeCases()},
		{"trace", traceCases()},
		{"how", howCases()},
		{"numbers", numberCases()},
		{"next window", nextWindowCases()},
		{"clock", clockCases()},
		{"key", keyCases()},
		{"refuse", refuseCases()},
		{"concurrent", concurrentCases()},
		{"lease", leaseCases()},
		{"reserve", reserveCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					h := open(t)
					if c.clock && h.Advance == nil {
						t.Skip("the store's clock is real")
					}
					if c.leases && !h.Leases {
						t.Skip("the store grants no leases")
					}
					c.run(newSubject(t, h))
				})
			}
		})
	}
}

// testCase is one promise of the contract.
type testCase struct {
	name          string
	clock, leases bool // what it needs of the harness
	run           func(s *subject)
}

// subject is a store in one test, with helpers that fail the test.
type subject struct {
	testing.TB
	Harness
	key string // the key of this test: no other test uses it
}

func newSubject(t testing.TB, h Harness) *subject {
	t.Helper()
	return &subject{TB: t, Harness: h, key: fmt.Sprintf("key-%016x", rand.Uint64())}
}

// op is an op on the bucket of this test's key under a rule.
func (s *subject) op(rule string, l *limit.Limit, cost int64) store.Op {
	return store.Op{
		Bucket: store.Bucket{Domain: "storetest", Rule: rule, Key: s.key},
		Limit:  l, Cost: cost, Pods: 1, MaxCost: 1,
	}
}

// do makes one call that must be answered.
func (s *subject) do(ops ...store.Op) []store.Grant {
	s.Helper()
	grants, err := s.Store.Take(context.Background(), ops)
	if err != nil {
		s.Fatalf("Take: %v", err)
	}
	if len(grants) != len(ops) {
		s.Fatalf("%d grants for %d ops", len(grants), len(ops))
	}
	for i, g := range grants {
		if g.Remaining < 0 || g.RetryMS < 0 || g.ResetMS < 0 || g.NowMS == 0 || g.Limit == nil || g.OK && g.RetryMS != 0 {
			s.Fatalf("op %d: impossible grant %+v", i, g)
		}
	}
	return grants
}

// one makes a call of one op.
func (s *subject) one(op store.Op) store.Grant {
	s.Helper()
	return s.do(op)[0]
}

// how is one call that does something else than take.
func (s *subject) how(how store.How, op store.Op) store.Grant {
	s.Helper()
	op.How = how
	return s.one(op)
}

// left looks at what is left of a bucket.
func (s *subject) left(op store.Op) int64 {
	s.Helper()
	op.Cost = 0
	return s.how(store.Peek, op).Remaining
}

// checks makes n calls of one op and returns how many passed.
func (s *subject) checks(op store.Op, n int) (allowed int) {
	s.Helper()
	for range n {
		if s.one(op).OK {
			allowed++
		}
	}
	return allowed
}

// wantLeft fails unless so much is left.
func (s *subject) wantLeft(op store.Op, want int64) {
	s.Helper()
	if got := s.left(op); got != want {
		s.Errorf("%s: %d left, want %d", op.Limit, got, want)
	}
}

// want fails unless got is want.
func want[T comparable](s *subject, what string, got, want T) {
	s.Helper()
	if got != want {
		s.Errorf("%s = %v, want %v", what, got, want)
	}
}

// now returns the store's clock.
func (s *subject) now() int64 {
	s.Helper()
	return s.how(store.Peek, s.op("clock", slowBucket(1), 0)).NowMS
}

// wait moves the clock by so many milliseconds.
func (s *subject) wait(ms int64) { s.Advance(time.Duration(ms) * time.Millisecond) }

// align moves the clock on to a multiple of so many milliseconds.
func (s *subject) align(ms int64) {
	s.Helper()
	s.wait(ms - s.now()%ms)
}

// refused fails unless a call is refused before anything happened.
func (s *subject) refused(what string, ops ...store.Op) {
	s.Helper()
	_, err := s.Store.Take(context.Background(), ops)
	var refusal *store.StoreError
	if !errors.As(err, &refusal) || refusal.Kind != store.Refused {
		s.Errorf("%s: error %v, want a StoreError that says refused", what, err)
	}
}

// hundredDays is a window that no test sees the end of by chance.
const hundredDays = 100 * limit.DayMS

// slowBucket holds burst tokens and gives one back an hour.
func slowBucket(burst int64) *limit.Limit { return perSecond(1, 3600, burst) }

// perSecond is a token bucket of rate tokens every seconds.
func perSecond(rate, seconds, burst int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: rate, PeriodMS: seconds * 1000, Burst: burst}
}

// window is a window or log of capacity tokens.
func window(a limit.Algorithm, capacity, windowMS int64) *limit.Limit {
	return &limit.Limit{Algorithm: a, Capacity: capacity, WindowMS: windowMS}
}

// four returns a limit of so many tokens for each algorithm, none of which comes
// back within a test.
func four(tokens int64) []*limit.Limit {
	return []*limit.Limit{
		slowBucket(tokens),
		window(limit.SlidingWindow, tokens, hundredDays),
		window(limit.SlidingLog, tokens, hundredDays),
		window(limit.FixedWindow, tokens, hundredDays),
	}
}

// at returns a copy of l of that revision.
func at(revision int64, l *limit.Limit) *limit.Limit {
	c := *l
	c.Revision = revision
	return &c
}
