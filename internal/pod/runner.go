package pod

import (
	"context"
	"errors"
	"fmt"
	mathbits "math/bits"
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
	own      *store.MemoryStore // of rules that this pod counts alone
	patience time.Duration
	epoch    time.Time

	cancel  context.CancelFunc
	context context.Context //nolint:containedctx // the life of calls, which are nobody's own
	work    sync.WaitGroup  // the ticking
	flights sync.WaitGroup  // calls under way

	stopTicks context.CancelFunc
	closing   sync.Once

	mu     sync.Mutex // guards closed against new work
	closed bool
}

// releaseFor bounds what Close waits for leases to be given back.
const releaseFor = 2 * time.Second

// releasing bounds the calls that give leases back at one time.
const releasing = 64

// errPatience is what a check gets that has waited for long enough.
var errPatience = errors.New("no answer in time")

// errClosed is what a check gets that asks for a call after the end.
var errClosed = errors.New("the pod is closed")

// NewRunner starts a pod in front of a store. A check waits for at most patience.
func NewRunner(s Asker, entries int, patience time.Duration) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Runner{store: s, own: store.NewMemoryStore(store.MemoryConfig{MaxBuckets: entries}), patience: patience, epoch: time.Now(), cancel: cancel, context: ctx}
	r.pod = New(r.now(), entries)
	ticks, stop := context.WithCancel(ctx)
	r.stopTicks = stop
	r.work.Go(func() { r.tick(ticks) })
	return r
}

// Pod returns the pod itself.
func (r *Runner) Pod() *Pod { return r.pod }

// now is the pod's monotonic clock: it stands while nothing else does, and a pod
// that was suspended finds time passed.
func (r *Runner) now() int64 { return int64(time.Since(r.epoch)) }

// AppendTake answers takes: locally where the terms of their rules let the pod,
// else from the store.
func (r *Runner) AppendTake(ctx context.Context, dst []store.Grant, ops []store.Op, terms []Terms) ([]store.Grant, error) {
	for i := range terms {
		if terms[i].Counting == Local {
			return r.takeLocal(ctx, dst, ops, terms)
		}
	}
	start := len(dst)
	dst, d := r.pod.Local(r.now(), dst, ops, terms)
	if d.TopUp != nil {
		r.run(d.TopUp)
	}
	if d.Outcome != Ask {
		return dst, nil
	}
	grants := dst[start:]
	asked, err := r.ask(ctx, pick(ops, d.Lacking), pickTerms(terms, d.Lacking), direct(terms, ops, d.Lacking))
	allowed := err == nil
	for i, j := 0, 0; i < len(ops) && err == nil; i++ {
		if d.Lacking&(1<<i) != 0 {
			grants[i] = asked[j]
			j++
		}
		allowed = allowed && (grants[i].OK || ops[i].Shadow)
	}
	if !allowed {
		r.pod.Refund(r.now(), ops, terms, d.Lacking)
	}
	return dst, err
}

// takeLocal decides the ops that this pod counts alone first, and undoes them if
// the others deny.
func (r *Runner) takeLocal(ctx context.Context, dst []store.Grant, ops []store.Op, terms []Terms) ([]store.Grant, error) {
	mine := locals(terms)
	here, rest := pick(ops, mine), pickTerms(terms, ^mine)
	own, err := r.own.AppendTake(ctx, nil, here)
	if err != nil {
		return dst, err
	}
	others := pick(ops, ^mine)
	asked := make([]store.Grant, 0, len(others))
	switch {
	case !spends(here, own):
		asked = skipped(others)
	case len(others) > 0:
		asked, err = r.AppendTake(ctx, asked, others, rest)
		if err != nil || !spends(others, asked) {
			r.undoOwn(ctx, here, own)
		}
	}
	if err != nil {
		return dst, err
	}
	return merge(dst, ops, mine, own, asked), nil
}

