// Package calls counts the calls of a store that is not in this process, and tells
// each to those who watch. A [Calls] is safe for concurrent use, and its zero value
// is ready.
package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/store"
)

// Call is one call of the store.
type Call struct {
	// Shard is the primary that was asked, where that is known; "" otherwise.
	Shard string
	// Took is how long the call took, by the clock of the pod.
	Took time.Duration
	// Err is why there was no answer; nil for an answer.
	Err error
}

// Figures are the calls so far.
type Figures struct {
	Calls int64
	// Timeouts, Unavailable and Refused are the calls that failed, by kind.
	Timeouts, Unavailable, Refused int64
	// ClockOffset is the store's clock less the pod's, as of the last answer that told
	// it; ClockKnown says whether there was one.
	ClockOffset time.Duration
	ClockKnown  bool
}

// Calls counts calls.
type Calls struct {
	calls, timeouts, unavailable, refused atomic.Int64
	// offsetNS is the store's clock less ours, and known whether it is.
	offsetNS atomic.Int64
	known    atomic.Bool

	mu       sync.Mutex // held while a watcher is added
	watchers atomic.Pointer[[]func(Call)]
}

// Watch has f called after each call, by the goroutine that made it.
func (c *Calls) Watch(f func(Call)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []func(Call)
	if last := c.watchers.Load(); last != nil {
		list = slices.Clone(*last)
	}
	list = append(list, f)
	c.watchers.Store(&list)
}

// Of returns s with its calls counted; now is the pod's clock.
func (c *Calls) Of(s store.Store, now func() time.Time) store.Store {
	return &counted{store: s, now: now, calls: c}
}

// Figures returns the calls so far.
func (c *Calls) Figures() Figures {
	return Figures{
		Calls: c.calls.Load(), Timeouts: c.timeouts.Load(), Unavailable: c.unavailable.Load(), Refused: c.refused.Load(),
		ClockOffset: time.Duration(c.offsetNS.Load()), ClockKnown: c.known.Load(),
	}
}

// counted is a store whose calls are counted.
type counted struct {
	store store.Store
	now   func() time.Time
	calls *Calls
}

// Take implements [store.Store].
func (s *counted) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	before := s.now()
	grants, err := s.store.Take(ctx, ops)
	s.calls.count(before, s.now(), grants, err)
	return grants, err
}

// count counts a call made between two times of the pod's clock.
func (c *Calls) count(before, after time.Time, grants []store.Grant, err error) {
	call := Call{Took: max(0, after.Sub(before)), Err: err} // the clock may have stepped back
	c.calls.Add(1)
	if err != nil {
		call.Shard = c.failed(err)
	}
	for i := range grants {
		if at := grants[i].NowMS; at > 0 {
			// It was read somewhere on the way: in the middle, for want of better.
			ours := before.Add(call.Took / 2)
			c.offsetNS.Store(int64(time.UnixMilli(at).Sub(ours)))
			c.known.Store(true)
			break
		}
	}
	if list := c.watchers.Load(); list != nil {
		for _, f := range *list {
			f(call)
		}
	}
}

// failed counts a call without an answer, and returns the shard that gave none.
func (c *Calls) failed(err error) (shard string) {
	kind := store.Unavailable // for an error that is not the store's own
	if e, ok := errors.AsType[*store.StoreError](err); ok {
		kind, shard = e.Kind, e.Shard
	}
	switch kind {
	case store.Timeout:
		c.timeouts.Add(1)
	case store.Refused:
		c.refused.Add(1)
	case store.Unavailable:
		c.unavailable.Add(1)
	}
	return shard
}
