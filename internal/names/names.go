// Package names numbers names, so that what is counted by name is counted in a list.
// Their number is bounded, since clients and feeds of rules choose them: names beyond
// the bound share one number, [Rest].
//
// Looking a name up takes no lock and does not allocate. [Names] is safe for
// concurrent use.
package names

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const (
	// Rest is the number of all names that have none of their own.
	Rest = 0
	// MaxBytes is the longest name that [Names.Number] takes in.
	MaxBytes = 256
)

// Names are names and their numbers, from 0 without a gap. Create them with [New].
type Names struct {
	most    int        // names in all, those reserved included
	aliases int        // at most
	mu      sync.Mutex // held while a name is added
	known   atomic.Pointer[known]
}

// known is names and their numbers. It is never changed, only replaced, so that who
// looks one up needs no lock.
type known struct {
	numbers map[string]int // aliases too
	list    []string
}

// New returns names with the first numbers taken, [Rest] first; the reserved ones do
// not count against most.
func New(most int, rest string, reserved ...string) *Names {
	n := &Names{most: 1 + len(reserved), aliases: 2 * most}
	n.known.Store(&known{numbers: map[string]int{}})
	n.Add(rest)
	n.Add(reserved...)
	n.most += most
	return n
}

// Find returns the number of a name, or [Rest].
func (n *Names) Find(name string) int { return n.known.Load().numbers[name] }

// All returns the names by number. The list must not be changed.
func (n *Names) All() []string { return n.known.Load().list }

// Number returns the number of a name, a new one where there is room, and the copy of
// the name that is kept: the caller may use the bytes behind its own again.
func (n *Names) Number(name string) (number int, own string) {
	k := n.known.Load()
	if i, ok := k.numbers[name]; ok {
		return i, k.list[i]
	}
	if len(k.list) >= n.most || len(name) > MaxBytes || !utf8.ValidString(name) {
		return Rest, k.list[Rest]
	}
	i := n.Add(name)[0]
	return i, n.All()[i]
}

// Add returns the numbers of names, new ones where there is room.
func (n *Names) Add(list ...string) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.known.Load()
	next := known{numbers: maps.Clone(k.numbers), list: slices.Clone(k.list)}
	numbers := make([]int, len(list))
	for i, name := range list {
		at, ok := next.numbers[name]
		switch {
		case ok:
			numbers[i] = at
		case len(next.list) >= n.most:
			numbers[i] = Rest
		default:
			name, at = strings.Clone(name), len(next.list)
			next.numbers[name], next.list = at, append(next.list, name)
			numbers[i] = at
		}
	}
	n.known.Store(&next)
	return numbers
}

// Alias gives a number another name, by which [Names.Find] finds it from then on and
// which [Names.All] does not list. There are at most two for each name that there may
// be; one beyond is not found.
func (n *Names) Alias(name string, number int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.known.Load()
	if at, ok := k.numbers[name]; ok && at == number || len(k.numbers)-len(k.list) >= n.aliases {
		return
	}
	next := known{numbers: maps.Clone(k.numbers), list: k.list}
	next.numbers[strings.Clone(name)] = number
	n.known.Store(&next)
}
