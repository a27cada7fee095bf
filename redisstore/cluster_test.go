package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// name is the Redis key of a bucket of these tests.
func name(op store.Op) string {
	return "tg:{" + string(identity.NewHasher(nil).AppendTag(nil, op.Bucket.Domain, op.Bucket.Key)) + "}:" + op.Bucket.Rule
}

// apart returns two keys whose buckets lie on different primaries.
func apart(t *testing.T, c *redistest.Cluster, prefix string) (a, b string) {
	t.Helper()
	prefix = fresh(prefix)
	a = prefix + "-a"
	owner := c.Owner(t, c.Slot(t, name(take("A", a, slow(5)))))
	for i := range 100 {
		b = fmt.Sprintf("%s-b%d", prefix, i)
		if c.Owner(t, c.Slot(t, name(take("A", b, slow(5))))) != owner {
			return a, b
		}
	}
	t.Fatal("no two keys on different primaries")
	return "", ""
}

func TestCLU03_otherSlotDenies(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	for _, l := range []*limit.Limit{slow(5), window(limit.SlidingWindow, 5, time.Hour), window(limit.FixedWindow, 5, time.Hour), window(limit.SlidingLog, 5, time.Hour)} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			ka, kb := apart(t, c, l.Algorithm.String())
			a, b := take("A", ka, l), take("B", kb, l)
			for range 5 {
				if ok, _ := must(t, s, b); !ok {
					t.Fatal("B is not fresh")
				}
			}
			ok, grants := must(t, s, a, b)
			if ok || !grants[0].OK || grants[1].OK {
				t.Fatalf("grants = %+v, want A ok and B denied", grants)
			}
			if grants[0].Remaining != 5 {
				t.Errorf("A is told %d left, want 5: nothing of a denied check is spent", grants[0].Remaining)
			}
			eventually(t, 5*time.Second, "A back at 5", func() bool { return left(t, s, a) == 5 })
			if got := left(t, s, a); got != 5 {
				t.Errorf("A has %d left after the undo, want 5", got)
			}
			ok, grants = must(t, s, b, a)
			if ok || !grants[1].Skipped {
				t.Errorf("grants = %+v, want A not asked after B denied", grants)
			}
			if n := s.LostUndos(); n != 0 {
				t.Errorf("%d undos were lost", n)
			}
		})
	}
}

// TestCLU03_undoIsWhole: a check that another slot denies leaves no lease behind
// that nobody knows of, and takes back nothing that did not hang on its verdict.
func TestCLU03_undoIsWhole(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	for _, l := range []*limit.Limit{slow(50), window(limit.SlidingWindow, 50, time.Hour), window(limit.FixedWindow, 50, time.Hour), window(limit.SlidingLog, 50, time.Hour)} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			ka, kb := apart(t, c, "whole-"+l.Algorithm.String())
			leased, added, empty := take("leased", ka, l), take("added", ka, l), take("B", kb, slow(1))
			leased.Want = 20
			added.How, added.Cost = store.Add, 10
			must(t, s, empty)
			if ok, grants := must(t, s, leased, added, empty); ok || !grants[0].OK {
				t.Fatalf("grants = %+v, want the first ok and the last denied", grants)
			}
			leased.Want = 0
			eventually(t, 5*time.Second, "all of the take back", func() bool { return left(t, s, leased) == 50 })
			added.How = store.Take
			if got := left(t, s, added); got != 40 {
				t.Errorf("%d left where 10 of 50 were added, want 40", got)
			}
		})
	}
}

// TestCLU03_undoUnderLoad: a flood of checks that one bucket denies leaves those
// asked before it as they were. Undos have a second each, which is not enough on a
// machine that is too busy: one round of some in which none is lost will do.
func TestCLU03_undoUnderLoad(t *testing.T) {
	conf := patient("redis://" + redistest.SharedCluster(t).Addrs()[0])
	conf.Deadline = 20 * time.Second
	s := open(t, conf)
	var ops []store.Op
	for _, l := range []*limit.Limit{slow(5000), window(limit.SlidingWindow, 5000, time.Hour), window(limit.FixedWindow, 5000, time.Hour), window(limit.SlidingLog, 5000, time.Hour)} {
		ops = append(ops, take(l.Algorithm.String(), fresh("flooded"), l))
	}
	empty := take("empty", "flooded", slow(1))
	must(t, s, empty)
	for _, op := range ops { // connected
		left(t, s, op)
	}
	const callers, checks, rounds = 64, 50, 5
	flood := func() {
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for range checks {
					if grants, err := s.Take(context.Background(), append(slices.Clip(ops), empty)); err != nil || grants[4].OK {
						t.Errorf("%v, %v; want the last one denied", grants, err)
					}
				}
			})
		}
		group.Wait()
	}
	missing := func() (n int64) {
		for _, op := range ops {
			n += 5000 - left(t, s, op)
		}
		return n
	}
	for range rounds {
		before := s.LostUndos()
		flood()
		eventually(t, 10*time.Second, "all that was not lost is back", func() bool { return missing() <= s.LostUndos() })
		if s.LostUndos() == before || t.Failed() {
			return
		}
	}
	t.Errorf("%d undos of %d were lost, some in each round", s.LostUndos(), rounds*callers*checks*len(ops))
}

