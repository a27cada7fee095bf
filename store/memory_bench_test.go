package store_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// casBucket is the yardstick: a token bucket in one word, refilled
// and spent by compare-and-swap.
type casBucket struct {
	state       atomic.Int64 // the time at which the bucket would be full, in ns
	cost, burst int64        // ns a token, ns a full bucket
}

func (b *casBucket) take(now int64) bool {
	for {
		full := b.state.Load()
		next := max(full, now) + b.cost
		if next-now > b.burst {
			return false
		}
		if b.state.CompareAndSwap(full, next) {
			return true
		}
	}
}

func BenchmarkCASBucket(b *testing.B) {
	bucket := &casBucket{cost: 1, burst: int64(time.Hour)}
	for b.Loop() {
		if !bucket.take(time.Now().UnixNano()) {
			b.Fatal("denied")
		}
	}
}

func BenchmarkMemoryStore(b *testing.B) {
	fast := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1_000_000_000, PeriodMS: 1000, Burst: 1_000_000_000}
	slow := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 1}
	window := &limit.Limit{Algorithm: limit.SlidingWindow, Capacity: 100_000_000, WindowMS: 60_000}
	op := func(l *limit.Limit, key string) store.Op {
		return store.Op{Bucket: store.Bucket{Domain: "default", Rule: "growth-global", Key: key}, Limit: l, Cost: 1}
	}
	for _, c := range []struct {
		name string
		ops  []store.Op
	}{
		{"hot bucket", []store.Op{op(fast, "acct_7Q2")}},
		{"denied", []store.Op{op(slow, "acct_7Q2")}},
		{"hot window", []store.Op{op(window, "acct_7Q2")}},
		{"two buckets", []store.Op{op(fast, "acct_7Q2"), op(fast, "acct_7Q3")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := store.NewMemoryStore(store.MemoryConfig{})
			grants := make([]store.Grant, 0, 2)
			b.ReportAllocs()
			for b.Loop() {
				grants, _ = m.AppendTake(context.Background(), grants[:0], c.ops)
			}
		})
	}
}

func BenchmarkMemoryStoreKeys(b *testing.B) {
	// Slow enough that no bucket is full again, and swept, before its next turn.
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 8000}
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = "acct_" + strconv.Itoa(i)
	}
	m := store.NewMemoryStore(store.MemoryConfig{})
	grants := make([]store.Grant, 0, 1)
	ops := []store.Op{opOf("growth-global", "", l, 1)}
	take := func(i int) {
		ops[0].Bucket.Key = keys[i*7919%len(keys)]
		grants, _ = m.AppendTake(context.Background(), grants[:0], ops)
	}
	for i := range keys {
		take(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		take(i)
	}
}

// TestMemoryStore_speed: a decision takes at most six times the CAS bucket, the
// best of interleaved rounds, so that a busy machine does not decide.
func TestMemoryStore_speed(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures time")
	}
	// Rounds of less than a millisecond: on a busy machine some are not interrupted.
	const calls, rounds = 1000, 700
	fast := bucketOf(1_000_000_000, 1, 1_000_000_000)
	ops := []store.Op{opOf("growth-global", "acct_7Q2", fast, 1)}
	m, bucket := store.NewMemoryStore(store.MemoryConfig{}), &casBucket{cost: 1, burst: int64(time.Hour)}
	grants := make([]store.Grant, 0, 1)
	yardstick, ours := time.Hour, time.Hour
	for range rounds {
		start := time.Now()
		for range calls {
			bucket.take(time.Now().UnixNano())
		}
		middle := time.Now()
		for range calls {
			grants, _ = m.AppendTake(context.Background(), grants[:0], ops)
		}
		yardstick, ours = min(yardstick, middle.Sub(start)), min(ours, time.Since(middle))
	}
	ratio := float64(ours) / float64(yardstick)
	t.Logf("%d ns a decision, CAS bucket %d ns: %.1f times", ours.Nanoseconds()/calls, yardstick.Nanoseconds()/calls, ratio)
	if ratio > 6 {
		t.Errorf("%.1f times the CAS bucket, want at most 6", ratio)
	}
}
