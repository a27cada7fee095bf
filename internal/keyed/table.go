// Package keyed is a bounded, sharded table of named values: the only place
// with sharded locks.
//
// A name is three strings, compared part by part, so that no separator in one
// of them can make two names alike. Values lie in slabs that never move: a
// pointer to a value stays good until the value is deleted, and growing copies
// only the small index. An entry costs its value, 56 bytes that hold a name of up
// to 45, and 11 to 22 bytes of index.
//
// Callers lock the shards of all names they mean to touch at once, by
// [Table.Lock] with a mask; methods whose names end in Locked need that. There
// is no goroutine: inserts sweep a few entries each, and ask the caller which
// may go.
package keyed

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Name is what a value is found by.
type Name struct {
	Domain, Rule, Key string
}

// maxShards is the number of locks of a large table: as many as a mask has bits.
const maxShards = 64

// perShard is the least number of entries that make another shard worth while:
// a full table looks for something to drop in the newcomer's shard only.
const perShard = 256

// Table holds at most so many values. Create it with [New].
type Table[V any] struct {
	seed   maphash.Seed
	shift  uint // hash >> shift is the shard
	shards []shard[V]
	bound  int64
	count  atomic.Int64
}

// New returns a table of at most bound values; bound is at least 1.
func New[V any](bound int) *Table[V] {
	bound = max(1, bound)
	n := 1
	for n < maxShards && n*perShard < bound {
		n *= 2
	}
	return &Table[V]{
		seed:   maphash.MakeSeed(),
		shift:  uint(64 - bits.TrailingZeros(uint(n))),
		shards: make([]shard[V], n),
		bound:  int64(bound),
	}
}

// Hash returns the hash of a name, which the other methods want along with it.
// It is seeded: nobody outside can choose names that collide.
func (t *Table[V]) Hash(n Name) uint64 {
	h := maphash.String(t.seed, n.Key)
	h ^= bits.RotateLeft64(maphash.String(t.seed, n.Rule), 21)
	h ^= bits.RotateLeft64(maphash.String(t.seed, n.Domain), 42)
	// The parts are hashed alike: mixing keeps shard and index bits apart.
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// Bit returns the mask bit of the shard that a hash belongs to.
func (t *Table[V]) Bit(hash uint64) uint64 { return 1 << (hash >> t.shift) }

// Lock locks the shards of a mask in ascending order, so that two callers with
// several names each cannot wait for one another.
func (t *Table[V]) Lock(mask uint64) {
	for ; mask != 0; mask &= mask - 1 {
		t.shards[bits.TrailingZeros64(mask)].mu.Lock()
	}
}

// Unlock unlocks them.
func (t *Table[V]) Unlock(mask uint64) {
	for ; mask != 0; mask &= mask - 1 {
		t.shards[bits.TrailingZeros64(mask)].mu.Unlock()
	}
}

// GetLocked returns the value of that name, or nil. The pointer is good while
// the shard is locked.
func (t *Table[V]) GetLocked(hash uint64, n Name) *V {
	s := &t.shards[hash>>t.shift]
	if e, _ := s.find(hash, n); e != nil {
		return &e.value
	}
	return nil
}

// InsertLocked makes a zero value for a name that is not there, copying the
// name's bytes, and returns it. It looks at a few other entries of the shard,
// more when the table is full, and drops those that droppable says yes to. Nil
// says that the table is full of what may not go.
func (t *Table[V]) InsertLocked(hash uint64, n Name, droppable func(*V) bool) *V {
	s := &t.shards[hash>>t.shift]
	t.count.Add(-int64(s.sweep(sweepAlways, droppable)))
	if t.count.Add(1) > t.bound {
		t.count.Add(-1) // for the one dropped, or for the newcomer
		if !s.sweepOne(sweepFull, droppable) {
			return nil
		}
	}
	return s.insert(hash, n)
}

// DeleteLocked forgets a name.
func (t *Table[V]) DeleteLocked(hash uint64, n Name) {
	s := &t.shards[hash>>t.shift]
	if e, place := s.find(hash, n); e != nil {
		s.remove(place)
		t.count.Add(-1)
	}
}

// Each calls f with every value, one shard's lock held; for a slab's worth of
// values at a time, so that nobody waits for long. Values that come or go meanwhile
// may be left out, or be seen. f must not use the table, nor keep its arguments.
func (t *Table[V]) Each(f func(Name, *V)) {
	for i := range t.shards {
		slab := 0
		for t.shards[i].each(slab, f) {
			slab++
		}
	}
}

// Len returns the number of values.
func (t *Table[V]) Len() int { return int(t.count.Load()) }

// Full reports whether the next insert must find something to drop.
func (t *Table[V]) Full() bool { return t.count.Load() >= t.bound }

// All returns the mask of all shards.
func (t *Table[V]) All() uint64 { return ^uint64(0) >> (maxShards - len(t.shards)) }

// shard is one lock and what it guards. The padding keeps the locks of
// neighbours out of each other's cache line.
type shard[V any] struct {
	mu sync.Mutex
	// index finds an entry by open addressing, in slabs finds it by number.
	index []slot
	slabs []*[slabSize]entry[V]
	used  uint32 // entries ever taken from the slabs
	live  uint32 // entries in the index
	free  uint32 // head of the list of entries to use again, +1; 0 for none
	hand  uint32 // where the sweep goes on
	_     [56]byte
}
