package rules

import (
	"hash/maphash"
	"slices"
)

// Bounds of a table's parts: shards are small so that a change copies little, and
// the directory is, whatever the hashes, no longer than 2^maxDepth.
const (
	shardItems = 16
	maxDepth   = 20
)

// table is entries by encoded key, by extendible hashing: a directory of small
// shards, of which a changed table copies one for each key that changed and shares
// the others. A nil table is empty. A table that is read by others is never edited;
// see edit.
type table struct {
	seed  maphash.Seed
	depth uint8    // the directory has 2^depth places
	dir   []*shard // by the low bits of the hash; several may hold one shard
	count int
	owner *owner
}

// shard is the entries whose hashes have their low depth bits in common.
type shard struct {
	depth uint8
	owner *owner
	items []item
}

type item struct {
	hash  uint64
	key   string
	entry *entry
}

// owner marks the shards that one edit made and may change. It has a size: all
// pointers to nothing are one.
type owner struct{ _ byte }

// get returns the entry of a key, nil if it has none.
func (t *table) get(key string) *entry {
	if t == nil {
		return nil
	}
	hash := maphash.String(t.seed, key)
	items := t.dir[hash&uint64(len(t.dir)-1)].items
	for i := range items {
		if items[i].hash == hash && items[i].key == key {
			return items[i].entry
		}
	}
	return nil
}

// len returns how many keys there are.
func (t *table) len() int {
	if t == nil {
		return 0
	}
	return t.count
}

// all calls f for each key, in no order. f must not change the table.
func (t *table) all(f func(key string, e *entry)) {
	if t == nil {
		return
	}
	for i, s := range t.dir {
		if i>>s.depth != 0 {
			continue // seen at a place before
		}
		for _, it := range s.items {
			f(it.key, it.entry)
		}
	}
}

// edit returns a copy to change, which shares all shards. It is nil, like t, while
// nothing is put.
func (t *table) edit() *table {
	if t == nil {
		return nil
	}
	out := *t
	out.dir, out.owner = slices.Clone(t.dir), &owner{}
	return &out
}

// freeze ends an edit: shards of it are copied from now on.
func (t *table) freeze() {
	if t != nil {
		t.owner = nil
	}
}

// put sets the entry of a key in an edited table, and returns the table.
func (t *table) put(key string, e *entry) *table {
	if t == nil {
		t = &table{seed: maphash.MakeSeed(), owner: &owner{}}
		t.dir = []*shard{{owner: t.owner}}
	}
	hash := maphash.String(t.seed, key)
	for {
		s := t.own(hash)
		if i := s.index(hash, key); i >= 0 {
			s.items[i].entry = e
			return t
		}
		if len(s.items) < shardItems || s.depth == maxDepth {
			s.items = append(s.items, item{hash, key, e})
			t.count++
			return t
		}
		t.split(s)
	}
}

// drop removes a key from an edited table, and returns the table.
func (t *table) drop(key string) *table {
	if t.get(key) == nil {
		return t
	}
	if t.count == 1 {
		return nil
	}
	hash := maphash.String(t.seed, key)
	s := t.own(hash)
	i := s.index(hash, key)
	s.items = slices.Delete(s.items, i, i+1)
	t.count--
	return t
}

func (s *shard) index(hash uint64, key string) int {
	return slices.IndexFunc(s.items, func(it item) bool { return it.hash == hash && it.key == key })
}

// own returns the shard of a hash, copied unless this edit made it.
func (t *table) own(hash uint64) *shard {
	s := t.dir[hash&uint64(len(t.dir)-1)]
	if s.owner == t.owner { // which an edited table has
		return s
	}
	next := &shard{depth: s.depth, owner: t.owner, items: slices.Clone(s.items)}
	t.place(next, hash)
	return next
}

// place enters a shard wherever hashes that share its low bits with this one lead.
func (t *table) place(s *shard, hash uint64) {
	step := 1 << s.depth
	for i := int(hash & uint64(step-1)); i < len(t.dir); i += step {
		t.dir[i] = s
	}
}

// split makes two of a full shard, by the next bit of the hash.
func (t *table) split(s *shard) {
	if s.depth == t.depth {
		t.dir = append(t.dir, t.dir...)
		t.depth++
	}
	bit := uint64(1) << s.depth
	low, high := &shard{depth: s.depth + 1, owner: t.owner}, &shard{depth: s.depth + 1, owner: t.owner}
	shared := s.items[0].hash & (bit - 1)
	for _, it := range s.items {
		if it.hash&bit == 0 {
			low.items = append(low.items, it)
		} else {
			high.items = append(high.items, it)
		}
	}
	t.place(low, shared)
	t.place(high, shared|bit)
}
