package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Config is one simulation. All of it must be set but for what says otherwise.
type Config struct {
	// Name is told in the Result.
	Name string
	// Seed chooses the traffic and the network's moods.
	Seed uint64
	// Pods is how many pods there are at the start: 1 to MaxPods.
	Pods int
	// Duration is how long traffic comes.
	Duration time.Duration
	Network  Network
	// Shards is how many shards the store has; 0 means one. All buckets of a key lie
	// on one.
	Shards  int
	Rules   []Rule
	Traffic []Traffic
	// Faults may be zero: nothing goes wrong.
	Faults Faults
}

// Bounds of a simulation, to keep a slip of the pen from filling the memory.
const (
	// MaxPods bounds the pods that ever live.
	MaxPods = 10_000
	// MaxBuckets bounds rules × keys.
	MaxBuckets = 10_000_000
	// MaxRules bounds the rules of one kind of traffic: the buckets of one check.
	MaxRules = 8
	// MaxTime bounds all durations, and MaxChecks what comes in them.
	MaxTime   = 24 * time.Hour
	MaxChecks = 10_000_000_000
	// MaxNetwork bounds what a call may take: deadlines wait for it, each in a place.
	MaxNetwork = time.Minute
	// minPerSecond is what the next check of a kind can be planned with.
	minPerSecond = 1e-6
)

// Network is what lies between the pods and the store.
type Network struct {
	// Latency is a call's time there and back, Jitter what is added to it at most,
	// evenly spread over both ways.
	Latency, Jitter time.Duration
	// Patience is how long a check waits for an answer, and a pod for the store's.
	Patience time.Duration
}

// Rule is what is limited. Keys of different rules never share a bucket.
type Rule struct {
	ID    string
	Limit limit.Limit
	// MaxCost and MaxLease are the rule's; MaxLease 0 asks the store for each check.
	MaxCost, MaxLease int64
	// Terms say how pods count it; the zero value leases.
	Terms pod.Terms
	// Closed says that the rule fails closed: without the store only leases let a
	// check pass, and a fallback of AllowanceMilli thousandths of the limit, if any.
	Closed         bool
	AllowanceMilli int64
}

// share is the part of the limit, in thousandths, that pods may admit by themselves.
func (r *Rule) share() int64 {
	if r.Closed {
		return r.AllowanceMilli
	}
	return pod.OpenShare
}

// Traffic is one kind of clients.
type Traffic struct {
	// Rules are the buckets of each check, as indexes of Config.Rules: one bucket
	// a rule, all of the same key.
	Rules []int
	// FirstKey and Keys number the keys; kinds that share numbers and rules share
	// buckets.
	FirstKey, Keys int
	// PerSecond is the checks of each key a second.
	PerSecond float64
	// Pinned is how many pods a key's checks go to; 0 means all.
	Pinned int
	Cost   int64
	// Even says that checks come at even distances and go to a key's pods in turn,
	// instead of at random.
	Even bool
}

// Faults is what goes wrong.
type Faults struct {
	// LostReply is the part of calls whose reply is lost: they run, and the pod
	// hears nothing until its patience ends. Late is the part of calls that time
	// out and run afterwards, up to a second later.
	LostReply, Late float64
	Steps           []Step
	Crashes         []Crash
	Pauses          []Pause
	Scales          []Scale
	// Store is what happens to shards.
	Store StoreFaults
}

// Step is a step of the store's clock. A step forward refills at once and ends
// leases early: that is an exception to the envelope, and counted as above it.
type Step struct {
	At time.Duration
	By time.Duration // whole milliseconds
}

// Crash is the end of a pod: what it holds and whom it serves is lost, and its
// clients go to the others.
type Crash struct {
	At  time.Duration
	Pod int
}

// Pause is a pod that stands still while its monotonic clock goes on: what comes
// in the meantime waits for it.
type Pause struct {
	At  time.Duration
	Pod int
	For time.Duration
}

// Scale is a new number of pods: newcomers start empty, leavers give back what
// they hold.
type Scale struct {
	At   time.Duration
	Pods int
}

// Validate says what is wrong with the numbers, or nil.
func (c *Config) Validate() error {
	switch {
	case c.Pods < 1 || c.Pods > MaxPods:
		return fmt.Errorf("pods %d is not from 1 to %d", c.Pods, MaxPods)
	case c.Duration < time.Millisecond || c.Duration > MaxTime:
		return fmt.Errorf("a duration of %s is not from a millisecond to %s", c.Duration, MaxTime)
	case c.Network.Latency <= 0 || c.Network.Jitter < 0:
		return fmt.Errorf("a store latency of %s with a jitter of %s takes no time", c.Network.Latency, c.Network.Jitter)
	case max(c.Network.Latency, c.Network.Jitter, c.Network.Patience) > MaxNetwork:
		return fmt.Errorf("a store latency of %s, a jitter of %s or a patience of %s is above %s", c.Network.Latency, c.Network.Jitter, c.Network.Patience, MaxNetwork)
	case c.Network.Patience <= c.Network.Latency:
		return fmt.Errorf("a patience of %s is not above the store latency of %s", c.Network.Patience, c.Network.Latency)
	case c.Shards < 0 || c.Shards > MaxShards:
		return fmt.Errorf("shards %d is not from 1 to %d", c.Shards, MaxShards)
	case len(c.Rules) == 0 || len(c.Traffic) == 0:
		return fmt.Errorf("%d rules and %d kinds of traffic: at least one of each is needed", len(c.Rules), len(c.Traffic))
	}
	seen := map[string]bool{}
	for i := range c.Rules {
		r := &c.Rules[i]
		if err := r.validate(); err != nil {
			return fmt.Errorf("rule %q: %w", r.ID, err)
		}
		if seen[r.ID] {
			return fmt.Errorf("rule %q is there twice", r.ID)
		}
		seen[r.ID] = true
	}
	for i := range c.Traffic {
		if err := c.Traffic[i].validate(c); err != nil {
			return fmt.Errorf("traffic %d: %w", i+1, err)
		}
	}
	return c.Faults.validate(c)
}

