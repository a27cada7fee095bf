package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/store"
)

// pace calls f every millisecond for so long, each in a goroutine of its own, and
// returns when all are done. under counts the goroutines that are there.
func pace(within time.Duration, under *atomic.Int64, f func()) (n int) {
	var group sync.WaitGroup
	start := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(start) < within {
		// A busy machine skips ticks; what was due is made up for.
		for due := int(time.Since(start) / time.Millisecond); n < due; n++ {
			under.Add(1)
			group.Go(func() {
				defer under.Add(-1)
				f()
			})
		}
		<-tick.C
	}
	group.Wait()
	return n
}

// TestHang: a server that hangs for three seconds under 1,000 checks a second costs
// a bounded number of goroutines and connections, and is asked again afterwards.
func TestHang(t *testing.T) {
	server := redistest.Standalone(t)
	conf := patient("redis://" + server.Addr)
	conf.Deadline, conf.Log = 20*time.Millisecond, slog.New(slog.DiscardHandler)
	s := open(t, conf)
	op := take("rule", "hang", slow(8_000))
	eventually(t, 5*time.Second, "a first answer", func() bool { _, err := try(s, op); return err == nil })
	received := func() int {
		info, err := server.Info("stats")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(info["total_connections_received"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, base := received(), runtime.NumGoroutine()
	var waiting, mostWaiting, most, answered atomic.Int64
	server.Pause(t)
	n := pace(3*time.Second, &waiting, func() {
		if w := waiting.Load(); w > mostWaiting.Load() {
			mostWaiting.Store(w)
		}
		if _, err := try(s, op); err == nil {
			answered.Add(1)
		}
		// What is not a caller of ours is the store's.
		if g := int64(runtime.NumGoroutine()) - waiting.Load(); g > most.Load() {
			most.Store(g)
		}
	})
	server.Resume(t)
	if answered.Load() > 0 {
		t.Errorf("%d of %d were answered by a server that hangs", answered.Load(), n)
	}
	// Two lanes, their workers and the readers of the client are some 10; the rest is
	// room for callers that begin or end between two looks. Unbounded it were 3,000.
	if got := most.Load() - int64(base); got > 200 {
		t.Errorf("%d goroutines more than before, want at most 200", got)
	}
	eventually(t, 10*time.Second, "an answer after the hang", func() bool { _, err := try(s, op); return err == nil })
	if made := received() - before; made > 40 {
		t.Errorf("%d connections were made in 3 s, want at most one a lane and redial pause", made)
	} else {
		t.Logf("%d checks, at most %d waiting, %d goroutines more, %d connections made", n, mostWaiting.Load(), most.Load()-int64(base), made)
	}
}

// TestNothingIsSentLate: what a server runs after a pause are the calls that say
// that they were sent, and no others: a caller that has left spends nothing.
func TestNothingIsSentLate(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	conf := patient("redis://" + server.Addr)
	conf.Deadline, conf.Log, conf.BreakerFailures = 30*time.Millisecond, slog.New(slog.DiscardHandler), 100
	s := open(t, conf)
	op := take("rule", "late", slow(8_000))
	eventually(t, 5*time.Second, "a first answer", func() bool { _, err := try(s, op); return err == nil })
	full := left(t, open(t, patient("redis://"+server.Addr)), op)
	before := calls(t, server)["evalsha"]

	server.MustDo(t, "CLIENT", "PAUSE", "1000", "ALL")
	var under, sent, unsent, answered atomic.Int64
	pace(900*time.Millisecond, &under, func() {
		_, err := s.Take(context.Background(), []store.Op{op})
		var e *store.StoreError
		switch {
		case err == nil:
			answered.Add(1)
		case errors.As(err, &e) && e.Sent:
			sent.Add(1)
		default:
			unsent.Add(1)
		}
	})
	server.MustDo(t, "CLIENT", "UNPAUSE")
	direct := open(t, patient("redis://"+server.Addr))
	beaten(t, direct) // what waited has run by then
	ran := int64(calls(t, server)["evalsha"] - before)
	looks := int64(2) // ours, at most
	if spent := full - left(t, direct, op); spent > sent.Load()+answered.Load() {
		t.Errorf("%d were spent, of %d sent and %d answered", spent, sent.Load(), answered.Load())
	}
	if ran > sent.Load()+answered.Load()+looks {
		t.Errorf("%d calls ran, of %d sent and %d answered", ran, sent.Load(), answered.Load())
	}
	if unsent.Load() == 0 {
		t.Error("no caller left before its call was sent: nothing was tested")
	}
	t.Logf("%d sent, %d unsent, %d answered, %d ran", sent.Load(), unsent.Load(), answered.Load(), ran)
}

// TestConnections: a pod has two connections to a primary at most, whatever is asked.
func TestConnections(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	s := open(t, patient("redis://"+strings.Join(c.Addrs()[:2], ",")))
	safe := take("safe", "k", slow(8_000))
	safe.Replicas = 1
	eventually(t, 10*time.Second, "a spend that a replica has", func() bool { _, err := try(s, safe); return err == nil })
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() { must(t, s, take("plain", strconv.Itoa(i), slow(100))) })
	}
	beats(t, s, "pod")
	if _, err := s.Audit(context.Background()); err != nil {
		t.Error(err)
	}
	group.Wait()
	beaten(t, s)
	for _, p := range c.Primaries() {
		list, _ := p.MustDo(t, "CLIENT", "LIST", "TYPE", "normal").(string)
		if n := strings.Count(list, "name=tallygate"); n < 1 || n > 2 {
			t.Errorf("%d connections to %s, want one or two:\n%s", n, p.Addr, list)
		}
	}
}
