package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/tallygate/tallygate/store"
)

const (
	// BeatEvery is how often a pod says that it lives.
	BeatEvery = 2 * time.Second
	// missedBeats is after how many missed beats a pod is gone.
	missedBeats = 3
	// podLife is how long a beat counts.
	podLife = missedBeats * BeatEvery
	// leaveWithin bounds what Close waits for the store.
	leaveWithin = time.Second
	// membersKey is the set of pods: one key, so one slot of a cluster. No bucket
	// has its name, which would have a brace after the first colon.
	membersKey = "tg:pods"
	// maxPodName bounds a pod's name.
	maxPodName = 256
)

// Beat says that a pod lives and returns how many do, this one included, by the
// server's clock; joined says that it was not among them before: it is new, or
// was silent for too long, or the server forgot. Two pods with one name count as
// one. It returns when ctx ends, and then may still have been heard.
func (s *Store) Beat(ctx context.Context, pod string) (live int64, joined bool, err error) {
	var told []int64
	err = s.tell(ctx, pod, func(n *node) error {
		script, life := s.members, strconv.FormatInt(podLife.Milliseconds(), 10)
		reply := n.do("EVALSHA", script.sha, "1", membersKey, pod, life)
		if sort(reply.Error()) == noScript { // a server that never saw it: nothing ran
			reply = n.do("EVAL", script.text, "1", membersKey, pod, life)
		}
		numbers, err := reply.AsIntSlice()
		if err == nil && (len(numbers) != 2 || numbers[0] < 1) {
			err = fmt.Errorf("%w: beat %v", errReply, numbers)
		}
		told = numbers
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return told[0], told[1] == 1, nil
}

// Leave says that a pod ends: it no longer counts, at once.
func (s *Store) Leave(ctx context.Context, pod string) error {
	return s.tell(ctx, pod, func(n *node) error { return n.do("ZREM", membersKey, pod).Error() })
}

// maxTelling bounds the calls of tell under way.
const maxTelling = 128

// tell has send talk to the server that counts the pods, and returns its error or
// leaves it alone when ctx ends: the client goes on past a context while it dials.
func (s *Store) tell(ctx context.Context, pod string, send func(*node) error) error {
	if pod == "" || len(pod) > maxPodName {
		return &store.StoreError{Kind: store.Refused, Err: fmt.Errorf("the name of a pod has 1 to %d bytes, not %d", maxPodName, len(pod))}
	}
	h := s.topology.owner(Slot(membersKey))
	if h == nil {
		return &store.StoreError{Kind: store.Unavailable, Err: errNobody}
	}
	if down := h.down(); down > 0 {
		return &store.StoreError{Kind: store.Unavailable, Shard: h.addr, Down: down, Err: errDown}
	}
	select {
	case <-s.closed:
		return &store.StoreError{Kind: store.Unavailable, Err: errClosed}
	case s.telling <- struct{}{}:
	default:
		return &store.StoreError{Kind: store.Unavailable, Err: errQueue}
	}
	done := make(chan error, 1)
	go func() {
		done <- send(h.slow.node)
		<-s.telling
	}()
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		o := outcome{class: sort(err), err: err}
		o.sent = o.class == lost || o.class == wrong && code(err) == ""
		if o.class != wrong {
			s.topology.kick()
		}
		return o.failure(h.addr)
	case <-ctx.Done():
		return &store.StoreError{Kind: store.Timeout, Sent: true, Shard: h.addr, Err: context.Cause(ctx)}
	}
}

// Beater counts pods. *Store is one.
type Beater interface {
	Beat(ctx context.Context, pod string) (live int64, joined bool, err error)
	Leave(ctx context.Context, pod string) error
}

var _ Beater = (*Store)(nil)

// MembersConfig says who beats, and where.
type MembersConfig struct {
	// Store counts the pods. Required.
	Store Beater
	// Pod is this pod's name, which no other pod may have. Required.
	Pod string
	// OnCount is told how many pods live, this one included, from one goroutine and
	// whenever that changes. Required. tallygate.Limiter.SetPods is meant for it.
	OnCount func(live int64)
	// Every is the time between beats; 0 means BeatEvery. A store forgets a pod
	// after three times BeatEvery, whatever stands here.
	Every time.Duration
	// Log is told when beats begin to fail and when they succeed again. Nil means
	// none.
	Log *slog.Logger
}

// Members keeps one pod among the members of a store. Its goroutine lives from
// Start to Close.
type Members struct {
	conf   MembersConfig
	cancel context.CancelFunc
	done   chan struct{}

	startOnce, closeOnce sync.Once
	left                 error
}

// NewMembers returns a pod's membership, which begins with Start.
func NewMembers(conf MembersConfig) (*Members, error) {
	switch {
	case conf.Store == nil || conf.OnCount == nil:
		return nil, errors.New("redisstore: Store and OnCount are required")
	case conf.Pod == "" || len(conf.Pod) > maxPodName:
		return nil, fmt.Errorf("redisstore: the name of a pod has 1 to %d bytes, not %d", maxPodName, len(conf.Pod))
	case conf.Every < 0:
		return nil, fmt.Errorf("redisstore: Every %s is below 0", conf.Every)
	}
	if conf.Every == 0 {
		conf.Every = BeatEvery
	}
	if conf.Log == nil {
		conf.Log = slog.New(slog.DiscardHandler)
	}
	return &Members{conf: conf, done: make(chan struct{})}, nil
}

// Start beats at once, without waiting for the answer, and from then on. It ends
// with Close, not with ctx. It may be called more than once, but not after Close.
func (m *Members) Start(ctx context.Context) {
	m.startOnce.Do(func() {
		beating, cancel := context.WithCancel(context.WithoutCancel(ctx))
		m.cancel = cancel
		go m.run(beating)
	})
}

// Close ends the beats and says that the pod is gone, for which it waits up to a
// second; where that fails the store finds out by itself. Calling it again
// returns the same.
func (m *Members) Close() error {
	m.closeOnce.Do(func() {
		started := true
		m.startOnce.Do(func() { started = false })
		if !started {
			return
		}
		m.cancel()
		<-m.done
		ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
		defer cancel()
		if err := m.conf.Store.Leave(ctx, m.conf.Pod); err != nil {
			m.left = fmt.Errorf("pod %s leaves: %w", m.conf.Pod, err)
		}
	})
	return m.left
}

// run beats until ctx ends.
func (m *Members) run(ctx context.Context) {
	defer close(m.done)
	every := time.NewTicker(m.conf.Every)
	defer every.Stop()
	var c census
	for {
		m.beat(ctx, &c)
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// beat makes one beat and tells what it changed. It leaves time for the next one.
func (m *Members) beat(ctx context.Context, c *census) {
	within, cancel := context.WithTimeout(ctx, m.conf.Every)
	defer cancel()
	live, joined, err := m.conf.Store.Beat(within, m.conf.Pod)
	if ctx.Err() != nil {
		return
	}
	failing := c.failing
	if c.note(live, joined, err) {
		m.conf.OnCount(c.live)
	}
	switch {
	case c.failing && !failing:
		m.conf.Log.Warn("the store does not count the pods; the last count stays", "pods", c.live, "error", err)
	case failing && !c.failing:
		m.conf.Log.Info("the store counts the pods again", "pods", c.live)
	}
}

// census is what a pod knows of the number of pods.
type census struct {
	live    int64 // as last told; 0 before
	failing bool
	// unsure is how many more beats a lower count is not believed: after an outage,
	// or where the store forgot, the first to beat would find itself alone.
	unsure int
}

// note takes in the answer to a beat and reports whether the count changed.
func (c *census) note(live int64, joined bool, err error) bool {
	c.failing = err != nil
	if err != nil || joined {
		c.unsure = missedBeats
	}
	if err != nil {
		return false // during an outage the last count stays
	}
	lower := live < c.live
	if c.unsure > 0 {
		c.unsure--
		if lower {
			return false
		}
	}
	changed := live != c.live
	c.live = live
	return changed
}
