package keyed

import (
	"encoding/binary"
	"math"
	"strings"
)

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

// shortName is the length up to which a name lies in its entry: there it costs no
// second look at memory, which in a large table is most of what finding costs.
const shortName = 45

// entry is a value and its name, whose parts follow one another. Its own fields are
// 56 bytes, so that the first 8 of a value are in the cache line of the name.
type entry[V any] struct {
	long *longName // the name, if it is longer than shortName
	// domain, rule and all are the lengths of the first two parts and of the whole
	// of a short name. all is 0 in a free entry, which has the number of the next
	// free one, + 1, where its name was.
	domain, rule, all uint8
	short             [shortName]byte
	value             V
}

// longName is a name that does not fit into an entry, and how long its parts are.
type longName struct {
	name         string
	domain, rule int
}

// parts returns the name.
func (l *longName) parts() Name {
	d, r := l.domain, l.domain+l.rule
	return Name{Domain: l.name[:d], Rule: l.name[d:r], Key: l.name[r:]}
}

// is reports whether the entry has that name.
func (e *entry[V]) is(n Name) bool {
	if e.long != nil {
		return e.long.parts() == n
	}
	d, r, l := int(e.domain), int(e.domain)+int(e.rule), int(e.all)
	if l-r != len(n.Key) || d != len(n.Domain) || r-d != len(n.Rule) {
		return false
	}
	return string(e.short[r:l]) == n.Key && string(e.short[d:r]) == n.Rule && string(e.short[:d]) == n.Domain
}

// setName copies a name: the caller may use the bytes behind its strings again.
func (e *entry[V]) setName(n Name) {
	d, r, l := len(n.Domain), len(n.Domain)+len(n.Rule), len(n.Domain)+len(n.Rule)+len(n.Key)
	if l > shortName {
		name := strings.Clone(n.Domain + n.Rule + n.Key) // joining a single part does not copy it
		e.long, e.all = &longName{name, d, r - d}, math.MaxUint8
		return
	}
	e.domain, e.rule, e.all = uint8(d), uint8(r-d), uint8(l)
	copy(e.short[:], n.Domain)
	copy(e.short[d:], n.Rule)
	copy(e.short[r:], n.Key)
}

// parts returns the entry's name.
func (e *entry[V]) parts() Name {
	if e.long != nil {
		return e.long.parts()
	}
	return (&longName{string(e.short[:e.all]), int(e.domain), int(e.rule)}).parts()
}

// free empties an entry and puts it before the next free one.
func (e *entry[V]) free(next uint32) {
	*e = entry[V]{}
	binary.LittleEndian.PutUint32(e.short[:], next)
}

// next is the next free entry, + 1.
func (e *entry[V]) next() uint32 { return binary.LittleEndian.Uint32(e.short[:]) }

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

// find returns an entry by its name, and its place in the index; nil if there is none.
func (s *shard[V]) find(hash uint64, n Name) (e *entry[V], place uint32) {
	if len(s.index) == 0 {
		return nil, 0
	}
	mask := uint32(len(s.index) - 1)
	for at := uint32(hash) & mask; ; at = (at + 1) & mask {
		p := s.index[at]
		if p == 0 {
			return nil, 0
		}
		if p.hash() == uint32(hash) {
			if e := s.entry(p.entry()); e.is(n) {
				return e, at
			}
		}
	}
}

// insert takes a free entry, or a new one, and puts it into the index.
func (s *shard[V]) insert(hash uint64, n Name) *V {
	if int(s.live+1)*4 > len(s.index)*3 {
		s.grow()
	}
	var number uint32
	if s.free > 0 {
		number = s.free - 1
		s.free = s.entry(number).next()
	} else {
		number = s.used
		if int(number/slabSize) == len(s.slabs) {
			s.slabs = append(s.slabs, new([slabSize]entry[V]))
		}
		s.used++
	}
	e := s.entry(number)
	e.setName(n)
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
		if e := s.entry(n); e.all > 0 { // a free entry has no name
			f(e.parts(), &e.value)
		}
	}
	return first+slabSize < s.used
}

// remove frees the entry at a place of the index and closes the gap: every slot
// behind it that may move there does, so that no run is broken.
func (s *shard[V]) remove(gap uint32) {
	number := s.index[gap].entry()
	s.entry(number).free(s.free)
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
