package redisstore

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// hold is what is not believed of a shard that has lost spends. It is pure; times
// are in ns of a monotonic clock, 0 for never.
type hold struct {
	// behindFor is how long rules that fail closed deny after a shard was found
	// behind, and emptyFor the longest that one found empty is not believed.
	behindFor, emptyFor time.Duration

	behindUntilNS int64
	emptySinceNS  int64
}

// finding is what a beat says of a shard.
type finding uint8

const (
	current finding = iota
	behind          // the last writes before a failover are lost
	empty           // all are
)

// note takes in a finding.
func (h *hold) note(now int64, f finding) {
	switch f {
	case current:
	case behind:
		h.behindUntilNS = now + int64(h.behindFor)
	case empty:
		h.emptySinceNS = now
	}
}

// refuses reports whether an op of a rule that fails closed must not be answered:
// while the shard is behind, and where it is empty until the op's window has passed.
func (h *hold) refuses(now int64, op *store.Op) bool {
	return op.Closed && (now < h.behindUntilNS || h.stale(now, op))
}

// stale reports whether a bucket that is missing cannot be taken for a full one: it
// may have been spent in the time in which it fills.
func (h *hold) stale(now int64, op *store.Op) bool {
	return h.emptySinceNS > 0 && now-h.emptySinceNS < int64(min(h.emptyFor, fills(op.Limit)))
}

// fills is the time in which an empty bucket is full again.
func fills(l *limit.Limit) time.Duration {
	switch {
	case l.Algorithm == limit.TokenBucket:
		return time.Duration((l.Burst*l.PeriodMS+l.Rate-1)/l.Rate) * time.Millisecond
	case l.Calendar != nil:
		return 24 * time.Hour // a day, a week or a month: more than is ever held
	default:
		return time.Duration(l.WindowMS) * time.Millisecond
	}
}
