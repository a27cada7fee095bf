package pod_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// breaking is a store that can be away.
type breaking struct {
	*distant
	mu   sync.Mutex
	err  error
	seen []store.Op
}

func (b *breaking) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	b.mu.Lock()
	err := b.err
	b.seen = append(b.seen, ops...)
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return b.distant.Take(ctx, ops)
}

func (b *breaking) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.seen = err, nil
}

// decide asks as a limiter does: the store, and without it the pod.
func decide(r *pod.Runner, ops []store.Op, terms []pod.Terms, rules ...pod.Instead) (grants []store.Grant, closed int) {
	grants, err := r.AppendTake(context.Background(), nil, ops, terms)
	if err == nil {
		return grants, pod.NoneClosed
	}
	for len(rules) < len(ops) {
		rules = append(rules, open)
	}
	return r.AppendAway(nil, ops, terms, rules, err)
}

// Exact rules, whose checks make calls of their own, tell the store too, and end
// outages.
func TestRunner_awayExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{distant: newDistant(time.Millisecond)}
		r := pod.NewRunner(s, 0, time.Second)
		defer func() { _ = r.Close() }()
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 10}
		ops, terms := []store.Op{op("r", "k", l, 1)}, []pod.Terms{{Counting: pod.Exact}}
		s.set(errRefused)
		for range 6 {
			if grants, _ := decide(r, ops, terms); !grants[0].OK || grants[0].Source != store.FromFallback {
				t.Fatalf("%+v, want passed by the fallback", grants)
			}
		}
		s.set(nil)
		grants, _ := decide(r, ops, terms)
		if g := grants[0]; !g.OK || g.Source != store.FromStore || g.Remaining != 3 {
			t.Errorf("%+v, want 3 left of 10 after 6 and 1", g)
		}
		if len(s.seen) != 3 || s.seen[0].Cost != 0 || s.seen[1].How != store.Add || s.seen[1].Cost != 6 {
			t.Errorf("asked %+v, want a look, a charge of 6 and the check", s.seen)
		}
		grants, _ = decide(r, ops, terms)
		if grants[0].Remaining != 2 || len(s.seen) != 4 {
			t.Errorf("%+v after %d ops, want one call for the next", grants[0], len(s.seen))
		}
	})
}

// What a fallback admits of another bucket while a check tells is told later: no call
// that the pod counts as under way is left unmade.
func TestRunner_awayWhileTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{distant: newDistant(time.Millisecond)}
		r := pod.NewRunner(s, 0, time.Second)
		defer func() { _ = r.Close() }()
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 10}
		ops := []store.Op{op("a", "k", l, 1), op("b", "k", l, 1)}
		terms := []pod.Terms{{Counting: pod.Exact}, {Counting: pod.Exact}}
		s.set(errRefused)
		decide(r, ops[:1], terms[:1])
		s.set(nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			decide(r, ops, terms) // a look for a, a charge, the check
		}()
		time.Sleep(1500 * time.Microsecond) // under the charge
		r.AppendAway(nil, ops[1:], terms[1:], []pod.Instead{open}, errRefused)
		<-done
		s.set(nil)
		decide(r, ops[1:], terms[1:])
		if len(s.seen) != 2 || s.seen[0].How != store.Add || s.seen[0].Cost != 1 {
			t.Errorf("asked %+v, want a charge of 1 and the check", s.seen)
		}
	})
}

// A key that went quiet is told within seconds, and not while the store is away.
func TestRunner_awayQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{distant: newDistant(time.Millisecond)}
		r := pod.NewRunner(s, 0, time.Second)
		defer func() { _ = r.Close() }()
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 10}
		ops := []store.Op{op("r", "k", l, 1)}
		ops[0].Want = 5
		s.set(gone(time.Second))
		decide(r, ops, nil)
		s.set(gone(time.Second))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(s.seen); n < 10 || n > 21 {
			t.Errorf("%d tries in 20 s, want about one a second", n)
		}
		s.set(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(s.seen) != 2 || s.seen[1].How != store.Add || s.seen[1].Cost != 1 {
			t.Errorf("told %+v, want a look and a charge of 1", s.seen)
		}
	})
}

// What this pod counts alone goes on as ever, and is spent only if all pass.
func TestRunner_awayLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{distant: newDistant(time.Millisecond)}
		s.set(errTimedOut)
		r := pod.NewRunner(s, 0, time.Second)
		defer func() { _ = r.Close() }()
		three := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 3}
		one := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 1}
		ops := []store.Op{op("far", "k", one, 1), op("here", "k", three, 1), op("far2", "k", three, 1)}
		terms := []pod.Terms{{Counting: pod.Exact}, {Counting: pod.Local}, {Counting: pod.Exact}}
		if _, closed := decide(r, ops, terms, open, open, pod.Instead{}); closed != 2 {
			t.Errorf("closed %d, want the third", closed)
		}
		for i := range 2 {
			grants, _ := decide(r, ops, terms)
			if !grants[0].OK || !grants[1].OK || grants[1].Source != store.FromLocal || grants[1].Remaining != int64(2-i) || grants[2].Source != store.FromFallback {
				t.Fatalf("check %d: %+v", i, grants)
			}
		}
		// The first's fallback of two is spent: nothing of the others is.
		for range 5 {
			if grants, _ := decide(r, ops, terms); grants[0].OK || grants[0].Source != store.FromFallback {
				t.Fatalf("%+v, want denied by the first", grants)
			}
		}
		grants, _ := decide(r, ops[1:2], terms[1:2])
		if !grants[0].OK || grants[0].Remaining != 0 {
			t.Errorf("%+v, want the last one here", grants[0])
		}
		// Nothing left here: the others are not asked.
		if grants, _ := decide(r, ops[1:], terms[1:]); grants[0].OK || !grants[1].Skipped {
			t.Errorf("%+v, want denied here", grants)
		}
	})
}

// Waiters of a call that fails are all decided by the fallback: no more pass than it
// holds.
func TestRunner_awayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &breaking{distant: newDistant(10 * time.Millisecond)}
		s.set(errors.New("odd"))
		r := pod.NewRunner(s, 0, time.Second)
		defer func() { _ = r.Close() }()
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 10}
		var mu sync.Mutex
		passed := 0
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				ops := []store.Op{op("r", "k", l, 1)}
				ops[0].Want = 5
				grants, _ := decide(r, ops, nil)
				mu.Lock()
				defer mu.Unlock()
				if grants[0].OK {
					passed++
				}
			})
		}
		wg.Wait()
		if passed != 20 {
			t.Errorf("%d passed, want 20", passed)
		}
	})
}
