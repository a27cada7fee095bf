package breaker

import (
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Hold is what is not believed of a shard that has lost spends. Times are in ns of a
// monotonic clock, 0 for never.
type Hold struct {
	// BehindFor is how long rules that fail closed deny after a shard was found
	// behind, and EmptyFor the longest that one found empty is not believed.
	BehindFor, EmptyFor time.Duration

	behindUntilNS int64
	emptySinceNS  int64
}

// Finding is what a beat says of a shard.
type Finding uint8

const (
	// Current says that nothing is known to be missing.
	Current Finding = iota
	// Behind says that the last writes before a failover are lost.
	Behind
	// Empty says that all are.
	Empty
)

// Note takes in a finding.
func (h *Hold) Note(now int64, f Finding) {
	switch f {
	case Current:
	case Behind:
		h.behindUntilNS = now + int64(h.BehindFor)
	case Empty:
		h.emptySinceNS = now
	}
}

// Refuses reports whether an op of a rule that fails closed must not be answered:
// while the shard is behind, and where it is empty until the op's window has passed.
func (h *Hold) Refuses(now int64, op *store.Op) bool {
	return op.Closed && (now < h.behindUntilNS || h.Stale(now, op))
}

// Stale reports whether a bucket that is missing cannot be taken for a full one: it
// may have been spent in the time in which it fills.
func (h *Hold) Stale(now int64, op *store.Op) bool {
	return h.emptySinceNS > 0 && now-h.emptySinceNS < int64(min(h.EmptyFor, fills(op.Limit)))
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

// Held reports whether anything was ever found lost: most shards never are, and then
// nothing else needs to be asked.
func (h *Hold) Held() bool { return h.behindUntilNS > 0 || h.emptySinceNS > 0 }
