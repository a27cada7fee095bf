package redisstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// TestEndedConnection: what a connection that ends costs are the calls under way, and not
// every call until the next attempt to connect: those would open the breaker.
func TestEndedConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	server.AddUser(t, "tally", "secret", documented(t).all...)
	conf := as("redis://" + server.Addr)
	conf.NoBeats = true
	s := open(t, conf)
	var work sync.WaitGroup
	var answered atomic.Int64
	var done, late atomic.Bool
	const callers = 4
	for range callers {
		work.Go(func() {
			for !done.Load() {
				if _, err := try(s, take("r", "k", slow(8))); err == nil {
					answered.Add(1)
				} else if notConnected(err) {
					late.Store(true)
				}
			}
		})
	}
	const kills = 100
	for range kills {
		server.MustDo(t, "CLIENT", "KILL", "USER", "tally")
		// Half of the last 20 failing would open it as well.
		next := answered.Load() + 50
		eventually(t, 5*time.Second, "answers after a connection ended", func() bool { return answered.Load() >= next || t.Failed() })
	}
	done.Store(true)
	work.Wait()
	if late.Load() {
		t.Skip("NOT JUDGED: a connection took this machine too long, which is a failure of its own")
	}
	if h := s.Health().Shards[0]; h.Failures > callers*kills || h.Opened > 0 {
		t.Errorf("%d failures of %d ended connections, the breaker opened %d times", h.Failures, kills, h.Opened)
	}
}
