package rules

import (
	"container/heap"
	"slices"

	"github.com/tallygate/tallygate/identity"
)

// end is when an override in force ends.
type end struct {
	atMS       int64
	rule, name string
}

// ends are those to come, the first one first. Some may have been given up: each
// put of an override adds one, and none is taken back.
type ends struct {
	heap endHeap
	kept int // after the last tidy
}

type endHeap []end

func (h *endHeap) Len() int           { return len(*h) }
func (h *endHeap) Less(i, j int) bool { return (*h)[i].atMS < (*h)[j].atMS }
func (h *endHeap) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *endHeap) Push(x any)         { *h = append(*h, x.(end)) } // only ends are pushed
func (h *endHeap) Pop() any {
	last := len(*h) - 1
	out := (*h)[last]
	*h = (*h)[:last]
	return out
}

func (e *ends) add(next end) { heap.Push(&e.heap, next) }

// until takes those that are over.
func (e *ends) until(nowMS int64) []end {
	var out []end
	for len(e.heap) > 0 && e.heap[0].atMS <= nowMS {
		out = append(out, heap.Pop(&e.heap).(end)) // only ends are pushed
	}
	return out
}

// tidy drops those that were given up, once they may be as many as the others.
func (e *ends) tidy(s *Snapshot) {
	const slack = 1_024
	if len(e.heap) <= 2*e.kept+slack {
		return
	}
	seen := make(map[end]bool, len(e.heap))
	e.heap = slices.DeleteFunc(e.heap, func(is end) bool {
		given := seen[is] || !s.ends(is)
		seen[is] = true
		return given
	})
	heap.Init(&e.heap)
	e.kept = len(e.heap)
}

// ends reports whether an override in force ends then.
func (s *Snapshot) ends(is end) bool {
	rule := s.Rule(is.rule)
	if rule == nil {
		return false
	}
	parts, _, _ := identity.Parts(is.name)
	at, err := rule.spotOf(parts)
	if err != nil {
		return false
	}
	e := rule.keys.get(at.text)
	if at.pattern() {
		e = nil
		if p := rule.pattern(&at); p != nil {
			e = p.entry
		}
	}
	return e != nil && e.endMS == is.atMS
}
