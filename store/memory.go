package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
)

// MemoryConfig is what a MemoryStore can be told. Its zero value is good.
type MemoryConfig struct {
	// MaxBuckets bounds the table; 0 means DefaultMaxBuckets. A bucket takes
	// less than 200 bytes plus its names, a sliding log 24 bytes an admission
	// more.
	MaxBuckets int
	// Now is the clock; nil means time.Now. It is read once a call, while
	// buckets are locked: it must not block or call the store. It may step back.
	Now func() time.Time
}

// DefaultMaxBuckets is the bound of a MemoryStore's table unless it is told
// another: 1,000,000 buckets fit in 300 MB.
const DefaultMaxBuckets = 1_000_000

// maxOverflowBuckets bounds the buckets that keys beyond the table share: one a
// rule, so many rules.
const maxOverflowBuckets = 16_384

// MemoryStore is a Store inside the process: the same answers as a shared one
// to the same history, without a network. Create it with [NewMemoryStore]; it
// is safe for concurrent use, starts no goroutine and needs no closing.
//
// It grants no leases (Op.Want gets nothing, Op.Reports tell it nothing): a
// caller in the same process has nothing to gain from one.
//
// The table is bounded. When it is full a new key takes the place of a bucket
// that is full or expired, so that dropping it gives nobody a token; where there
// is none, all new keys of a rule share one overflow bucket. That denies
// newcomers under a flood of invented keys: watch [MemoryStats.Overflowed].
type MemoryStore struct {
	now      func() time.Time
	buckets  *keyed.Table[memoryBucket]
	overflow *keyed.Table[memoryBucket]
	calls    sync.Pool // of *memoryCall

	overflowed atomic.Int64
}

var (
	_ Store    = (*MemoryStore)(nil)
	_ Appender = (*MemoryStore)(nil)
)

// NewMemoryStore returns an empty store.
func NewMemoryStore(config MemoryConfig) *MemoryStore {
	if config.MaxBuckets <= 0 {
		config.MaxBuckets = DefaultMaxBuckets
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	m := &MemoryStore{
		now:      config.Now,
		buckets:  keyed.New[memoryBucket](config.MaxBuckets),
		overflow: keyed.New[memoryBucket](maxOverflowBuckets),
	}
	m.calls.New = func() any { return newMemoryCall(m) }
	return m
}

// Take implements [Store]. It never blocks for long; ctx is looked at once.
func (m *MemoryStore) Take(ctx context.Context, ops []Op) ([]Grant, error) {
	return m.AppendTake(ctx, make([]Grant, 0, len(ops)), ops)
}

// AppendTake implements [Appender]. It allocates only for a new bucket, for
// entries of a log, and to grow dst.
func (m *MemoryStore) AppendTake(ctx context.Context, dst []Grant, ops []Op) ([]Grant, error) {
	if err := ctx.Err(); err != nil {
		return dst, &StoreError{Kind: Timeout, Err: err}
	}
	if err := CheckOps(ops); err != nil {
		return dst, &StoreError{Kind: Refused, Err: err}
	}
	c := m.calls.Get().(*memoryCall)
	dst, err := c.take(dst, ops)
	m.calls.Put(c)
	if err != nil {
		return dst, &StoreError{Kind: Refused, Err: err}
	}
	return dst, nil
}

// Holds reports whether the table has that bucket. One that is full, and was dropped
// for it, is not there.
func (m *MemoryStore) Holds(b Bucket) bool {
	hash := m.buckets.Hash(keyed.Name(b))
	mask := m.buckets.Bit(hash)
	m.buckets.Lock(mask)
	defer m.buckets.Unlock(mask)
	return m.buckets.GetLocked(hash, keyed.Name(b)) != nil
}

// MemoryStats is a look at a MemoryStore's table.
type MemoryStats struct {
	// Buckets is the number of buckets held, shared ones not counted.
	Buckets int
	// Overflowed is the number of ops answered from a shared overflow bucket.
	Overflowed int64
}

// Stats returns the table's figures.
func (m *MemoryStore) Stats() MemoryStats {
	return MemoryStats{Buckets: m.buckets.Len(), Overflowed: m.overflowed.Load()}
}

var (
	errNamedTwice   = errors.New("bucket named twice")
	errOverflowFull = errors.New("table full, and more rules than overflow buckets")
)
