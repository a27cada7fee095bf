package faults_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/openloop"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
)

// refusal is a fault in which the hurt shard answers, but not with what was asked.
type refusal struct {
	name string
	on   func(f *fixture)
	off  func(f *fixture)
	// within is how long after it the answers are normal: at once where the breaker
	// has nothing to do with it.
	within time.Duration
}

// atOnce is what is left when no breaker has to close first.
const atOnce = 100 * time.Millisecond

func refusals() []refusal {
	return []refusal{
		{
			"OOM", func(f *fixture) { f.hurt().Configure(f.t, "maxmemory", "1") },
			func(f *fixture) { f.hurt().MustDo(f.t, "CONFIG", "SET", "maxmemory", "0") }, atOnce,
		},
		{
			"NOPERM", func(f *fixture) {
				f.hurt().MustDo(f.t, "ACL", "SETUSER", "default", "-eval", "-evalsha")
				f.t.Cleanup(func() { f.hurt().MustDo(f.t, "ACL", "SETUSER", "default", "+@all") })
			},
			func(f *fixture) { f.hurt().MustDo(f.t, "ACL", "SETUSER", "default", "+@all") }, atOnce,
		},
		{
			"NOREPLICAS", func(f *fixture) { f.hurt().Configure(f.t, "min-replicas-to-write", "2") },
			func(f *fixture) { f.hurt().MustDo(f.t, "CONFIG", "SET", "min-replicas-to-write", "0") }, backWithin,
		},
		{
			"max clients", func(f *fixture) {
				f.hurt().Configure(f.t, "maxclients", "1")
				f.front().Cut()
			},
			func(f *fixture) { f.hurt().MustDo(f.t, "CONFIG", "SET", "maxclients", "10000") }, backWithin,
		},
	}
}

// TestRefusals: open rules fall back, closed ones refuse, others do not notice.
func TestRefusals(t *testing.T) {
	for _, tt := range refusals() {
		t.Run(tt.name, func(t *testing.T) {
			judged(t, func(f *fixture) *run {
				t := f.t
				accepted := f.c.Accepted()
				r := f.during(t, tt.within+time.Second, func(r *run) {
					tt.on(f)
					r.began = time.Now().Add(2 * deadline)
					hold(long(700*time.Millisecond, 5*time.Second))
					tt.off(f)
					r.back = time.Now()
				})
				shardAway(r, tt.within)
				// A connection that is refused is not tried again at once.
				if made := f.c.Accepted() - accepted; float64(made) > 50*time.Since(r.Start).Seconds() {
					t.Errorf("%d new connections", made)
				}
				return r
			})
		})
	}
}

// TestWrongPassword: at the start it is an error at once; when it becomes wrong
// later, it is a refusal like others.
func TestWrongPassword(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		rights := []string{"~*", "+@all"}
		for _, n := range f.c.Nodes {
			n.AddUser(t, "pod", "right", rights...)
			t.Cleanup(func() { _, _ = n.Do("ACL", "DELUSER", "pod") })
		}
		conf := f.conf()
		conf.Username, conf.Password = "pod", "wrong"
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if s, err := redisstore.New(ctx, conf); err == nil {
			_ = s.Close()
			t.Error("a store opened with a wrong password")
		} else if took := time.Since(start); took > 2*time.Second {
			t.Errorf("a wrong password took %s to be told", took)
		}

		conf.Password = "right"
		f.pod = pod(t, connect(t, conf))
		for i := range 2 * lanes * keysEach {
			f.ask(i)
		}
		r := f.during(t, backWithin+time.Second, func(r *run) {
			f.hurt().AddUser(t, "pod", "changed", rights...)
			f.front().Cut()
			r.began = time.Now().Add(2 * deadline)
			hold(long(700*time.Millisecond, 5*time.Second))
			f.hurt().AddUser(t, "pod", "right", rights...)
			r.back = time.Now()
		})
		r.closedShut()
		r.openBounded()
		r.normalWithin(backWithin, open, tight)
		return r
	})
}

// TestClusterDown: with full coverage required, one lost shard stops all of them.
func TestClusterDown(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		for _, n := range f.c.Nodes {
			n.Configure(t, "cluster-require-full-coverage", "yes")
		}
		// The shard that is lost is another one: the hurt one answers CLUSTERDOWN.
		lost := f.primaries[2]
		replica := f.c.Replica(t, lost)
		down := func() bool { _, err := f.hurt().Do("GET", bucketKey("probe", f.keys[0][0])); return err != nil }
		r := f.during(t, backWithin+time.Second, func(r *run) {
			f.c.Kill(replica)
			f.c.Kill(lost)
			soon(t, 15*time.Second, "CLUSTERDOWN", down)
			r.began = time.Now().Add(2 * deadline)
			hold(long(700*time.Millisecond, 5*time.Second))
			r.cheap()
			f.c.Restart(t, lost)
			soon(t, 15*time.Second, "the cluster is up", func() bool { return !down() })
			r.back = time.Now()
			f.c.Restart(t, replica)
		})
		r.quick()
		r.closedShut()
		r.openBounded()
		r.normalWithin(backWithin, open, tight)
		return r
	})
}

