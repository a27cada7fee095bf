// Package sampled writes a line of log at most once a second: a store that is away
// fails every check, and the log must not grow with the traffic.
package sampled

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Log is a log of at most one line a second. Create it with [New]; it is safe for
// concurrent use.
type Log struct {
	to     *slog.Logger
	nextMS atomic.Int64 // the earliest time of the next line
	// unlogged counts what was not written since the last line.
	unlogged atomic.Int64
}

// New returns a log that writes to to.
func New(to *slog.Logger) *Log { return &Log{to: to} }

// StoreAway warns that the store did not answer a check, why, and how many such
// warnings were not written since the last line; nothing where that is less than a
// second ago.
func (l *Log) StoreAway(now time.Time, err error) {
	next, nowMS := l.nextMS.Load(), now.UnixMilli()
	if nowMS < next || !l.nextMS.CompareAndSwap(next, nowMS+1000) {
		l.unlogged.Add(1)
		return
	}
	l.to.Warn("the store did not answer a check", "error", err, "unlogged", l.unlogged.Swap(0))
}
