package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// beaten waits until every shard has acknowledged another beat.
func beaten(t *testing.T, s *redisstore.Store) {
	t.Helper()
	before := s.Beaten()
	eventually(t, 10*time.Second, "a beat at every shard", func() bool {
		now := s.Beaten()
		for addr, n := range now {
			if n <= before[addr] {
				return false
			}
		}
		return len(now) > 0
	})
}

// try asks for one op.
func try(s *redisstore.Store, op store.Op) (store.Grant, error) {
	grants, err := s.Take(context.Background(), []store.Op{op})
	if err != nil {
		return store.Grant{}, err
	}
	return grants[0], nil
}

// forgot reports whether an op was refused since its shard has lost spends.
func forgot(err error) bool {
	var e *store.StoreError
	return errors.As(err, &e) && e.Kind == store.Unavailable && strings.Contains(e.Error(), "has lost spends")
}

func closed(op store.Op) store.Op {
	op.Closed = true
	return op
}

// healthOf is the health of the shard that owns op.
func healthOf(t *testing.T, s *redisstore.Store, op store.Op) store.ShardHealth {
	t.Helper()
	addr := s.Place(op.Bucket).Primary.Addr
	for _, h := range s.Health().Shards {
		if h.Shard == addr {
			return h
		}
	}
	t.Fatalf("no health of %s", addr)
	return store.ShardHealth{}
}

// TestEmptyShard: a server that comes back without its keys, before anybody took it
// for lost, hands out nothing again: rules that fail closed are refused, and what is
// missing starts with one cost.
func TestEmptyShard(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) (string, func(store.Op) *redistest.Server){
		"standalone": func(t *testing.T) (string, func(store.Op) *redistest.Server) {
			t.Helper()
			server := redistest.Standalone(t)
			return server.Addr, func(store.Op) *redistest.Server { return server }
		},
		"cluster": func(t *testing.T) (string, func(store.Op) *redistest.Server) {
			t.Helper()
			// Long enough that a busy machine restarts a server before that.
			c := redistest.NewCluster(t, "--cluster-node-timeout", "20000")
			return c.Addrs()[0], func(op store.Op) *redistest.Server { return c.Owner(t, c.Slot(t, name(op))) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, owner := start(t)
			conf := patient("redis://" + addr)
			conf.EmptyHold = 3 * time.Second
			s := open(t, conf)
			spent := take("spent", "acct", slow(100))
			other, later := take("other", "acct", slow(100)), take("later", "acct", slow(100))
			quick := take("quick", "acct", window(limit.FixedWindow, 100, 100*time.Millisecond))
			must(t, s, spent)
			beaten(t, s)
			server := owner(spent)
			server.Kill()
			server.Restart(t)
			eventually(t, 10*time.Second, "the shard is asked again", func() bool { _, err := try(s, spent); return err == nil })
			found := time.Now()

			if _, err := try(s, closed(other)); !forgot(err) && time.Since(found) < conf.EmptyHold {
				t.Errorf("a closed rule on a shard that is empty: %v, want refused", err)
			}
			if g, err := try(s, other); (err != nil || !g.OK || g.Remaining != 0) && time.Since(found) < conf.EmptyHold {
				t.Errorf("a bucket that is missing: %+v, %v; want one cost and no more", g, err)
			}
			if g, err := try(s, other); (err != nil || g.OK) && time.Since(found) < conf.EmptyHold {
				t.Errorf("after that: %+v, %v; want denied", g, err)
			}
			eventually(t, time.Second, "a window that has passed is believed", func() bool { _, err := try(s, closed(quick)); return err == nil })
			if _, err := try(s, closed(other)); !forgot(err) && time.Since(found) < conf.EmptyHold {
				t.Errorf("a longer one: %v, want refused still", err)
			}
			eventually(t, 2*conf.EmptyHold, "the hold is over", func() bool { _, err := try(s, closed(later)); return err == nil })
			if got := left(t, s, take("new", "acct", slow(100))); got != 100 {
				t.Errorf("a new bucket has %d, want 100", got)
			}
			if h := healthOf(t, s, spent); h.Empty != 1 || h.Behind != 0 {
				t.Errorf("health %+v, want one time empty", h)
			}
		})
	}
}

// cut keeps a replica from getting what its primary writes from now on.
func cut(t *testing.T, primary, replica *redistest.Server) {
	t.Helper()
	// The replica comes as the default user; this one may not replicate any more.
	primary.MustDo(t, "ACL", "SETUSER", "default", "-psync", "-sync", "-replconf")
	primary.MustDo(t, "CLIENT", "KILL", "TYPE", "replica")
	eventually(t, 10*time.Second, "the replica is cut off", func() bool {
		info, err := replica.Info("replication")
		return err == nil && info["master_link_status"] == "down"
	})
}

