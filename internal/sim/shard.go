package sim

import (
	"slices"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/store"
)

// shard is one shard of the store as it stands.
type shard struct {
	// refusing and hanging count the faults that take it down now: each in its way.
	refusing, hanging int
	slow              []*Slow
	// lost is what it has forgotten so far. Whoever is connected notices: its
	// connection has ended.
	lost []loss
	// kept is the shard's buckets at the time to which a failover goes back, by its
	// place among the failovers.
	kept map[int][]algorithm.State
	// began is when it last went down or slow, in ns, and outages how often it did.
	began   int64
	outages int32
}

// loss is a time at which a shard forgot spends: all of them, or what was written
// after from.
type loss struct {
	at, from int64
	empty    bool
}

// change is what happens to a shard.
type change struct {
	shard int
	what  changes
	hangs bool
	slow  *Slow
	// failover is its place among all, and lost what it loses.
	failover int
	lost     time.Duration
}

type changes uint8

const (
	goesDown changes = iota
	comesBack
	slowsDown
	recovers
	restarts
	remembers // what a failover will go back to
	failsOver
)

// scheduleStore plans the faults of the store.
func (f *fleet) scheduleStore(faults *StoreFaults) {
	plan := func(at time.Duration, c change) { f.plan = append(f.plan, fault{at: at, change: &c}) }
	for _, x := range faults.Downs {
		plan(x.At, change{shard: x.Shard, what: goesDown, hangs: x.Hangs})
		plan(x.At+x.For, change{shard: x.Shard, what: comesBack, hangs: x.Hangs})
	}
	for _, x := range faults.Flaps {
		for i := range x.Times {
			at := x.At + time.Duration(i)*(x.Down+x.Up)
			plan(at, change{shard: x.Shard, what: goesDown, hangs: x.Hangs})
			plan(at+x.Down, change{shard: x.Shard, what: comesBack, hangs: x.Hangs})
		}
	}
	for i := range faults.Slows {
		x := &faults.Slows[i]
		plan(x.At, change{shard: x.Shard, what: slowsDown, slow: x})
		plan(x.At+x.For, change{shard: x.Shard, what: recovers, slow: x})
	}
	for _, x := range faults.Restarts {
		plan(x.At, change{shard: x.Shard, what: restarts})
	}
	for i, x := range faults.Failovers {
		plan(x.At-x.Lost, change{shard: x.Shard, what: remembers, failover: i})
		plan(x.At, change{shard: x.Shard, what: failsOver, failover: i, lost: x.Lost})
	}
}

// changeShard has a shard become what its fault says.
func (f *fleet) changeShard(c *change) {
	s := &f.shards[c.shard]
	by := 1
	switch c.what {
	case comesBack:
		by = -1
		fallthrough
	case goesDown:
		if c.hangs {
			s.hanging += by
		} else {
			s.refusing += by
		}
	case slowsDown:
		s.slow = append(s.slow, c.slow)
	case recovers:
		s.slow = slices.DeleteFunc(s.slow, func(x *Slow) bool { return x == c.slow })
	case restarts:
		f.forget(c.shard, nil)
		s.lost = append(s.lost, loss{at: f.now, empty: true})
	case remembers:
		if s.kept == nil {
			s.kept = map[int][]algorithm.State{}
		}
		s.kept[c.failover] = f.remember(c.shard)
	case failsOver:
		f.forget(c.shard, s.kept[c.failover])
		delete(s.kept, c.failover)
		s.lost = append(s.lost, loss{at: f.now, from: f.now - int64(c.lost)})
	}
	if c.what == goesDown || c.what == slowsDown {
		s.began = f.now
		s.outages++
	}
}

func (s *shard) down() bool { return s.refusing+s.hanging > 0 }

// takes is how long one way to a shard takes that took so long.
func (s *shard) takes(way int64) int64 {
	for _, x := range s.slow {
		way = int64(float64(way)*x.Times) + int64(x.Plus)/2
	}
	return way
}

// shardOf is the shard of a key: all its buckets lie on one.
func (f *fleet) shardOf(key int32) int32 {
	if len(f.shards) == 1 {
		return 0
	}
	return int32(mix(uint64(key)+1) % uint64(len(f.shards)))
}

// remember copies a shard's buckets. Entries of a log are shared: they do not change.
func (f *fleet) remember(shard int) []algorithm.State {
	kept := []algorithm.State{}
	f.eachOf(shard, func(number int32) { kept = append(kept, f.store.states[number]) })
	return kept
}

// forget has a shard lose all its buckets, or all that it wrote after kept. A restart
// leaves nothing to go back to.
func (f *fleet) forget(shard int, kept []algorithm.State) {
	if kept == nil {
		for _, old := range f.shards[shard].kept {
			clear(old)
		}
	}
	at := 0
	all := f.allNotice(shard)
	f.eachOf(shard, func(number int32) {
		f.bounds.forgot(f, number, kept == nil && all)
		f.store.states[number] = algorithm.State{}
		if kept != nil {
			f.store.states[number] = kept[at]
			at++
		}
	})
	for i := range f.pods {
		v := &f.pods[i].views[shard]
		v.holding, v.lossMS = kept == nil && v.ackedNS > 0, f.nowMS()
	}
}

// allNotice reports whether all pods can tell that the shard's keys are gone.
func (f *fleet) allNotice(shard int) bool {
	for i := range f.pods {
		if m := &f.pods[i]; !m.crashed && m.views[shard].ackedNS == 0 {
			return false
		}
	}
	return true
}

// eachOf calls do with the number of each bucket of a shard.
func (f *fleet) eachOf(shard int, do func(number int32)) {
	for number := range f.limits {
		if f.shardOf(int32(number/len(f.config.Rules))) == int32(shard) {
			do(int32(number))
		}
	}
}

// errLost is what a pod hears of a call whose connection ended.
var errLost = &store.StoreError{Kind: store.Unavailable, Sent: true}

// errRefused is what it hears of one that found nobody.
var errRefused = &store.StoreError{Kind: store.Unavailable}