// undoOwn gives back what the pod's own count spent in vain.
func (r *Runner) undoOwn(ctx context.Context, ops []store.Op, grants []store.Grant) {
	undo := make([]store.Op, 0, len(ops))
	for i := range ops {
		if rc := grants[i].Receipt; rc.Cost > 0 {
			undo = append(undo, store.Op{Bucket: ops[i].Bucket, Limit: ops[i].Limit, How: store.Undo, NextWindow: ops[i].NextWindow, Receipt: rc})
			grants[i].Remaining += rc.Cost
		}
	}
	_, _ = r.own.AppendTake(ctx, nil, undo)
}

// AppendAway answers takes that AppendTake has failed with err, from what the pod
// counts itself. closed is the place of the op whose rule refuses to pass without the
// store, or NoneClosed; then there are no grants.
func (r *Runner) AppendAway(dst []store.Grant, ops []store.Op, terms []Terms, rules []Instead, err error) (grants []store.Grant, closed int) {
	mine := locals(terms)
	if mine == 0 {
		return r.pod.Away(r.now(), dst, ops, terms, rules, err)
	}
	// What this pod counts alone needs no store: it is asked as ever, and undone where
	// the others do not pass.
	here, others := pick(ops, mine), pick(ops, ^mine)
	own, ownErr := r.own.AppendTake(context.Background(), nil, here)
	if ownErr != nil {
		own = full(here)
	}
	rest := make([]Instead, 0, len(others))
	for i := range ops {
		if mine&(1<<i) == 0 {
			rest = append(rest, rules[i])
		}
	}
	answers := skipped(others)
	if spends(here, own) {
		answers, closed = r.pod.Away(r.now(), nil, others, pickTerms(terms, ^mine), rest, err)
		if closed != NoneClosed || !spends(others, answers) {
			r.undoOwn(context.Background(), here, own)
		}
		if closed != NoneClosed {
			return dst, place(^mine, closed)
		}
	}
	return merge(dst, ops, mine, own, answers), NoneClosed
}

// full are the grants of ops that a full table has no room for: no, for now.
func full(ops []store.Op) []store.Grant {
	list := make([]store.Grant, len(ops))
	for i := range ops {
		list[i] = store.Grant{Limit: ops[i].Limit, RetryMS: 1000}
	}
	return list
}

// locals has a bit for each op that this pod counts alone.
func locals(terms []Terms) (bits uint32) {
	for i := range terms {
		if terms[i].Counting == Local {
			bits |= 1 << i
		}
	}
	return bits
}

// place returns the place of the nth bit.
func place(bits uint32, n int) int {
	for ; n > 0; n-- {
		bits &= bits - 1
	}
	return mathbits.TrailingZeros32(bits)
}

// skipped are the grants of ops that nobody was asked for.
func skipped(ops []store.Op) []store.Grant {
	list := make([]store.Grant, len(ops))
	for i := range ops {
		list[i] = store.Grant{Skipped: true, Limit: ops[i].Limit}
	}
	return list
}

// merge appends the grants of all ops in order: of those whose bits are set from
// own, of the others from asked.
func merge(dst []store.Grant, ops []store.Op, mine uint32, own, asked []store.Grant) []store.Grant {
	for i, a, b := 0, 0, 0; i < len(ops); i++ {
		if mine&(1<<i) != 0 {
			own[a].Source = store.FromLocal
			dst = append(dst, own[a])
			a++
		} else {
			dst = append(dst, asked[b])
			b++
		}
	}
	return dst
}

// direct reports whether a check makes its own call rather than join others:
// rules that are exact or only report have nothing to share.
func direct(terms []Terms, ops []store.Op, lacking uint32) bool {
	for i := range ops {
		if lacking&(1<<i) == 0 || ops[i].How == store.Add {
			continue
		}
		if ops[i].Want > 0 || terms != nil && terms[i].Counting == Async {
			return false
		}
	}
	return true
}