// replicaOf is the replica of a primary.
func replicaOf(t *testing.T, c *redistest.Cluster, primary *redistest.Server) *redistest.Server {
	t.Helper()
	for _, r := range c.Replicas() {
		if info, err := r.Info("replication"); err == nil && info["master_port"] == fmt.Sprint(primary.Port) {
			return r
		}
	}
	t.Fatalf("%s has no replica", primary.Addr)
	return nil
}

// TestBehindShard: a failover that lost the last beats lost spends too: rules that
// fail closed deny for a while.
func TestBehindShard(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	conf := patient("redis://" + strings.Join(c.Addrs(), ","))
	conf.FailoverHold = 3 * time.Second
	s := open(t, conf)
	op := take("rule", "behind", slow(100))
	must(t, s, op)
	beaten(t, s)
	primary := c.Owner(t, c.Slot(t, name(op)))
	cut(t, primary, replicaOf(t, c, primary))
	beaten(t, s)
	must(t, s, op)
	primary.Kill()
	eventually(t, 20*time.Second, "the promoted replica answers", func() bool { _, err := try(s, op); return err == nil })
	found := time.Now()
	if _, err := try(s, closed(op)); !forgot(err) && time.Since(found) < conf.FailoverHold {
		t.Errorf("a closed rule after a failover that lost spends: %v, want refused", err)
	}
	if _, err := try(s, op); err != nil {
		t.Errorf("an open rule meanwhile: %v", err)
	}
	eventually(t, 2*conf.FailoverHold, "the hold is over", func() bool { _, err := try(s, closed(op)); return err == nil })
	if h := healthOf(t, s, op); h.Behind != 1 || h.Empty != 0 {
		t.Errorf("health %+v, want one time behind", h)
	}
}

// TestGracefulFailover: a failover that lost nothing holds nothing, and answers come
// within two seconds.
func TestGracefulFailover(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	op := closed(take("rule", "graceful", slow(8_000)))
	must(t, s, op)
	beaten(t, s)
	primary := c.Owner(t, c.Slot(t, name(op)))
	replica := replicaOf(t, c, primary)
	spent := int64(1)
	start := time.Now()
	replica.MustDo(t, "CLUSTER", "FAILOVER")
	eventually(t, 10*time.Second, "the replica is promoted", func() bool {
		if _, err := try(s, op); err == nil {
			spent++
		}
		info, err := replica.Info("replication")
		return err == nil && info["role"] == "master"
	})
	promoted := time.Now()
	for range 20 {
		eventually(t, 2*time.Second, "an answer after the failover", func() bool { _, err := try(s, op); return err == nil })
		spent++
	}
	t.Logf("promoted after %s, 20 answers %s later", promoted.Sub(start), time.Since(promoted))
	beaten(t, s)
	for _, h := range s.Health().Shards {
		if h.Behind != 0 || h.Empty != 0 {
			t.Errorf("health %+v, want nothing lost", h)
		}
	}
	op.Closed = false
	if got := left(t, s, op); got > 8_000-spent {
		t.Errorf("%d left of 8,000, want at most %d: a spend was lost", got, 8_000-spent)
	}
}

// TestMovedSlot: a call goes where the slot has gone, and is answered as if nothing
// had happened; where its keys are apart it is refused and counts against nobody.
func TestMovedSlot(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	one, two := take("one", "moves", slow(100)), take("two", "moves", slow(100))
	must(t, s, one, two)
	slot := c.Slot(t, name(one))
	from := c.Owner(t, slot)
	var to *redistest.Server
	for _, p := range c.Primaries() {
		if p != from {
			to = p
		}
	}
	c.StartMove(t, slot, to)
	before := calls(t, to)["evalsha"] + calls(t, to)["eval"]
	c.MoveKeys(t, slot, to, name(one))
	_, err := s.Take(context.Background(), []store.Op{one, two}) // TRYAGAIN
	var e *store.StoreError
	if !errors.As(err, &e) || e.Kind != store.Unavailable || e.Sent || !strings.Contains(err.Error(), "TRYAGAIN") {
		t.Errorf("keys that are apart: %v, want TRYAGAIN, not sent", err)
	}
	if ok, grants := must(t, s, one); !ok || grants[0].Remaining != 98 { // ASK
		t.Errorf("the key that has moved: %+v, want 98 left", grants)
	}
	c.MoveKeys(t, slot, to, name(two))
	if ok, grants := must(t, s, one, two); !ok || grants[0].Remaining != 97 || grants[1].Remaining != 98 {
		t.Errorf("both while the slot moves: %+v", grants)
	}
	if after := calls(t, to)["evalsha"] + calls(t, to)["eval"]; after == before {
		t.Error("no call reached the new owner by ASK")
	}
	c.FinishMove(t, slot, to)
	if ok, grants := must(t, s, one, two); !ok || grants[0].Remaining != 96 || grants[1].Remaining != 97 { // MOVED
		t.Errorf("after the move: %+v", grants)
	}
	if got := s.Place(one.Bucket).Primary.Addr; got != to.Addr {
		t.Errorf("the slot is said to be at %s, want %s", got, to.Addr)
	}
	for _, h := range s.Health().Shards {
		if h.Failures != 0 || h.Opened != 0 || h.Empty != 0 || h.Behind != 0 {
			t.Errorf("health %+v: a move counts against a shard", h)
		}
	}
}

