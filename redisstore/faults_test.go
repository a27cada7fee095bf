package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// TestFLT04_lostAnswer: a call whose answer was lost has run, and is not sent
// again.
func TestFLT04_lostAnswer(t *testing.T) {
	server := redistest.Standalone(t)
	direct := open(t, patient("redis://"+server.Addr))
	proxy := redistest.NewProxy(t, server.Addr)
	s := open(t, patient("redis://"+proxy.Addr))
	op, other := take("rule", "lost", slow(20)), take("rule", "other", slow(20))
	must(t, s, other) // the server knows the script

	proxy.LoseReplies(true)
	_, err := s.Take(context.Background(), []store.Op{op})
	var e *store.StoreError
	if !errors.As(err, &e) || !e.Sent || e.Kind == store.Refused {
		t.Errorf("err = %v, want one that says that the call was sent", err)
	}
	proxy.Pass(t)
	eventually(t, 5*time.Second, "an answer on a new connection", func() bool {
		_, err := s.Take(context.Background(), []store.Op{other})
		return err == nil
	})
	if got := left(t, direct, op); got != 19 {
		t.Errorf("%d left, want 19: spent once", got)
	}
}

// TestFLT11_stall: a short stall under short deadlines makes no new connections,
// and is over when it is over.
func TestFLT11_stall(t *testing.T) {
	server := redistest.Standalone(t, "--enable-debug-command", "yes")
	var pods [3]*redisstore.Store
	for i := range pods {
		conf := patient("redis://" + server.Addr)
		// Far above what a busy machine misses by itself, and below the stall.
		conf.Deadline = 100 * time.Millisecond
		pods[i] = open(t, conf)
	}
	op := take("rule", "stall", slow(8000))
	before := server.Connections(t)
	// Calls and those of them without an answer, before the stall and after it.
	var all, late [2]atomic.Int64
	var begun atomic.Bool
	var stalled atomic.Int64 // its end, in unix ms
	var group sync.WaitGroup
	stop := make(chan struct{})
	for i := range 3 * 8 {
		group.Go(func() {
			for tick := time.NewTicker(16 * time.Millisecond); ; <-tick.C { // 500/s a pod
				select {
				case <-stop:
					tick.Stop()
					return
				default:
				}
				_, err := pods[i%3].Take(context.Background(), []store.Op{op})
				part := 0
				if end := stalled.Load(); end > 0 && time.Now().UnixMilli() > end+1100 {
					part = 1
				} else if begun.Load() {
					continue
				}
				all[part].Add(1)
				if err != nil {
					late[part].Add(1)
				}
			}
		})
	}
	time.Sleep(time.Second)
	begun.Store(true)
	server.MustDo(t, "DEBUG", "SLEEP", "0.4")
	stalled.Store(time.Now().UnixMilli())
	time.Sleep(2 * time.Second)
	close(stop)
	group.Wait()
	if made := server.Connections(t) - before; made > int64(len(pods)) {
		t.Errorf("%d new connections, want at most one a pod", made)
	}
	// A busy machine may be late by itself, now and then, as it was before.
	part := func(i int) float64 { return float64(late[i].Load()) / float64(max(1, all[i].Load())) }
	if before, after := part(0), part(1); all[1].Load() == 0 || after > 0.05+2*before {
		t.Errorf("%.1f %% of %d calls without an answer after the stall, %.1f %% before it", 100*after, all[1].Load(), 100*before)
	}
}
