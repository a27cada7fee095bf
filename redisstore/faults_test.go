package redisstore_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// wire is a connection to a server that can lose what the server says: while
// deaf, the first words of it end the connection instead.
type wire struct {
	net.Listener
	to   string
	deaf atomic.Bool
	// mangle, where set, changes what the server says.
	mangle func([]byte) []byte
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startWire(t, &wire{Listener: listener, to: to})
}

// startWire serves until the test ends.
func startWire(t *testing.T, w *wire) *wire {
	t.Helper()
	var group sync.WaitGroup
	group.Go(func() {
		for {
			client, err := w.Accept()
			if err != nil {
				return
			}
			group.Go(func() { w.serve(client) })
		}
	})
	t.Cleanup(func() { _ = w.Close(); group.Wait() })
	return w
}

// serve copies both ways until one side hangs up or an answer is lost.
func (w *wire) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil || w.deaf.Load() {
			return
		}
		said := buf[:n]
		if w.mangle != nil {
			said = w.mangle(said)
		}
		if _, err := client.Write(said); err != nil {
			return
		}
	}
}

// TestFLT04_lostAnswer: a call whose answer was lost has run, and is not sent
// again.
func TestFLT04_lostAnswer(t *testing.T) {
	server := redistest.Standalone(t)
	direct := open(t, patient("redis://"+server.Addr))
	w := newWire(t, server.Addr)
	s := open(t, patient("redis://"+w.Addr().String()))
	op, other := take("rule", "lost", slow(20)), take("rule", "other", slow(20))
	must(t, s, other) // the server knows the script

	w.deaf.Store(true)
	_, err := s.Take(context.Background(), []store.Op{op})
	var e *store.StoreError
	if !errors.As(err, &e) || !e.Sent || e.Kind == store.Refused {
		t.Errorf("err = %v, want one that says that the call was sent", err)
	}
	w.deaf.Store(false)
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
		conf.Deadline = 25 * time.Millisecond
		pods[i] = open(t, conf)
	}
	received := func() int {
		stats, err := server.Info("stats")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(stats["total_connections_received"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	op := take("rule", "stall", slow(8000))
	before := received()
	var late, answered atomic.Int64 // the answers after the stall
	var stalled atomic.Int64        // its end, in unix ms
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
				if end := stalled.Load(); end > 0 && time.Now().UnixMilli() > end+1100 {
					answered.Add(1)
					if err != nil {
						late.Add(1)
					}
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	server.MustDo(t, "DEBUG", "SLEEP", "0.15")
	stalled.Store(time.Now().UnixMilli())
	time.Sleep(2 * time.Second)
	close(stop)
	group.Wait()
	if made := received() - before; made > len(pods) {
		t.Errorf("%d new connections, want at most one a pod", made)
	}
	// A busy machine may be late by itself, now and then.
	if n, all := late.Load(), answered.Load(); all == 0 || n > all/20 {
		t.Errorf("%d of %d calls without an answer after the stall", n, all)
	}
}
