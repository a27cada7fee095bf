package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// clock is an injected clock.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(1_790_000_000_000)
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) Advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// bucketOf is a token bucket of rate tokens every seconds.
func bucketOf(rate, seconds, burst int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: rate, PeriodMS: seconds * 1000, Burst: burst}
}

func opOf(rule, key string, l *limit.Limit, cost int64) store.Op {
	return store.Op{Bucket: store.Bucket{Domain: "default", Rule: rule, Key: key}, Limit: l, Cost: cost}
}

func mustTake(t *testing.T, m *store.MemoryStore, ops ...store.Op) []store.Grant {
	t.Helper()
	grants, err := m.Take(context.Background(), ops)
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

// drain takes so often one token of a key and returns how many it got.
func drain(t *testing.T, m *store.MemoryStore, op store.Op, times int) (allowed int) {
	t.Helper()
	for range times {
		if mustTake(t, m, op)[0].OK {
			allowed++
		}
	}
	return allowed
}

func TestMemoryStore_allocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector empties pools")
	}
	fast, slow := bucketOf(1_000_000, 1, 1_000_000), bucketOf(1, 3600, 1)
	window := &limit.Limit{Algorithm: limit.SlidingWindow, Capacity: 1_000_000, WindowMS: 60_000}
	for _, c := range []struct {
		name string
		ops  []store.Op
	}{
		{"one bucket", []store.Op{opOf("a", "k", fast, 1)}},
		{"a denial", []store.Op{opOf("a", "k", slow, 1)}},
		{"a window", []store.Op{opOf("a", "k", window, 1)}},
		{"a bucket and a window, one denies", []store.Op{opOf("a", "k", fast, 1), opOf("b", "k", window, 1), opOf("c", "k", slow, 1)}},
		{"an unknown key, looked at", []store.Op{opOf("a", "k", fast, 0)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := store.NewMemoryStore(store.MemoryConfig{})
			grants := make([]store.Grant, 0, len(c.ops))
			got := testing.AllocsPerRun(1000, func() {
				grants, _ = m.AppendTake(context.Background(), grants[:0], c.ops)
			})
			if got != 0 {
				t.Errorf("%v allocations a call", got)
			}
		})
	}
}

// TestMemoryStore_CLK02: a clock that steps back and a sweep are no refill.
func TestMemoryStore_CLK02(t *testing.T) {
	c := newClock()
	m := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: 4, Now: c.Now})
	l := bucketOf(1, 3600, 5)
	op := opOf("r", "victim", l, 1)
	if got := drain(t, m, op, 6); got != 5 {
		t.Fatalf("%d allowed, want 5", got)
	}
	c.Advance(-10 * time.Second)
	for i := range 100 { // each newcomer sweeps
		mustTake(t, m, opOf("r", fmt.Sprint(i), l, 1))
	}
	if got := mustTake(t, m, op)[0]; got.OK {
		t.Error("the drained bucket was swept and came back full")
	}
}

