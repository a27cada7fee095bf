package sim

import (
	"time"

	"github.com/tallygate/tallygate/internal/breaker"
	"github.com/tallygate/tallygate/store"
)

// The settings of a pod's breakers and holds: the defaults of redisstore.
const (
	breakerFailures = 3
	probeEvery      = time.Second
	behindFor       = 2 * time.Second
	emptyFor        = time.Minute
	// markEvery is how often a pod writes its beat to each shard, which tells after
	// a failover what was lost, and is the probe where nobody asks.
	markEvery = 250 * time.Millisecond
)

// view is what one pod thinks of one shard.
type view struct {
	breaker breaker.Breaker
	hold    breaker.Hold
	// seen is how many of the shard's losses the pod's connection has lived through.
	seen int
	// ackedNS is when the last beat was written that the pod knows of; 0 for none.
	ackedNS int64
	// holding says that the pod must find the keys gone that the shard lost at lossMS:
	// for who checks it, and not for the pod.
	holding bool
	lossMS  int64
}

func newViews(shards int) []view {
	views := make([]view, shards)
	for i := range views {
		views[i].breaker = breaker.Breaker{Failures: breakerFailures, ProbeEvery: probeEvery}
		views[i].hold = breaker.Hold{BehindFor: behindFor, EmptyFor: emptyFor}
	}
	return views
}

// permit asks the pod whether a call may be sent, and marks its ops. It returns what
// the pod hears where it may not.
func (f *fleet) permit(m *machine, c *call) *store.StoreError {
	v, s, now := &m.views[c.shard], &f.shards[c.shard], f.podNow(m)
	if v.refuses(now, c.ops) {
		return errRefused
	}
	c.permit = v.breaker.Ask(now)
	if c.permit == breaker.Refuse {
		c.failure = store.StoreError{Kind: store.Unavailable, Down: v.breaker.Down(now)}
		return &c.failure
	}
	if v.seen < len(s.lost) && !s.down() && !f.blind {
		// The connection is a new one, whose server is asked for the beat first.
		v.hold.Note(now, v.finds(s))
		v.seen = len(s.lost)
		if v.refuses(now, c.ops) {
			if c.permit == breaker.Probe {
				v.breaker.Success(c.permit) // the server has answered
			}
			return errRefused
		}
	}
	if v.hold.Held() {
		for i := range c.ops {
			c.ops[i].NotFresh = v.hold.Stale(now, &c.ops[i])
		}
	}
	return nil
}

func (v *view) refuses(now int64, ops []store.Op) bool {
	if !v.hold.Held() {
		return false
	}
	for i := range ops {
		if v.hold.Refuses(now, &ops[i]) {
			return true
		}
	}
	return false
}

// finds is what the beat says of what the shard has lost since it was last seen.
func (v *view) finds(s *shard) breaker.Finding {
	found := breaker.Current
	for _, l := range s.lost[v.seen:] {
		switch {
		case v.ackedNS == 0:
		case l.empty:
			v.ackedNS = 0 // what is missing was noticed
			return breaker.Empty
		case v.ackedNS > l.from && v.ackedNS <= l.at:
			found = breaker.Behind
		}
	}
	return found
}

// note tells the pod's breaker what became of a call. Of a pod that stood still the
// calls it heard of too late say nothing of the shard.
func (f *fleet) note(m *machine, c *call) {
	v, now := &m.views[c.shard], f.podNow(m)
	switch {
	case c.permit == breaker.Refuse:
	case c.err == nil:
		v.breaker.Success(c.permit)
	case c.err == errTimeout && c.permit != breaker.Probe && f.now > c.patience:
	case v.breaker.Failure(now, now-(f.now-f.askedAt(c)), c.permit, f.moods.Float64()):
		f.tally.shards[c.shard].openings++
	}
}

// askedAt is when a call was made.
func (f *fleet) askedAt(c *call) int64 { return c.patience - int64(f.config.Network.Patience) }

// mark has a pod write its beat to all shards.
func (f *fleet) mark(p int32) {
	m := &f.pods[p]
	if m.crashed || m.drained || f.ended {
		return
	}
	for i := range f.shards {
		at := f.newCall()
		c := &f.calls[at]
		*c = call{pod: p, shard: int32(i), check: none, marks: true, open: 2, ops: c.ops[:0], numbers: c.numbers[:0], grants: c.grants[:0]}
		f.depart(at, int64(f.config.Network.Latency)/2, int64(f.config.Network.Latency)/2)
	}
	f.heap.push(event{at: f.now + int64(markEvery), what: marks, pod: p})
}
