package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/store"
)

const (
	// maxUndos bounds the undos under way. More stay spent: a customer then has a
	// few tokens less, never more.
	maxUndos = 1024
	// undoDeadline bounds one undo, and so what Close waits for them.
	undoDeadline = time.Second
)

// undoer gives back what checks spent in one slot before another denied them.
// Undos go side by side, as the checks do that cause them: sent one after the
// other they fall behind, and who floods one bucket with denied checks would
// empty the buckets of others that were asked before it.
type undoer struct {
	mu      sync.RWMutex // guards stopped against a start during stop
	stopped bool
	places  chan struct{} // one taken by each undo under way
	group   sync.WaitGroup
	lost    atomic.Int64
}

// start sends ops, which undo, and returns; with too many under way they stay
// spent.
func (u *undoer) start(s *Store, ops []store.Op) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if u.stopped {
		u.lose(len(ops))
		return
	}
	select {
	case u.places <- struct{}{}:
		u.group.Go(func() {
			defer func() { <-u.places }()
			u.send(s, ops)
		})
	default:
		u.lose(len(ops))
	}
}

func (u *undoer) send(s *Store, ops []store.Op) {
	// An undo that failed stays undone: its call may have run.
	if _, err := s.ask(context.Background(), ops, time.Now().Add(undoDeadline)); err != nil {
		u.lose(len(ops))
		s.conf.Log.Warn("a denied request stays spent in part", "rule", ops[0].Bucket.Rule, "err", err)
	}
}

func (u *undoer) lose(ops int) { u.lost.Add(int64(ops)) }

// stop waits for the undos under way and starts no more.
func (u *undoer) stop() {
	u.mu.Lock()
	u.stopped = true
	u.mu.Unlock()
	u.group.Wait()
}

// LostUndos returns how many buckets stayed spent for a request that another
// slot denied, since their undo could not be delivered.
func (s *Store) LostUndos() int64 { return s.undoer.lost.Load() }
