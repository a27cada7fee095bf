// Package sampled keeps lines of log from growing with the traffic: what goes wrong may
// go wrong at every request.
package sampled

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Gate lets one line through and then none for a while. The zero value is open; it is
// safe for concurrent use.
type Gate struct {
	nextMS atomic.Int64 // the earliest time of the next line, in ms since 1970
	// unlogged counts what was not let through since the last line.
	unlogged atomic.Int64
}

// Pass reports whether a line may be written now, which it may again after every, and
// how many were not since the last one.
func (g *Gate) Pass(now time.Time, every time.Duration) (unlogged int64, ok bool) {
	next, nowMS := g.nextMS.Load(), now.UnixMilli()
	if nowMS < next || !g.nextMS.CompareAndSwap(next, nowMS+every.Milliseconds()) {
		g.unlogged.Add(1)
		return 0, false
	}
	return g.unlogged.Swap(0), true
}

// Log is a log of at most one line a second. Create it with [New]; it is safe for
// concurrent use.
type Log struct {
	to   *slog.Logger
	gate Gate
}

// New returns a log that writes to to.
func New(to *slog.Logger) *Log { return &Log{to: to} }

// StoreAway warns that the store did not answer a check, and why.
func (l *Log) StoreAway(now time.Time, err error) {
	l.Warn(now, "the store did not answer a check", "error", err)
}

// Warn writes a warning, and how many were not written since the last one; nothing where
// that is less than a second ago.
func (l *Log) Warn(now time.Time, message string, args ...any) {
	if unlogged, ok := l.gate.Pass(now, time.Second); ok {
		//nolint:sloglint // the message is each caller's own constant
		l.to.Warn(message, append(args, "unlogged", unlogged)...)
	}
}