func (r *Rule) validate() error {
	if err := algorithm.Check(&r.Limit); err != nil {
		return err
	}
	switch {
	case r.ID == "":
		return errors.New("has no id")
	case r.MaxCost < 1 || r.MaxCost > r.Limit.Full():
		return fmt.Errorf("max_cost %d is not from 1 to %d", r.MaxCost, r.Limit.Full())
	case r.Terms.Sync < 0 || r.Terms.Sync > MaxNetwork:
		return fmt.Errorf("sync_ms of %s is not from 0 to %s", r.Terms.Sync, MaxNetwork)
	case r.AllowanceMilli < 0 || r.AllowanceMilli > 1000:
		return fmt.Errorf("closed_allowance of %d thousandths is not from 1 to 1000", r.AllowanceMilli)
	case r.AllowanceMilli > 0 && !r.Closed:
		return errors.New("closed_allowance is of a rule with fail_mode closed")
	case r.MaxLease < 0:
		return fmt.Errorf("max_lease %d is negative", r.MaxLease)
	case r.Limit.Align != limit.AlignClock:
		return errors.New("only windows of the clock are simulated")
	}
	return nil
}

func (t *Traffic) validate(c *Config) error {
	switch {
	case len(t.Rules) < 1 || len(t.Rules) > MaxRules:
		return fmt.Errorf("%d rules are not 1 to %d", len(t.Rules), MaxRules)
	case t.FirstKey < 0 || t.Keys < 1 || t.FirstKey > MaxBuckets || t.Keys > MaxBuckets || (t.FirstKey+t.Keys)*len(c.Rules) > MaxBuckets:
		return fmt.Errorf("keys %d to %d of %d rules are not within %d buckets", t.FirstKey, t.FirstKey+t.Keys, len(c.Rules), MaxBuckets)
	case !(t.PerSecond*float64(t.Keys) >= minPerSecond && t.PerSecond*float64(t.Keys) <= float64(time.Second)): // NaN is in no range
		return fmt.Errorf("%g checks a second and key are less than one in %.0f days or more than one a nanosecond", t.PerSecond, 1/minPerSecond/86_400)
	case t.PerSecond*float64(t.Keys)*c.Duration.Seconds() > MaxChecks:
		return fmt.Errorf("%g checks a second and key over %s are more than %d in all", t.PerSecond, c.Duration, int64(MaxChecks))
	case t.Pinned < 0 || t.Pinned > c.Pods:
		return fmt.Errorf("pinned to %d of %d pods", t.Pinned, c.Pods)
	}
	seen := 0
	for _, r := range t.Rules {
		if r < 0 || r >= len(c.Rules) || seen&(1<<r) != 0 {
			return fmt.Errorf("rule number %d is unknown or there twice", r)
		}
		seen |= 1 << r
		if most := min(c.Rules[r].MaxCost, store.MaxOps*limit.MaxCost); t.Cost < 1 || t.Cost > most {
			return fmt.Errorf("cost %d is not from 1 to %d, the max_cost of %s", t.Cost, most, c.Rules[r].ID)
		}
	}
	return nil
}

func (f *Faults) validate(c *Config) error {
	if !(f.LostReply >= 0 && f.Late >= 0 && f.LostReply+f.Late <= 1) {
		return fmt.Errorf("%g lost and %g late replies are no parts of one", f.LostReply, f.Late)
	}
	for _, s := range f.Steps {
		if s.By%time.Millisecond != 0 || s.By.Abs() > MaxTime || !inTime(s.At) {
			return fmt.Errorf("a clock step of %s at %s is not of whole milliseconds, or above %s", s.By, s.At, MaxTime)
		}
		for i := range c.Rules {
			if c.Rules[i].Limit.Algorithm != limit.TokenBucket {
				return fmt.Errorf("rule %q: a clock step moves its windows, so that there is no true time to hold it to", c.Rules[i].ID)
			}
		}
	}
	most := c.Pods
	for _, s := range f.Scales {
		if s.Pods < 1 || s.Pods > MaxPods || !inTime(s.At) {
			return fmt.Errorf("autoscale to %d pods at %s is not from 1 to %d within %s", s.Pods, s.At, MaxPods, MaxTime)
		}
		most = max(most, s.Pods)
	}
	for _, p := range f.Pauses {
		if p.Pod < 0 || p.Pod >= most || p.For <= 0 || p.For > MaxTime || !inTime(p.At) {
			return fmt.Errorf("a pause of pod %d of %d for %s at %s", p.Pod, most, p.For, p.At)
		}
	}
	for _, p := range f.Crashes {
		if p.Pod < 0 || p.Pod >= most || !inTime(p.At) {
			return fmt.Errorf("a crash of pod %d of %d at %s", p.Pod, most, p.At)
		}
	}
	return f.Store.validate(c.shards())
}

func (c *Config) shards() int { return max(1, c.Shards) }

// mayFail reports whether any call may end without an answer.
func (c *Config) mayFail() bool {
	f := &c.Faults
	return f.LostReply+f.Late > 0 || len(f.Pauses) > 0 || f.Store.any() || c.Network.Latency+c.Network.Jitter > c.Network.Patience
}

// inTime reports whether something can happen then.
func inTime(at time.Duration) bool { return at >= 0 && at <= MaxTime }
