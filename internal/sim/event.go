package sim

// kind is what happens.
type kind uint8

const (
	arrives  kind = iota // a check of a kind of traffic; ref is the kind
	delivers             // a check that waited for a pod which stood still; ref, key
	runs                 // a call reaches the store; ref is the call
	replies              // its answer reaches the pod; ref
	expires              // a check's patience ends; ref, serial
	ticks                // a pod gives back what nobody spends
	beats                // a pod tells the store that it lives, and learns who else does
	marks                // a pod writes its beat to all shards
	samples              // figures are taken
	seconds              // a second is over
	fails                // a fault begins; ref is its place in the plan
	ends                 // no more traffic
)

// event is something that happens at a time. Equal times happen in the order in
// which they were planned.
type event struct {
	at    int64 // ns
	order uint64
	pod   int32
	ref   int32
	extra int32 // the key, or the check's serial
	what  kind
}

// heap is a binary heap of events, the next one first. It is written out, since
// container/heap boxes every event.
type heap struct {
	events  []event
	planned uint64
}

func (h *heap) push(e event) {
	h.planned++
	e.order = h.planned
	h.events = append(h.events, e)
	at := len(h.events) - 1
	for at > 0 {
		up := (at - 1) / 2
		if !before(&e, &h.events[up]) {
			break
		}
		h.events[at] = h.events[up]
		at = up
	}
	h.events[at] = e
}

// pop takes out the next event; there must be one.
func (h *heap) pop() event {
	next := h.events[0]
	n := len(h.events) - 1
	last := h.events[n]
	h.events = h.events[:n]
	if n > 0 {
		h.sink(last)
	}
	return next
}

// again plans the next event anew, for a later time: half the work of pop and
// push, for the traffic, which is most of all events.
func (h *heap) again(at int64) {
	h.planned++
	e := h.events[0]
	e.at, e.order = at, h.planned
	h.sink(e)
}

// sink puts e in the place of the first event.
func (h *heap) sink(e event) {
	at, n := 0, len(h.events)
	for {
		down := 2*at + 1
		if down >= n {
			break
		}
		if right := down + 1; right < n && before(&h.events[right], &h.events[down]) {
			down = right
		}
		if !before(&h.events[down], &e) {
			break
		}
		h.events[at] = h.events[down]
		at = down
	}
	h.events[at] = e
}

func before(a, b *event) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}
