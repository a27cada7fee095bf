package faults_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// TestCLU04_slotMoves: a slot moves to a node that does not know the script, and is
// half there for a while. Checks of one bucket do not notice; one of two buckets
// that lie apart is decided by the fail mode, and is no failure of a shard.
func TestCLU04_slotMoves(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		key, to := f.keys[0][5], f.primaries[1]
		slot := f.slot(t, key)
		soon(t, 2*backWithin, "a normal answer before the move", func() bool { return one(f.pod, check(key, first, second)) == allow })
		to.MustDo(t, "SCRIPT", "FLUSH")
		r := f.during(t, time.Second, func(r *run) {
			r.began = time.Now()
			f.c.StartMove(t, slot, to)
			hold(200 * time.Millisecond)
			f.c.MoveKeys(t, slot, to, bucketKey(first, key))
			for range 50 {
				if got := one(f.pod, check(key, first, second)); got != fallbackAllow {
					t.Errorf("two buckets apart: %s, want %s", got, fallbackAllow)
					break
				}
				hold(2 * time.Millisecond)
			}
			f.c.FinishMove(t, slot, to)
			r.back = time.Now()
			soon(t, 2*backWithin, "two buckets are together again", func() bool { return one(f.pod, check(key, first, second)) == allow })
		})
		r.quick()
		r.normal(r.w.calm(r.Result), "during a move")
		return r
	})
}

// TestFLT09_failover: a replica takes over in three ways; after the last one the
// former primary dies.
func TestFLT09_failover(t *testing.T) {
	for _, how := range []redistest.Takeover{redistest.Graceful, redistest.Forced, redistest.Alone} {
		t.Run("by "+string(how), func(t *testing.T) {
			judged(t, func(f *fixture) *run {
				t := f.t
				replica := f.c.Replica(t, f.hurt())
				r := f.during(t, topologyWithin+500*time.Millisecond, func(r *run) {
					r.began = time.Now()
					f.c.Failover(t, replica, how)
					r.back = time.Now()
					if how == redistest.Alone {
						f.c.Kill(f.hurt())
					}
				})
				r.quick()
				r.othersUnharmed()
				r.normalWithin(topologyWithin)
				return r
			})
		})
	}
}

// TestPartition: a primary is cut off from the other nodes, not from us. Its replica
// takes over; later the two sides meet again.
func TestPartition(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		replica := f.c.Replica(t, f.hurt())
		healed := time.Time{}
		r := f.during(t, topologyWithin+500*time.Millisecond, func(r *run) {
			r.began = time.Now()
			f.c.Isolate(t, f.hurt())
			r.replaced(replica)
			hold(topologyWithin + 500*time.Millisecond)
			f.c.Heal(t)
			healed = time.Now()
		})
		r.quick()
		r.othersUnharmed()
		r.normal(of(r.w.calm(r.Between(r.back.Add(topologyWithin), healed)), "0", open), "on the new side, before the partition healed")
		r.normal(of(r.w.calm(r.Between(healed.Add(topologyWithin), time.Now())), "0", open), "after the partition healed")
		return r
	})
}
