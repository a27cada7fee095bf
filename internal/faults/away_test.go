package faults_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/redisstore"
)

// shardAway is what holds for every fault that takes a shard away and gives it back.
func shardAway(r *run, within time.Duration) {
	r.t.Helper()
	r.quick()
	r.othersUnharmed()
	r.closedShut()
	r.openBounded()
	if within > atOnce { // else no breaker has a part in it
		r.breaks()
	}
	r.normalWithin(within, open, tight)
}

// fallbackCost is the median time of an answer of an open rule without the store,
// asked one after the other.
func (f *fixture) fallbackCost(t *testing.T) time.Duration {
	t.Helper()
	soon(t, 2*time.Second, "an answer without the store", func() bool { return one(f.pod, check(f.keys[0][1], open)) != allow })
	var took []time.Duration
	var v tallygate.Verdict
	c := check(f.keys[0][1], open)
	for end := time.Now().Add(300 * time.Millisecond); len(took) < 1001 && time.Now().Before(end); {
		start := time.Now()
		_ = f.pod.Decide(context.Background(), c, &v)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// serves waits until a node serves the hurt shard.
func (f *fixture) serves(t *testing.T, n interface{ Do(...string) (any, error) }) {
	t.Helper()
	soon(t, 20*time.Second, "the shard serves", func() bool {
		_, err := n.Do("SET", bucketKey("probe", f.keys[0][0]), "1")
		return err == nil
	})
}

// cheap: while the breaker is open a fallback answer costs nothing to speak of.
func (r *run) cheap() {
	if got := r.f.fallbackCost(r.t); got >= slack*20*time.Microsecond {
		r.mood("a fallback answer takes %s at the median, want below %s", got, slack*20*time.Microsecond)
	}
}

// replaced waits until the replica has taken over.
func (r *run) replaced(replica interface{ Promoted(time.Duration) error }) {
	r.t.Helper()
	if err := replica.Promoted(15 * time.Second); err != nil {
		r.t.Fatal(err)
	}
	r.back = time.Now()
}

// TestFLT09_kill: a primary dies and its replica takes over.
func TestFLT09_kill(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		replica := f.c.Replica(t, f.hurt())
		r := f.during(t, topologyWithin+time.Second, func(r *run) {
			f.c.Kill(f.hurt())
			r.began = time.Now()
			r.cheap()
			r.replaced(replica)
		})
		shardAway(r, topologyWithin)
		return r
	})
}

// TestFLT02_hang: a primary hangs, connections open, and its replica takes over.
func TestFLT02_hang(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		replica := f.c.Replica(t, f.hurt())
		r := f.during(t, topologyWithin+time.Second, func(r *run) {
			f.hurt().Pause(t)
			r.began = time.Now()
			r.cheap()
			r.replaced(replica)
		})
		shardAway(r, topologyWithin)
		return r
	})
}

// TestFLT11_stall: a primary stands still for 200 ms. It makes no new connections.
func TestFLT11_stall(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		was, accepted := f.connections(), f.c.Accepted()
		r := f.during(t, backWithin+time.Second, func(r *run) {
			f.hurt().Pause(t)
			r.began = time.Now()
			hold(200 * time.Millisecond)
			f.hurt().Resume(t)
			r.back = time.Now()
		})
		shardAway(r, backWithin)
		f.noStorm(t, was, accepted)
		return r
	})
}

// connections is how many a pod has open.
func (f *fixture) connections() int64 {
	n := 0
	for _, p := range f.c.Proxies {
		n += p.Open()
	}
	return int64(n)
}

// noStorm: a fault costs at most what a pod had open, once over.
func (f *fixture) noStorm(t *testing.T, was, accepted int64) {
	t.Helper()
	if made := f.c.Accepted() - accepted; made > was {
		t.Errorf("%d new connections, want at most the %d there were", made, was)
	}
}

// TestRestartBeforeTheTimeout: a primary comes back, empty, before anybody missed it,
// and takes its replica's keys with it. What was denied is not admitted again.
func TestRestartBeforeTheTimeout(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		r := f.during(t, backWithin+2*time.Second, func(r *run) {
			f.c.Kill(f.hurt())
			r.began = time.Now()
			f.c.Restart(t, f.hurt())
			if took := time.Since(r.began); took > 450*time.Millisecond {
				r.mood("the restart took %s: a replica may have taken over", took)
			}
			f.serves(t, f.hurt()) // not before two seconds after its start
			r.back = time.Now()
		})
		r.quick()
		r.othersUnharmed()
		r.closedShut()
		r.normalWithin(backWithin, open, tight)
		// The bucket is near its limit all the time: an empty store is no full bucket.
		span := time.Since(r.Start).Seconds()
		most := 3*tightBurst + 2*tightRate*span
		if got := len(of(r.Result, "0", tight, allow, fallbackAllow).Calls); float64(got) > most {
			t.Errorf("an open rule admitted %d of one key in %.2f s, want at most %.0f", got, span, most)
		}
		// A closed rule trusts an empty shard only when its buckets would be full.
		later := r.Between(r.back, r.back.Add(2*time.Second))
		if got := of(later, "0", closed, allow); len(got.Calls) > 0 {
			t.Errorf("closed rules admitted from a shard that had lost its counts: %s", got)
		}
		return r
	})
}

// TestKillShard: primary and replica die, and stay away for a while.
func TestKillShard(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		replica := f.c.Replica(t, f.hurt())
		r := f.during(t, topologyWithin+time.Second, func(r *run) {
			f.c.Kill(replica)
			f.c.Kill(f.hurt())
			r.began = time.Now()
			hold(long(1500*time.Millisecond, 10*time.Second))
			r.cheap()
			f.c.Restart(t, f.hurt())
			f.serves(t, f.hurt())
			r.back = time.Now()
			f.c.Restart(t, replica)
		})
		shardAway(r, topologyWithin)
		return r
	})
}

// TestAllDown: every node dies, then the primaries come back.
func TestAllDown(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		r := f.during(t, topologyWithin+time.Second, func(r *run) {
			for _, n := range f.c.Nodes {
				f.c.Kill(n)
			}
			r.began = time.Now()
			hold(long(time.Second, 5*time.Second))
			r.cheap()
			for _, n := range f.c.Nodes {
				f.c.Restart(t, n)
			}
			f.serves(t, f.hurt())
			r.back = time.Now()
		})
		r.quick()
		r.closedShut()
		r.openBounded()
		r.normalWithin(topologyWithin, open, tight)
		return r
	})
}

// TestAllDownAtStart: a store that cannot be reached either says so in time, or
// answers by the fallback until it can.
func TestAllDownAtStart(t *testing.T) {
	f := setup(t)
	for _, n := range f.c.Nodes {
		f.c.Kill(n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	start := time.Now()
	s, err := redisstore.New(ctx, f.conf())
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("New took %s under a context of 2s", took)
	}
	if err == nil {
		defer func() { _ = s.Close() }()
		l := pod(t, s)
		for rule, want := range map[string]string{open: fallbackAllow, closed: refusedAway} {
			if got := one(l, check(f.keys[0][0], rule)); got != want {
				t.Errorf("%s rule: %s, want %s", rule, got, want)
			}
		}
	}
	f.c.Mend(t)
	if err != nil {
		s = connect(t, f.conf())
	}
	l := pod(t, s)
	soon(t, topologyWithin, "normal answers of every shard", func() bool {
		for _, keys := range f.keys {
			if one(l, check(keys[0], open)) != allow {
				return false
			}
		}
		return true
	})
}
