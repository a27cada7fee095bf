package sim

import (
	"fmt"
	"time"
)

// StoreFaults is what goes wrong with shards of the store, by time.
type StoreFaults struct {
	Downs     []Down
	Flaps     []Flap
	Slows     []Slow
	Restarts  []Restart
	Failovers []Failover
}

// Bounds of what may go wrong with a store.
const (
	// MaxShards bounds the shards: each pod has a breaker for each.
	MaxShards = 100
	// MaxFlaps bounds how often shards flap, all together.
	MaxFlaps = 10_000
	// MaxLosses bounds the restarts and failovers: each goes through all buckets, and
	// a failover keeps a copy of them.
	MaxLosses = 100
	// MaxSlowTimes bounds how many times longer a call may take.
	MaxSlowTimes = 1000
)

// Down is a shard that does not answer for a while.
type Down struct {
	At    time.Duration
	Shard int
	For   time.Duration
	// Hangs says that calls vanish and time out, instead of being refused at once.
	Hangs bool
}

// Flap is a shard that goes down again and again.
type Flap struct {
	At    time.Duration
	Shard int
	// Down and Up are how long it is away and back, so many Times.
	Down, Up time.Duration
	Times    int
	Hangs    bool
}

// Slow is a shard whose calls take longer for a while: so many times as long, and
// Plus more. A call that takes longer than the patience runs and nobody hears of it.
type Slow struct {
	At    time.Duration
	Shard int
	For   time.Duration
	Times float64
	Plus  time.Duration
}

// Restart is a shard that comes back without its keys.
type Restart struct {
	At    time.Duration
	Shard int
}

// Failover is a shard whose replica takes over without the last writes.
type Failover struct {
	At    time.Duration
	Shard int
	Lost  time.Duration
}

// any reports whether anything is to go wrong.
func (f *StoreFaults) any() bool {
	return len(f.Downs)+len(f.Flaps)+len(f.Slows)+len(f.Restarts)+len(f.Failovers) > 0
}

func (f *StoreFaults) validate(shards int) error {
	no := func(format string, args ...any) error { return fmt.Errorf(format, args...) }
	bad := func(at time.Duration, shard int) bool { return shard < 0 || shard >= shards || !inTime(at) }
	lasts := func(d time.Duration) bool { return d > 0 && d <= MaxTime }
	for _, x := range f.Downs {
		if bad(x.At, x.Shard) || !lasts(x.For) {
			return no("shard %d of %d down for %s at %s", x.Shard, shards, x.For, x.At)
		}
	}
	flaps := 0
	for _, x := range f.Flaps {
		if bad(x.At, x.Shard) || !lasts(x.Down) || !lasts(x.Up) || x.Times < 1 || x.Times > MaxFlaps-flaps {
			return no("shard %d of %d flapping %d times, %s down and %s up, at %s: not 1 to %d times in all", x.Shard, shards, x.Times, x.Down, x.Up, x.At, MaxFlaps)
		}
		flaps += x.Times
	}
	for _, x := range f.Slows {
		switch {
		case bad(x.At, x.Shard) || !lasts(x.For):
			return no("shard %d of %d slow for %s at %s", x.Shard, shards, x.For, x.At)
		case !(x.Times >= 1 && x.Times <= MaxSlowTimes) || x.Plus < 0 || x.Plus > MaxNetwork: // NaN is in no range
			return no("a shard slow by %g times and %s is not within 1 to %d times and %s", x.Times, x.Plus, MaxSlowTimes, MaxNetwork)
		case x.Times == 1 && x.Plus == 0:
			return no("a slow shard at %s is not slow", x.At)
		}
	}
	if n := len(f.Restarts) + len(f.Failovers); n > MaxLosses {
		return no("%d restarts and failovers of shards are more than %d", n, MaxLosses)
	}
	for _, x := range f.Restarts {
		if bad(x.At, x.Shard) {
			return no("a restart of shard %d of %d at %s", x.Shard, shards, x.At)
		}
	}
	for _, x := range f.Failovers {
		if bad(x.At, x.Shard) || x.Lost <= 0 || x.Lost > x.At {
			return no("a failover of shard %d of %d at %s that loses %s", x.Shard, shards, x.At, x.Lost)
		}
	}
	return nil
}