// TestMemoryStore_CON02: goroutines that race for the clock mint nothing.
func TestMemoryStore_CON02(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 2 s of real time")
	}
	m := store.NewMemoryStore(store.MemoryConfig{})
	op := opOf("r", "k", bucketOf(10, 1, 1), 1)
	const seconds = 2
	var allowed atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range 50 {
		all.Go(func() {
			for time.Since(start) < seconds*time.Second {
				grants, err := m.Take(context.Background(), []store.Op{op})
				if err == nil && grants[0].OK {
					allowed.Add(1)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	all.Wait()
	spent := time.Since(start).Seconds()
	if got := float64(allowed.Load()); got > 1+10*spent || got < 10*seconds-5 {
		t.Errorf("%v allowed in %.2f s, want at most %.0f", got, spent, 1+10*spent)
	}
}

func TestMemoryStore_refuses(t *testing.T) {
	good := opOf("r", "k", bucketOf(1, 1, 5), 1)
	with := func(change func(*store.Op)) []store.Op {
		op := good
		change(&op)
		return []store.Op{op}
	}
	many := make([]store.Op, store.MaxOps+1)
	for i := range many {
		many[i] = opOf("r", fmt.Sprint(i), good.Limit, 1)
	}
	for _, c := range []struct {
		name string
		ops  []store.Op
	}{
		{"no limit", with(func(op *store.Op) { op.Limit = nil })},
		{"rate 0", with(func(op *store.Op) { op.Limit = bucketOf(0, 1, 5) })},
		{"cost -1 (CST-02)", with(func(op *store.Op) { op.Cost = -1 })},
		{"cost above 10^9", with(func(op *store.Op) { op.Cost = limit.MaxCost + 1 })},
		{"queue -1", with(func(op *store.Op) { op.Queue = -1 })},
		{"want -1", with(func(op *store.Op) { op.Want = -1 })},
		{"pods -1", with(func(op *store.Op) { op.Pods = -1 })},
		{"max cost -1", with(func(op *store.Op) { op.MaxCost = -1 })},
		{"receipt -1", with(func(op *store.Op) { op.Receipt.Cost = -1 })},
		{"three reports", with(func(op *store.Op) { op.Reports = make([]store.Report, 3) })},
		{"a report of -1", with(func(op *store.Op) { op.Reports = []store.Report{{Back: -1}} })},
		{"no such how", with(func(op *store.Op) { op.How = 7 })},
		{"33 ops", many},
		{"a bucket twice", []store.Op{good, good}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := store.NewMemoryStore(store.MemoryConfig{})
			_, err := m.Take(context.Background(), c.ops)
			var refused *store.StoreError
			if !errors.As(err, &refused) || refused.Kind != store.Refused || refused.Sent {
				t.Errorf("error %v, want refused, not sent", err)
			}
			if m.Stats().Buckets != 0 {
				t.Errorf("%d buckets, want none", m.Stats().Buckets)
			}
		})
	}
}

func TestMemoryStore_contextIsOver(t *testing.T) {
	m := store.NewMemoryStore(store.MemoryConfig{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := m.Take(ctx, []store.Op{opOf("r", "k", bucketOf(1, 1, 5), 1)})
	var late *store.StoreError
	if !errors.As(err, &late) || late.Kind != store.Timeout || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want a timeout by cancellation", err)
	}
}

// TestMemoryStore_overflow: a full table evicts nobody who would gain by it;
// newcomers of a rule share one bucket.
func TestMemoryStore_overflow(t *testing.T) {
	c := newClock()
	m := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: 10, Now: c.Now})
	l := bucketOf(1, 3600, 5)
	for i := range 10 {
		drain(t, m, opOf("r", fmt.Sprint(i), l, 1), 5)
	}
	newcomers := 0
	for i := range 20 {
		newcomers += drain(t, m, opOf("r", fmt.Sprint("new", i), l, 1), 1)
	}
	if newcomers != 5 {
		t.Errorf("%d newcomers passed, want the 5 of one bucket", newcomers)
	}
	if got := drain(t, m, opOf("other", "new", l, 1), 6); got != 5 {
		t.Errorf("%d passed of another rule, want 5", got)
	}
	for i := range 10 {
		if got := drain(t, m, opOf("r", fmt.Sprint(i), l, 1), 1); got != 0 {
			t.Errorf("key %d was evicted with nothing left", i)
		}
	}
	if got := m.Stats(); got.Buckets != 10 || got.Overflowed != 26 {
		t.Errorf("stats %+v, want 10 buckets, 26 overflowed", got)
	}
	c.Advance(5 * time.Hour) // all are full again
	if got := drain(t, m, opOf("r", "late", l, 1), 6); got != 5 {
		t.Errorf("%d passed of a newcomer with room, want 5", got)
	}
}

// TestMemoryStore_overflowInOneCall: two newcomers of a rule in one call share
// the bucket within the call too.
func TestMemoryStore_overflowInOneCall(t *testing.T) {
	window := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, WindowMS: 3_600_000}
	log := &limit.Limit{Algorithm: limit.SlidingLog, Capacity: 5, WindowMS: 3_600_000}
	for _, l := range []*limit.Limit{bucketOf(1, 3600, 5), window, log} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			c := newClock()
			m := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: 1, Now: c.Now})
			mustTake(t, m, opOf("r", "first", bucketOf(1, 3600, 5), 5))
			pair := []store.Op{opOf("r", "a", l, 3), opOf("r", "b", l, 3)}
			grants := mustTake(t, m, pair...)
			if !grants[0].OK || grants[1].OK || grants[0].Remaining != 5 {
				t.Errorf("3 + 3 of 5: %+v", grants)
			}
			pair[1].Cost = 2
			if grants = mustTake(t, m, pair...); !grants[0].OK || !grants[1].OK || grants[1].Remaining != 0 {
				t.Errorf("3 + 2 of 5: %+v", grants)
			}
			if got := mustTake(t, m, opOf("r", "c", l, 1))[0]; got.OK {
				t.Error("a sixth token passed")
			}
			add := opOf("r", "d", l, 1)
			add.How = store.Add
			mustTake(t, m, add, opOf("r", "e", l, 1))
			if got := m.Stats().Buckets; got != 1 {
				t.Errorf("%d buckets, want 1", got)
			}
		})
	}
}

// TestMemoryStore_looksLeaveNothing: an unknown key shows as full and makes no
// bucket, denied ones neither (API-02).
func TestMemoryStore_looksLeaveNothing(t *testing.T) {
	for _, max := range []int{0, 1} {
		m := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: max})
		l := bucketOf(1, 3600, 5)
		peek := opOf("r", "a", l, 1)
		peek.How = store.Peek
		for i, op := range []store.Op{opOf("r", "a", l, 0), peek, opOf("r", "a", l, 6)} {
			if got := mustTake(t, m, op)[0]; got.Remaining != 5 || m.Stats().Buckets != 0 {
				t.Errorf("look %d: %+v, %d buckets", i, got, m.Stats().Buckets)
			}
		}
		mustTake(t, m, opOf("r", "a", l, 1), opOf("r", "b", l, 6))
		if got := m.Stats().Buckets; got != 0 {
			t.Errorf("%d buckets after a denied call, want none", got)
		}
	}
}

// The table says which buckets it has: those that something was spent in.
func TestMemoryStore_holds(t *testing.T) {
	m := store.NewMemoryStore(store.MemoryConfig{})
	l := bucketOf(1, 3600, 5)
	op := opOf("r", "a", l, 0)
	if mustTake(t, m, op); m.Holds(op.Bucket) {
		t.Error("a bucket that was only looked at is held")
	}
	if mustTake(t, m, opOf("r", "a", l, 1)); !m.Holds(op.Bucket) || m.Holds(store.Bucket{Rule: "r", Key: "b"}) {
		t.Error("want the bucket that was spent from, and no other")
	}
}

func TestMemoryStore_keepsNoReferenceToKeys(t *testing.T) {
	m := store.NewMemoryStore(store.MemoryConfig{})
	buffer := []byte("acct_1")
	l := bucketOf(1, 3600, 1)
	mustTake(t, m, opOf("r", unsafe.String(&buffer[0], len(buffer)), l, 1))
	copy(buffer, "acct_2")
	if mustTake(t, m, opOf("r", "acct_1", l, 1))[0].OK {
		t.Error("acct_1 was lost with its buffer")
	}
	if !mustTake(t, m, opOf("r", "acct_2", l, 1))[0].OK {
		t.Error("acct_2 was taken for acct_1")
	}
}