// TestNOS02_scriptFlush: a server that forgot the script is no failure.
func TestNOS02_scriptFlush(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		r := &run{t: t, f: f, w: watch(f.primaries[:]...)}
		r.Result = openloop.Drive(100, time.Second, func(i int) string {
			f.hurt().MustDo(t, "SCRIPT", "FLUSH")
			rule := []string{open, closed}[i%2]
			return "0/" + rule + "/" + one(f.pod, check(f.keys[0][i%keysEach], rule))
		})
		// A breaker that had opened would be open still.
		after := one(f.pod, check(f.keys[0][0], closed))
		r.back = time.Now()
		r.w.end()
		t.Log(r.Result)
		r.normal(r.w.calm(r.Result), "of a server that knows no script")
		if after != allow {
			r.mood("after it: %s, want %s", after, allow)
		}
		return r
	})
}

// TestWrongType: somebody's list in a bucket's place is the matter of that bucket
// alone.
func TestWrongType(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		key := f.keys[0][3]
		for _, rule := range []string{second, strict} {
			f.hurt().MustDo(t, "LPUSH", bucketKey(rule, key), "x")
		}
		r := f.during(t, 300*time.Millisecond, func(r *run) {
			r.began = time.Now()
			for range 100 {
				if got := one(f.pod, check(key, second)); got != fallbackAllow {
					t.Errorf("an open rule: %s, want %s", got, fallbackAllow)
				}
				if got := one(f.pod, check(key, strict)); got != refusedAway && got != refusedTimeout {
					t.Errorf("a closed rule: %s, want a refusal", got)
				}
				if t.Failed() {
					break
				}
				hold(2 * time.Millisecond)
			}
			r.back = time.Now()
		})
		r.quick()
		r.normal(r.w.calm(r.Result), "of other buckets")
		return r
	})
}

// alone is a pod in front of one server, asked 500 times a second for two keys.
func alone(t *testing.T, server *redistest.Server, fault func() (began, back time.Time)) {
	t.Helper()
	l := pod(t, connect(t, config("redis://"+server.Addr)))
	soon(t, 5*time.Second, "a normal answer before the fault", func() bool { return one(l, check("k", closed)) == allow })
	stop, done := make(chan struct{}), make(chan *openloop.Result, 1)
	go func() {
		done <- openloop.DriveUntil(500, stop, func(i int) string {
			rule := []string{open, closed}[i%2]
			return "0/" + rule + "/" + one(l, check("k"+strconv.Itoa(i%10), rule))
		})
	}()
	hold(100 * time.Millisecond)
	began, back := fault()
	hold(backWithin + 500*time.Millisecond)
	close(stop)
	r := <-done
	t.Log(r)
	away := r.Between(began, back.Add(-2*deadline))
	if got := of(away, "", closed, allow); len(got.Calls) > 0 {
		t.Errorf("a closed rule admitted: %s", got)
	}
	if got := of(away, "", open, fallbackAllow); len(got.Calls) == 0 {
		t.Errorf("an open rule did not fall back: %s", of(away, "", open))
	}
	later := of(r.Between(back.Add(backWithin), time.Now()), "", open)
	if odd := oddOf(later); 20*len(odd.Calls) > len(later.Calls) {
		t.Errorf("later than %s after it, %s", backWithin, odd)
	}
}

// TestReadOnly: the server became a replica, as after a failover that sentinels ran.
func TestReadOnly(t *testing.T) {
	needSuite(t)
	server, other := redistest.Standalone(t), redistest.Standalone(t)
	alone(t, server, func() (began, back time.Time) {
		server.MustDo(t, "REPLICAOF", "127.0.0.1", strconv.Itoa(other.Port))
		began = time.Now().Add(2 * deadline)
		hold(long(500*time.Millisecond, 5*time.Second))
		server.MustDo(t, "REPLICAOF", "NO", "ONE")
		return began, time.Now()
	})
}

// TestLoading: the server reads its data back in and says so.
func TestLoading(t *testing.T) {
	needSuite(t)
	server := redistest.Standalone(t, "--loading-process-events-interval-bytes", "1024", "--key-load-delay", "2000")
	for i := range 300 {
		server.MustDo(t, "SET", "fill"+strconv.Itoa(i), string(make([]byte, 1024)))
	}
	alone(t, server, func() (began, back time.Time) {
		began = time.Now().Add(100 * time.Millisecond)
		server.MustDo(t, "DEBUG", "RELOAD")
		back = time.Now()
		if back.Sub(began) < 200*time.Millisecond {
			t.Fatalf("loading took only %s", back.Sub(began))
		}
		return began, back
	})
}

// TestFLT06_denialIsAnAnswer: what the store denies is not asked of the fallback.
func TestFLT06_denialIsAnAnswer(t *testing.T) {
	f := setup(t)
	key := f.keys[0][0]
	var v tallygate.Verdict
	denied := 0
	soon(t, 2*backWithin, "an answer of the store", func() bool { return one(f.pod, check(key, tight)) == deny })
	for range 3 * tightBurst {
		if err := f.pod.Decide(context.Background(), check(key, tight), &v); err != nil {
			t.Fatal(err)
		}
		if v.Degraded == "" && !v.Allow {
			denied++
			if got := v.Entries[0].Source; got == tallygate.SourceFallback {
				t.Fatalf("a denial came from %q", got)
			}
		}
	}
	if denied < tightBurst {
		t.Errorf("%d of %d denied", denied, 3*tightBurst)
	}
}
