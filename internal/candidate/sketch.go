package candidate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// sketch finds the keys with most checks in the room of MaxKeys (Space-Saving: a new
// key takes the place, and the weight, of the one with least). The weights add up to
// all checks, so that the least is at most one part in MaxKeys of them, and a key that
// has more is surely there.
type sketch struct {
	cells []cell
}

// cell is one key.
type cell struct {
	hash uint64
	// weight is at least the key's checks: those of the keys before it are in it.
	weight int64
	key    []byte
	// Count is what was counted since the key took the place, never more than is
	// true.
	Count
}

// Long keys are kept by their beginning and a digest: no client makes a sketch large.
const (
	wholeKey = 192
	keptKey  = 128
)

func (s *sketch) add(hash uint64, key string, count Count) {
	if len(key) > wholeKey {
		sum := sha256.Sum256([]byte(key))
		key = key[:keptKey] + "…" + hex.EncodeToString(sum[:])
	}
	least := -1
	for i := range s.cells {
		c := &s.cells[i]
		if c.hash == hash && string(c.key) == key {
			c.weight++
			c.Count = c.plus(count)
			return
		}
		if least < 0 || c.weight < s.cells[least].weight {
			least = i
		}
	}
	if len(s.cells) < MaxKeys {
		least = len(s.cells)
		s.grow()
	}
	c := &s.cells[least]
	c.hash, c.key = hash, append(c.key[:0], key...)
	c.weight, c.Count = c.weight+1, count
}

// grow adds a cell of no weight, in the memory of one from before if there is some.
func (s *sketch) grow() {
	n := len(s.cells)
	if n < cap(s.cells) {
		s.cells = s.cells[:n+1]
	} else {
		s.cells = append(s.cells, cell{})
	}
	s.cells[n].weight = 0
}

// reset forgets the keys and keeps their memory.
func (s *sketch) reset() { s.cells = s.cells[:0] }

// keys returns the keys, those with most checks first.
func (s *sketch) keys() []KeyCount {
	out := make([]KeyCount, len(s.cells))
	for i := range s.cells {
		out[i] = KeyCount{Key: string(s.cells[i].key), Count: s.cells[i].Count}
	}
	slices.SortFunc(out, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Checks, a.Checks), cmp.Compare(a.Key, b.Key))
	})
	return out
}
