// Package loop owns one goroutine: what starts it can end it, and both may be called
// again.
package loop

import (
	"context"
	"sync"
	"time"
)

// Loop is one goroutine and its end. The zero value is ready; it is safe for
// concurrent use.
//
//	Start (at most one goroutine) ─► Close
type Loop struct {
	mu     sync.Mutex // guards what follows
	closed bool
	cancel context.CancelFunc
	done   chan struct{}
}

// Start runs run in a goroutine until it returns; it must when its ctx ends. Started
// twice or after Close, it does nothing.
func (l *Loop) Start(run func(ctx context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.cancel, l.done = cancel, done
	go func() {
		defer close(done)
		run(ctx)
	}()
}

// Close ends run and returns when it has. Closed twice, it does nothing.
func (l *Loop) Close() {
	l.mu.Lock()
	l.closed = true
	cancel, done := l.cancel, l.done
	l.mu.Unlock()
	if done != nil {
		cancel()
		<-done
	}
}

// Closed reports whether Close was called.
func (l *Loop) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Pause returns after d, or once ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
