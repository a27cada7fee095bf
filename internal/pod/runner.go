package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tallygate/tallygate/store"
)

// Asker is the store behind a pod.
type Asker interface {
	Take(ctx context.Context, ops []store.Op) ([]store.Grant, error)
}

// Runner puts goroutines around a Pod: one for each call under way and one that
// ticks. All end with Close.
type Runner struct {
	pod      *Pod
	store    Asker
	patience time.Duration
	epoch    time.Time

	cancel  context.CancelFunc
	context context.Context //nolint:containedctx // the life of calls, which are nobody's own
	work    sync.WaitGroup

	mu     sync.Mutex // guards closed against new work
	closed bool
}

// releaseFor bounds what Close waits for leases to be given back.
const releaseFor = 2 * time.Second

// errPatience is what a check gets that has waited for long enough.
var errPatience = errors.New("no answer in time")

// NewRunner starts a pod in front of a store. A check waits for at most patience.
func NewRunner(s Asker, entries int, patience time.Duration) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Runner{store: s, patience: patience, epoch: time.Now(), cancel: cancel, context: ctx}
	r.pod = New(r.now(), entries)
	r.work.Go(r.tick)
	return r
}

// Pod returns the pod itself.
func (r *Runner) Pod() *Pod { return r.pod }

// now is the pod's monotonic clock: it stands while nothing else does, and a pod
// that was suspended finds time passed.
func (r *Runner) now() int64 { return int64(time.Since(r.epoch)) }

// AppendTake answers takes: locally where the pod may, else from the store.
func (r *Runner) AppendTake(ctx context.Context, dst []store.Grant, ops []store.Op) ([]store.Grant, error) {
	start := len(dst)
	dst, d := r.pod.Local(r.now(), dst, ops)
	if d.TopUp != nil {
		r.run(d.TopUp)
	}
	if d.Outcome != Ask {
		return dst, nil
	}
	grants := dst[start:]
	asked, err := r.ask(ctx, pick(ops, d.Lacking))
	allowed := err == nil
	for i, j := 0, 0; i < len(ops) && err == nil; i++ {
		if d.Lacking&(1<<i) != 0 {
			grants[i] = asked[j]
			j++
		}
		allowed = allowed && (grants[i].OK || ops[i].Shadow)
	}
	if !allowed {
		r.pod.Refund(r.now(), ops, d.Lacking)
	}
	return dst, err
}

// ask gets the store's answer, by a call of this check's own or by one it joins.
func (r *Runner) ask(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if !leases(ops) {
		return r.store.Take(ctx, ops)
	}
	w := &Waiter{Ops: ops, Signal: make(chan struct{}, 1)}
	if c := r.pod.Join(r.now(), w); c != nil && !r.run(c) {
		return nil, &store.StoreError{Kind: store.Unavailable, Err: errors.New("the pod is closed")}
	}
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case <-w.Signal:
		return w.Grants, w.Err
	case <-timer.C:
		return nil, &store.StoreError{Kind: store.Timeout, Sent: r.pod.Leave(w), Err: errPatience}
	case <-ctx.Done():
		return nil, &store.StoreError{Kind: store.Timeout, Sent: r.pod.Leave(w), Err: context.Cause(ctx)}
	}
}

// leases reports whether any of the ops may lease: if none, each check asks.
func leases(ops []store.Op) bool {
	for i := range ops {
		if ops[i].Want > 0 {
			return true
		}
	}
	return false
}

// run makes a call and those that follow from it. It reports whether it may.
func (r *Runner) run(c *Call) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Go(func() { r.fly(c) })
	return true
}

func (r *Runner) fly(c *Call) {
	for c != nil {
		grants, err := r.store.Take(r.context, c.Ops)
		if err == nil && len(grants) != len(c.Ops) {
			err = &store.StoreError{Kind: store.Refused, Sent: true, Err: fmt.Errorf("%d grants for %d ops", len(grants), len(c.Ops))}
		}
		var done []*Waiter
		done, c = r.pod.Reply(r.now(), c, grants, err)
		for _, w := range done {
			w.Signal <- struct{}{}
		}
	}
}

// tick gives back what nobody spends.
func (r *Runner) tick() {
	every := time.NewTicker(TickEvery)
	defer every.Stop()
	for {
		select {
		case <-r.context.Done():
			return
		case <-every.C:
		}
		for _, c := range r.pod.Tick(r.now()) {
			r.run(c)
		}
	}
}

// Close gives all leases back, for at most two seconds, and ends. The store stays
// open.
func (r *Runner) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), releaseFor)
	defer cancel()
	for _, c := range r.pod.Release(r.now()) {
		if ctx.Err() != nil {
			break
		}
		// What cannot be given back comes back by itself when the lease has ended.
		_, _ = r.store.Take(ctx, c.Ops)
	}
	r.cancel()
	r.work.Wait()
	return nil
}