// ask gets the store's answer, by a call of this check's own or by one it joins.
func (r *Runner) ask(ctx context.Context, ops []store.Op, terms []Terms, direct bool) ([]store.Grant, error) {
	if direct {
		return r.askDirect(ctx, ops)
	}
	w := &Waiter{Ops: ops, Terms: terms, Signal: make(chan struct{}, 1)}
	if c := r.pod.Join(r.now(), w); c != nil {
		r.run(c)
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

// Direct asks the store itself, whatever the pod has: of reservations.
func (r *Runner) Direct(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	return r.askDirect(ctx, ops)
}

// askDirect makes a call of a check's own, after the store has been told what
// fallbacks admitted of the same buckets: a look and a charge, where there is some.
func (r *Runner) askDirect(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if c := r.pod.Tell(r.now(), ops); c != nil {
		within, cancel := context.WithTimeout(ctx, r.patience) // for all of it together
		defer cancel()
		ctx = within
		for told := 1; c != nil; told++ {
			grants, err := r.store.Take(ctx, c.Ops)
			err = Short(c.Ops, grants, err)
			r.pod.Reply(r.now(), c, grants, err)
			if err != nil {
				return nil, unsent(err)
			}
			if c = nil; told < 2 { // what Tell returns must be made, or it is never told
				c = r.pod.Tell(r.now(), ops)
			}
		}
	}
	grants, err := r.store.Take(ctx, ops)
	if err = Short(ops, grants, err); err == nil {
		r.pod.Answered(r.now(), ops, grants)
	}
	return grants, err
}

// Short returns err, and of a store that broke its contract the error that it should
// have returned.
func Short(ops []store.Op, grants []store.Grant, err error) error {
	if err == nil && len(grants) != len(ops) {
		err = broken(len(grants), len(ops))
	}
	return err
}

// broken is apart so that Short, which each check goes through, is inlined.
func broken(grants, ops int) error {
	return &store.StoreError{Kind: store.Refused, Sent: true, Err: fmt.Errorf("%d grants for %d ops", grants, ops)}
}

// run makes a call and those that follow from it. After the end none is made: then
// what it would have told stays with the pod, which tells it last.
func (r *Runner) run(c *Call) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.flights.Go(func() { r.fly(c) })
	}
	r.mu.Unlock()
	for next := c; closed && next != nil; {
		next = r.land(next, nil, &store.StoreError{Kind: store.Unavailable, Err: errClosed})
	}
}

func (r *Runner) fly(c *Call) {
	for c != nil {
		grants, err := r.store.Take(r.context, c.Ops)
		c = r.land(c, grants, Short(c.Ops, grants, err))
	}
}

// land wakes those whom an answer is for, and returns the call to be made next.
func (r *Runner) land(c *Call, grants []store.Grant, err error) (next *Call) {
	done, next := r.pod.Reply(r.now(), c, grants, err)
	for _, w := range done {
		w.Signal <- struct{}{}
	}
	return next
}

// tick gives back what nobody spends, until ctx ends.
func (r *Runner) tick(ctx context.Context) {
	every := time.NewTicker(TickEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		for _, c := range r.pod.Tick(r.now()) {
			r.run(c)
		}
	}
}

// release gives all leases back, several at a time.
func (r *Runner) release(ctx context.Context) {
	var wg sync.WaitGroup
	room := make(chan struct{}, releasing)
	for _, c := range r.pod.Release(r.now()) {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			// What cannot be given back comes back by itself when the lease has ended.
			_, _ = r.store.Take(ctx, c.Ops)
			<-room
		})
	}
	wg.Wait()
}

// Close gives all leases back, for at most two seconds, and ends. The store stays
// open.
func (r *Runner) Close() error {
	r.closing.Do(r.end)
	return nil
}

func (r *Runner) end() {
	// First the ticks, whose calls are out of the pod and would not be made.
	r.stopTicks()
	r.work.Wait()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), releaseFor)
	defer cancel()
	// Calls under way may bring leases still. Each ends by the store's deadline, or
	// by ours.
	overdue := context.AfterFunc(ctx, r.cancel)
	defer overdue()
	r.flights.Wait()
	r.release(ctx)
	r.cancel()
}
