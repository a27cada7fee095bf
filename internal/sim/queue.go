package sim

// deadline is when a check's patience ends.
type deadline struct {
	at     int64
	check  int32
	serial int32
}

// queue is deadlines in the order of time. All checks are equally patient, so
// that they end in the order in which they began, and need no heap.
type queue struct {
	ring  []deadline
	first int
	count int
}

func (q *queue) push(d deadline) {
	if q.count == len(q.ring) {
		grown := make([]deadline, max(64, 2*len(q.ring)))
		for i := range q.count {
			grown[i] = q.ring[(q.first+i)&(len(q.ring)-1)]
		}
		q.ring, q.first = grown, 0
	}
	q.ring[(q.first+q.count)&(len(q.ring)-1)] = d
	q.count++
}

// next returns the first deadline, or nil.
func (q *queue) next() *deadline {
	if q.count == 0 {
		return nil
	}
	return &q.ring[q.first]
}

func (q *queue) drop() {
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.count--
}
