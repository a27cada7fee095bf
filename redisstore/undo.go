package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/store"
)

const (
	// maxUndos bounds the undos that wait. More stay spent: a customer then has a
	// few tokens less, never more.
	maxUndos = 1024
	// undoDeadline bounds one undo; nobody waits for it.
	undoDeadline = 100 * time.Millisecond
	// undoDrain bounds what Close waits for undos still queued.
	undoDrain = time.Second
)

// undoer gives back, one after the other, what checks spent in one slot before
// another denied them.
type undoer struct {
	mu      sync.RWMutex // guards stopped against a send on a closed channel
	stopped bool
	waiting chan []store.Op
	done    chan struct{}
	lost    atomic.Int64
	drainBy atomic.Int64 // unix ns after which nothing more is sent; 0 while running
}

func (u *undoer) start(s *Store) {
	u.waiting = make(chan []store.Op, maxUndos)
	u.done = make(chan struct{})
	go func() {
		defer close(u.done)
		for ops := range u.waiting {
			if by := u.drainBy.Load(); by != 0 && time.Now().UnixNano() > by {
				u.lose(len(ops))
				continue
			}
			// An undo that failed stays undone: its call may have run.
			if _, err := s.ask(context.Background(), ops, time.Now().Add(undoDeadline)); err != nil {
				u.lose(len(ops))
				s.conf.Log.Warn("a denied request stays spent in part", "rule", ops[0].Bucket.Rule, "err", err)
			}
		}
	}()
}

// queue takes ops to undo; with too many waiting they stay spent.
func (u *undoer) queue(ops []store.Op) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.stopped {
		u.lose(len(ops))
		return
	}
	select {
	case u.waiting <- ops:
	default:
		u.lose(len(ops))
	}
}

func (u *undoer) lose(ops int) { u.lost.Add(int64(ops)) }

// stop sends what is queued, for at most undoDrain, and ends the goroutine.
func (u *undoer) stop() {
	u.mu.Lock()
	u.stopped = true
	u.mu.Unlock()
	u.drainBy.Store(time.Now().Add(undoDrain).UnixNano())
	close(u.waiting)
	<-u.done
}

// LostUndos returns how many buckets stayed spent for a request that another
// slot denied, since their undo could not be delivered.
func (s *Store) LostUndos() int64 { return s.undoer.lost.Load() }