func TestSEC13_loginRulesAreIndependent(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	perIP, perUser := window(limit.SlidingLog, 5, time.Minute), window(limit.SlidingLog, 20, time.Hour)
	run := fresh("")
	login := func(ip, user string) (bool, []store.Grant) {
		return must(t, s, take("login-ip", ip+run, perIP), take("login-user", user+run, perUser))
	}
	for i := 1; i <= 6; i++ {
		ok, grants := login("198.51.100.7", fmt.Sprintf("u%d", i))
		if want := i <= 5; ok != want || grants[0].OK != want {
			t.Fatalf("attempt %d: %v %+v, want %v by the address rule", i, ok, grants, want)
		}
	}
	if got := left(t, s, take("login-user", "u6"+run, perUser)); got != 20 {
		t.Errorf("u6 has %d left, want 20: the denied attempt is not in its log", got)
	}
	for i := 1; i <= 21; i++ {
		ok, grants := login(fmt.Sprintf("203.0.113.%d", i), "admin")
		if want := i <= 20; ok != want || grants[1].OK != want {
			t.Fatalf("address %d: %v %+v, want %v by the user rule", i, ok, grants, want)
		}
	}
}

// TestCLU04_slotMoves: the count lives in the key, and NOSCRIPT, ASK, MOVED and
// TRYAGAIN are routine.
func TestCLU04_slotMoves(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	l := slow(20)
	key := fresh("acct_7Q2")
	one, two := take("one", key, l), take("two", key, l)
	for range 17 {
		must(t, s, one, two)
	}
	slot := c.Slot(t, name(one))
	from := c.Owner(t, slot)
	var to *redistest.Server
	for _, p := range c.Primaries() {
		if p != from {
			to = p
		}
	}
	to.MustDo(t, "SCRIPT", "FLUSH")
	c.StartMove(t, slot, to)

	looks, ends := make(chan error, 1000), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ends:
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, err := s.Take(context.Background(), []store.Op{{Bucket: one.Bucket, Limit: l, How: store.Peek, Cost: 1}})
			looks <- err
		}
	})
	c.MoveKeys(t, slot, to, name(one)) // the keys of one check are now apart
	if _, err := s.Take(context.Background(), []store.Op{one, two}); err == nil {
		t.Error("a check of keys that are apart was answered")
	}
	time.AfterFunc(0, func() {}) // the move goes on while looks run
	eventually(t, 10*time.Second, "looks during the move", func() bool { return len(looks) >= 10 })
	c.FinishMove(t, slot, to)
	eventually(t, 5*time.Second, "both buckets answer", func() bool {
		_, err := s.Take(context.Background(), []store.Op{{Bucket: one.Bucket, Limit: l, How: store.Peek}, {Bucket: two.Bucket, Limit: l, How: store.Peek}})
		return err == nil
	})
	close(ends)
	wg.Wait()
	close(looks)
	for err := range looks {
		if err != nil {
			t.Errorf("a look during the move: %v", err)
		}
	}
	for i, want := range []bool{true, true, true, false} {
		if ok, _ := must(t, s, one, two); ok != want {
			t.Errorf("check %d after the move: %v, want %v", i+1, ok, want)
		}
	}
}

func TestNOS02_scriptFlush(t *testing.T) {
	server := redistest.SharedStandalone(t)
	s := open(t, patient("redis://"+server.Addr))
	op := take("rule", fresh("nos-02"), slow(90))
	allowed := 0
	for range 100 {
		server.MustDo(t, "SCRIPT", "FLUSH")
		if ok, _ := must(t, s, op); ok {
			allowed++
		}
	}
	if allowed != 90 {
		t.Errorf("allowed = %d, want 90", allowed)
	}
}

// TestOneRoundTrip pins what a check costs: one command for all its buckets.
func TestOneRoundTrip(t *testing.T) {
	server := redistest.Standalone(t)
	conf := patient("redis://" + server.Addr)
	conf.NoBeats = true // they are read on a new connection
	s := open(t, conf)
	ops := []store.Op{take("a", "k", slow(1000)), take("b", "k", slow(1000)), take("c", "other", slow(1000))}
	must(t, s, ops...)
	before := calls(t, server)
	for range 100 {
		must(t, s, ops...)
	}
	after := calls(t, server)
	if got := after["evalsha"] - before["evalsha"]; got != 100 {
		t.Errorf("100 checks of three buckets made %d calls, want 100", got)
	}
	if got := after["get"] - before["get"]; got != 300 {
		t.Errorf("%d reads, want 300", got)
	}
	if got := after["psetex"] - before["psetex"]; got != 300 {
		t.Errorf("%d writes, want 300", got)
	}
}

// calls counts commands by name, those of scripts included.
func calls(t testing.TB, s *redistest.Server) map[string]int {
	t.Helper()
	info, err := s.Info("commandstats")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for k, v := range info {
		var n int
		if _, err := fmt.Sscanf(v, "calls=%d,", &n); err == nil {
			counts[k[len("cmdstat_"):]] = n
		}
	}
	return counts
}

var _ store.Store = (*redisstore.Store)(nil)
