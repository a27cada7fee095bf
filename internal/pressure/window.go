package pressure

import "time"

// slot is the length of a part of a window.
const slot = time.Second

// window sums what happened in its last slots. Its size is fixed, whatever the load.
type window[T any] struct {
	slots []T
	// head is the number of the newest slot, counted from the zero of the clock.
	head int64
}

func newWindow[T any](n int) window[T] { return window[T]{slots: make([]T, n)} }

// at returns the slot of now and empties those that now has left behind. A clock that
// goes back writes on into the newest slot.
func (w *window[T]) at(now time.Duration) *T {
	n := int64(len(w.slots))
	if head := int64(now / slot); head > w.head {
		for i := max(w.head+1, head-n+1); i <= head; i++ {
			var zero T
			w.slots[i%n] = zero
		}
		w.head = head
	}
	return &w.slots[w.head%n]
}
