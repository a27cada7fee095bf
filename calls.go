package tallygate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/store"
)

// StoreCall is one call of a store that is not in this process.
type StoreCall struct {
	// Shard is the primary that was asked, where that is known; "" otherwise.
	Shard string
	// Took is how long the call took, in the time of Config.Now.
	Took time.Duration
	// Err is why there was no answer; nil for an answer, a denial included.
	Err error
}

// OnStoreCall has f called after each call of a store that is not in this process,
// by the goroutine that made the call and is needed for the answer: f must be quick
// and safe for concurrent use. More than one f may be given; none is forgotten.
func (l *Limiter) OnStoreCall(f func(StoreCall)) { l.calls.watch(f) }

// storeCalls counts calls and tells those who want to know.
type storeCalls struct {
	calls, timeouts, unavailable, refused atomic.Int64
	// offsetNS is the store's clock less ours, and known whether it is.
	offsetNS atomic.Int64
	known    atomic.Bool

	mu       sync.Mutex // held while a watcher is added
	watchers atomic.Pointer[[]func(StoreCall)]
}

func (c *storeCalls) watch(f func(StoreCall)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []func(StoreCall)
	if last := c.watchers.Load(); last != nil {
		list = slices.Clone(*last)
	}
	list = append(list, f)
	c.watchers.Store(&list)
}

// observed is a store whose calls are counted.
type observed struct {
	store store.Store
	now   func() time.Time
	calls *storeCalls
}

// Take implements store.Store.
func (o *observed) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	before := o.now()
	grants, err := o.store.Take(ctx, ops)
	o.calls.count(before, o.now(), grants, err)
	return grants, err
}

// count counts a call made between two times of the pod's clock.
func (c *storeCalls) count(before, after time.Time, grants []store.Grant, err error) {
	call := StoreCall{Took: max(0, after.Sub(before)), Err: err}
	c.calls.Add(1)
	if err != nil {
		kind := store.Unavailable // for an error that is not the store's own
		if e, ok := errors.AsType[*store.StoreError](err); ok {
			kind, call.Shard = e.Kind, e.Shard
		}
		switch kind {
		case store.Timeout:
			c.timeouts.Add(1)
		case store.Refused:
			c.refused.Add(1)
		case store.Unavailable:
			c.unavailable.Add(1)
		}
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

func (c *storeCalls) stats(s *StoreStats) {
	s.Calls = c.calls.Load()
	s.Timeouts, s.Unavailable, s.Refused = c.timeouts.Load(), c.unavailable.Load(), c.refused.Load()
	s.ClockOffset, s.ClockKnown = time.Duration(c.offsetNS.Load()), c.known.Load()
}
