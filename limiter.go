package tallygate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/calls"
	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/moment"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/reservation"
	"github.com/tallygate/tallygate/internal/sampled"
	"github.com/tallygate/tallygate/store"
)

// Limiter decides checks. Create it with [New]; it is safe for concurrent use.
type Limiter struct {
	rules   Snapshots
	store   front
	known   knower
	behind  store.Store // the store itself, behind what the pod holds
	now     func() time.Time
	scratch sync.Pool
	closed  atomic.Bool
	log     *sampled.Log
	meter   *meter
	calls   calls.Calls
	// table is the store's table of buckets; nil unless it is in this process.
	table memoryTable
	// health is the store's; nil where it knows nothing of it.
	health store.Healther
	// pod answers from leases and remembered denials, in front of a store that is
	// not in this process; nil without one.
	pod *pod.Runner
	// place is where the pod stands among all pods, 0 to 99: candidates in canary on
	// so many percent of them are enforced where it is below that.
	place    int
	deadline time.Duration
	tally    *candidate.Tally
	showKey  func(domain, key string) string
	sealer   *reservation.Sealer
}

// New returns a limiter.
func New(config Config) (*Limiter, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	sealer, err := reservation.NewSealer(config.ReservationSecret)
	if err != nil {
		return nil, badRequest("/ReservationSecret", "%v", err)
	}
	l := &Limiter{
		rules: config.Rules,
		now:   config.Now,
		log:   sampled.New(config.Log),
		meter: newMeter(config.Rules.Snapshot(), config.Now),

		place:    candidate.PlaceOf(config.Pod),
		deadline: config.Deadline,
		tally:    candidate.NewTally(),
		showKey:  config.ShowKey,
		sealer:   sealer,
	}
	l.scratch.New = func() any {
		return &scratch{stripe: l.meter.counters.Next(), known: l.known, clock: moment.New(l.now)}
	}
	l.table, _ = config.Store.(memoryTable)
	l.health, _ = config.Store.(store.Healther)
	if memory, ok := config.Store.(store.Appender); ok {
		near := pod.NewInProcess(memory)
		l.store, l.known, l.behind = near, near, config.Store
		return l, nil
	}
	l.behind = l.calls.Of(config.Store, config.Now)
	l.pod = pod.NewRunner(l.behind, config.LocalEntries, config.Deadline)
	l.store, l.known = l.pod, l.pod
	return l, nil
}

// front is what stands in front of the store: a pod, or next to nothing where the
// store is in this process. It has a method for each thing that a check asks.
type front interface {
	AppendTake(ctx context.Context, dst []store.Grant, ops []store.Op, terms []pod.Terms) ([]store.Grant, error)
	// AppendAway answers in place of a store that did not. closed is the op that is
	// refused without an answer, or pod.NoneClosed.
	AppendAway(dst []store.Grant, ops []store.Op, terms []pod.Terms, rules []pod.Instead, err error) (grants []store.Grant, closed int)
	GiveBack(ctx context.Context, dst []store.Grant, ops []store.Op, terms []pod.Terms) ([]store.Grant, error)
}

// SetPods says how many pods ask the same store, this one included: leases are
// sized by it. Until then it is 1.
func (l *Limiter) SetPods(n int64) {
	if l.pod != nil {
		l.pod.Pod().SetPods(n)
	}
}

// Check decides check and returns the verdict. An error is an [Error]: there is
// no verdict, and the request must not pass unless the caller decides otherwise.
// How long it may take is the store's deadline, or ctx's if that is earlier.
func (l *Limiter) Check(ctx context.Context, check Check) (Verdict, error) {
	var v Verdict
	err := l.Decide(ctx, check, &v)
	return v, err
}

// Close ends the limiter's work: later checks get [ErrClosed], those under way
// finish, and leases go back to the store, for which it waits up to two seconds.
// It may be called more than once. What Config named stays open.
func (l *Limiter) Close() error {
	l.closed.Store(true)
	if l.pod != nil {
		return l.pod.Close()
	}
	return nil
}

// usable says why no check can begin.
func (l *Limiter) usable(ctx context.Context) error {
	if l.closed.Load() {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return &Error{Code: CodeCanceled, Message: "the check was canceled", Err: context.Cause(ctx)}
	}
	return nil
}
