package store_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// heap returns the bytes in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemoryStore_size: at most 200 bytes and its key a bucket, a million of
// them in at most 300 MB.
func TestMemoryStore_size(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures the heap of a million buckets")
	}
	const buckets = 1_000_000
	for _, l := range []*limit.Limit{
		bucketOf(1, 3600, 5),
		{Algorithm: limit.SlidingWindow, Capacity: 5, WindowMS: 3_600_000},
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			before, names := heap(), 0
			m := store.NewMemoryStore(store.MemoryConfig{})
			grants := make([]store.Grant, 0, 1)
			ops := []store.Op{opOf("growth-global", "", l, 1)}
			key := make([]byte, 0, 32)
			for i := range buckets {
				key = strconv.AppendInt(append(key[:0], "acct_00"...), int64(i), 10)
				ops[0].Bucket.Key = string(key)
				names += len("default") + len("growth-global") + len(key)
				var err error
				if grants, err = m.AppendTake(context.Background(), grants[:0], ops); err != nil || !grants[0].OK {
					t.Fatal(err, grants)
				}
			}
			used := heap() - before
			runtime.KeepAlive(m)
			each := (used - int64(names)) / buckets
			t.Logf("%d MB, %d bytes a bucket beside its names of %d", used>>20, each, names/buckets)
			if each > 200 {
				t.Errorf("%d bytes a bucket beside its names, want at most 200", each)
			}
			if used > 300_000_000 {
				t.Errorf("%d bytes for %d buckets, want at most 300 MB", used, buckets)
			}
			if got := m.Stats(); got.Buckets != buckets || got.Overflowed != 0 {
				t.Errorf("stats %+v", got)
			}
		})
	}
}

// TestMemoryStore_MEM01: a flood of keys stays within the bound, and what it
// leaves behind makes room again.
func TestMemoryStore_MEM01(t *testing.T) {
	c := newClock()
	const most = 10_000
	m := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: most, Now: c.Now})
	l := bucketOf(1, 1, 5)
	goroutines := runtime.NumGoroutine()
	for i := range 10 * most {
		mustTake(t, m, opOf("r", strconv.Itoa(i), l, 1))
		if i%5 == 0 { // a bucket is full after 1 s: about half of the table may go
			c.Advance(1e6)
		}
		if got := m.Stats().Buckets; got > most {
			t.Fatalf("%d buckets after %d keys, want at most %d", got, i, most)
		}
	}
	if got := runtime.NumGoroutine(); got > goroutines {
		t.Errorf("%d goroutines, had %d", got, goroutines)
	}
	if got := m.Stats().Overflowed; got != 0 {
		t.Errorf("%d ops overflowed while full buckets could go", got)
	}
}
