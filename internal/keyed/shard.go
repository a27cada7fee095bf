package keyed

import "strings"

// slabSize is the number of entries a slab: small enough that 64 half-used ones
// do not matter, large enough that the table of slabs does not either.
const slabSize = 128

// Entries looked at by one insert: a few always, which in the long run is every
// entry, and a bounded search when the table is full.
const (
	sweepAlways = 2
	sweepFull   = 64
)

// minIndex is the size of the smallest index.
const minIndex = 8

// entry is a value and its name. The parts of a name lie in one string, so that
// an entry costs one allocation and one header.
type entry[V any] struct {
	name         string
	domain, rule uint32 // lengths of the first two parts; in a free entry, rule is the next free +1
	value        V
}

// is reports whether the entry has that name.
func (e *entry[V]) is(n Name) bool {
	d, r := int(e.domain), int(e.domain)+int(e.rule)
	return len(e.name)-r == len(n.Key) && d == len(n.Domain) && r-d == len(n.Rule) &&
		e.name[r:] == n.Key && e.name[d:r] == n.Rule && e.name[:d] == n.Domain
}

// parts returns the entry's name.
func (e *entry[V]) parts() Name {
	d, r := e.domain, e.domain+e.rule
	return Name{Domain: e.name[:d], Rule: e.name[d:r], Key: e.name[r:]}
}

// slot is a place of the index: an entry's number + 1 in the upper half, 0 for
// none, and the lower half of its hash below it, so that moving slots and most
// misses need not touch the entries.
type slot uint64

func makeSlot(entry uint32, hash uint64) slot {
	return slot(uint64(entry+1)<<32 | hash&0xffffffff)
}

func (p slot) entry() uint32 { return uint32(p>>32) - 1 }
func (p slot) hash() uint32  { return uint32(p) }

func (s *shard[V]) entry(n uint32) *entry[V] {
	return &s.slabs[n/slabSize][n%slabSize]
}

// find returns the place of a name in the index, or -1.
func (s *shard[V]) find(hash uint64, n Name) int {
	if len(s.index) == 0 {
		return -1
	}
	mask := uint32(len(s.index) - 1)
	for at := uint32(hash) & mask; s.index[at] != 0; at = (at + 1) & mask {
		if p := s.index[at]; p.hash() == uint32(hash) && s.entry(p.entry()).is(n) {
			return int(at)
		}
	}
	return -1
}

// insert takes a free entry, or a new one, and puts it into the index.
func (s *shard[V]) insert(hash uint64, n Name) *V {
	if int(s.live+1)*4 > len(s.index)*3 {
		s.grow()
	}
	var number uint32
	if s.free > 0 {
		number = s.free - 1
		s.free = s.entry(number).rule
	} else {
		number = s.used
		if int(number/slabSize) == len(s.slabs) {
			s.slabs = append(s.slabs, new([slabSize]entry[V]))
		}
		s.used++
	}
	e := s.entry(number)
	// One copy: the caller may use the bytes behind its strings again.
	e.name = n.Domain + n.Rule + n.Key
	if len(n.Domain)+len(n.Rule) == 0 || len(n.Key) == 0 {
		e.name = strings.Clone(e.name) // joining a single part does not copy it
	}
	e.domain, e.rule = uint32(len(n.Domain)), uint32(len(n.Rule))
	s.place(makeSlot(number, hash))
	s.live++
	return &e.value
}

// place puts a slot into the first free place of its run.
func (s *shard[V]) place(p slot) {
	mask := uint32(len(s.index) - 1)
	at := p.hash() & mask
	for s.index[at] != 0 {
		at = (at + 1) & mask
	}
	s.index[at] = p
}

// grow doubles the index. Entries stay where they are.
func (s *shard[V]) grow() {
	old := s.index
	s.index = make([]slot, max(minIndex, 2*len(old)))
	for _, p := range old {
		if p != 0 {
			s.place(p)
		}
	}
}

// each calls f with every value of a slab, and reports whether there is one more.
func (s *shard[V]) each(slab int, f func(Name, *V)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := uint32(slab) * slabSize
	for n := first; n < min(first+slabSize, s.used); n++ {
		if e := s.entry(n); e.name != "" { // a free entry has no name
			f(e.parts(), &e.value)
		}
	}
	return first+slabSize < s.used
}

// remove frees the entry at a place of the index and closes the gap: every slot
// behind it that may move there does, so that no run is broken.
func (s *shard[V]) remove(gap uint32) {
	number := s.index[gap].entry()
	*s.entry(number) = entry[V]{rule: s.free}
	s.free = number + 1
	s.live--
	mask := uint32(len(s.index) - 1)
	for at := (gap + 1) & mask; s.index[at] != 0; at = (at + 1) & mask {
		home := s.index[at].hash() & mask
		if (at-home)&mask >= (at-gap)&mask {
			s.index[gap] = s.index[at]
			gap = at
		}
	}
	s.index[gap] = 0
}

// sweep looks at the next places of the index and drops what may go. It returns
// how many it dropped.
func (s *shard[V]) sweep(places int, droppable func(*V) bool) (dropped int) {
	for range min(places, len(s.index)) {
		if s.sweepPlace(droppable) {
			dropped++
		}
	}
	return dropped
}

// sweepOne looks on until it could drop one entry, at most at so many entries.
func (s *shard[V]) sweepOne(entries int, droppable func(*V) bool) bool {
	for looked, i := 0, 0; looked < entries && i < len(s.index); i++ {
		if s.index[s.hand%uint32(len(s.index))] != 0 {
			looked++
		}
		if s.sweepPlace(droppable) {
			return true
		}
	}
	return false
}

// sweepPlace looks at one place and moves the hand. After a drop it stays: the
// gap may have been filled from behind.
func (s *shard[V]) sweepPlace(droppable func(*V) bool) bool {
	s.hand &= uint32(len(s.index) - 1)
	p := s.index[s.hand]
	if p != 0 && droppable(&s.entry(p.entry()).value) {
		s.remove(s.hand)
		return true
	}
	s.hand++
	return false
}
