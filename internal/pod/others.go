package pod

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// byOthers takes in by which numbers the store decided an op: by others than the
// pod's own where it has newer ones, of which this pod has not heard yet, or where
// the pod's wait for the end of a window. In both cases what the pod computes from
// its own would be wrong, in the second for as long as a month.
func (b *bucket) byOthers(op *store.Op, l *limit.Limit) {
	b.by, b.other = nil, false
	if op.Limit != b.limit || l == b.limit || l.Same(b.limit) {
		return
	}
	b.other = true
	if l.Algorithm == b.limit.Algorithm && isWindow(l) && l.Capacity >= 1 && l.Capacity <= limit.MaxNumber && l.LengthMS() >= time.Second.Milliseconds() {
		b.by = l
	}
}

// numbers returns what the bucket counts by at now: where the store counted a window
// by others, these to its end.
func (b *bucket) numbers(now int64) *limit.Limit {
	if b.other && b.by != nil && now < b.view.atNS {
		return b.by
	}
	return b.limit
}

// sure reports whether the store is known to count by the numbers of op: else a
// pre-limit by them might refuse what the store allows.
func (b *bucket) sure(op *store.Op) bool { return !b.other && (b.known || !op.NextWindow) }

func isWindow(l *limit.Limit) bool {
	return l.Algorithm == limit.FixedWindow || l.Algorithm == limit.SlidingWindow
}

// waits reports whether the numbers of op waited for the end of a window when the
// store decided it by those of g.
func waits(op *store.Op, g *store.Grant) bool {
	return op.NextWindow && g.Limit != nil && g.Limit.Revision < op.Limit.Revision
}