// TestReplicas: a spend that must be on a replica is an error where it is not, of
// which nobody else hears.
func TestReplicas(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	conf := patient("redis://" + c.Addrs()[0])
	conf.Deadline = 700 * time.Millisecond
	s := open(t, conf)
	safe, plain := take("safe", "replicas", slow(100)), take("plain", "replicas", slow(8_000))
	safe.Replicas = 1
	eventually(t, 10*time.Second, "a spend that a replica has", func() bool { g, err := try(s, safe); return err == nil && g.OK })
	primary := c.Owner(t, c.Slot(t, name(safe)))
	replicaOf(t, c, primary).Kill()
	_, err := try(s, safe)
	var e *store.StoreError
	if !errors.As(err, &e) || e.Kind != store.Unavailable && e.Kind != store.Timeout || !e.Sent {
		t.Errorf("without the replica: %v, want an error that says that it was sent", err)
	}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := try(s, safe); err == nil {
				t.Error("a spend that no replica has was answered")
			}
		})
	}
	slowest := time.Duration(0)
	for range 50 {
		start := time.Now()
		must(t, s, plain)
		slowest = max(slowest, time.Since(start))
	}
	group.Wait()
	t.Logf("the slowest of 50 plain calls beside those that wait took %s", slowest)
	for _, h := range s.Health().Shards {
		if h.Opened != 0 {
			t.Errorf("health %+v: a replica that is missing counts against the shard", h)
		}
	}
}

// TestQueueBound: what a server that hangs leaves waiting is bounded; the rest is
// refused at once.
func TestQueueBound(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	conf := patient("redis://" + server.Addr)
	conf.MaxInFlight = 50
	conf.BreakerFailures = 100
	s := open(t, conf)
	op := take("rule", "queue", slow(8_000))
	must(t, s, op)
	server.Pause(t)
	defer server.Resume(t)
	// Four batches of at most 128 are under way, 50 wait.
	const callers, room = 1000, 4*128 + 50
	var refused, sent atomic.Int64
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			start := time.Now()
			_, err := try(s, op)
			var e *store.StoreError
			if !errors.As(err, &e) {
				t.Errorf("err = %v, want an error of the store", err)
				return
			}
			switch {
			case strings.Contains(e.Error(), "too many"):
				refused.Add(1)
				if e.Sent || e.Kind != store.Unavailable || time.Since(start) > time.Second {
					t.Errorf("%v after %s, want refused unsent, at once", e, time.Since(start))
				}
			case e.Sent:
				sent.Add(1)
			}
		})
	}
	group.Wait()
	if n := refused.Load(); n < callers-room-1 {
		t.Errorf("%d of %d were refused, want at least %d", n, callers, callers-room-1)
	}
	if n := sent.Load(); n > 4*128 {
		t.Errorf("%d were sent, want at most %d", n, 4*128)
	}
}

// TestCloseUnderWay: Close ends what is under way, with an error for every caller,
// and leaves no goroutine.
func TestCloseUnderWay(t *testing.T) {
	server := redistest.Standalone(t)
	base := runtime.NumGoroutine()
	s := open(t, patient("redis://"+server.Addr))
	op := take("rule", "close", slow(8_000))
	must(t, s, op)
	server.Pause(t)
	defer server.Resume(t)
	var group sync.WaitGroup
	var started atomic.Int64
	for range 200 {
		group.Go(func() {
			started.Add(1)
			if _, err := try(s, op); err == nil {
				t.Error("answered by a server that hangs")
			}
		})
	}
	eventually(t, 5*time.Second, "all callers wait", func() bool { return started.Load() == 200 })
	start := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Close took %s", took)
	}
	group.Wait()
	eventually(t, 5*time.Second, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= base })
}
