package sim

import (
	"math/rand/v2"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// epochMS is the store's clock when a simulation starts: a whole number of days,
// so that windows start there too.
const epochMS = 20_000 * limit.DayMS

// fleet is a simulation under way.
type fleet struct {
	config *Config
	// traffic, network and moods are the sources of what is random: who asks, what
	// becomes of calls, and when pods try a shard again.
	traffic, network, moods *rand.Rand

	now       int64 // ns since the start, the true time
	heap      heap
	deadlines queue
	ended     bool // no more traffic

	pods []machine
	live []int32 // the pods that traffic goes to
	plan []fault

	limits []*limit.Limit // by bucket
	store  accounts
	shards []shard
	keys   []string // the buckets' names, by key
	kinds  []source

	checks     []check
	freeChecks []int32
	waiting    map[*pod.Waiter]int32
	calls      []call
	freeCalls  []int32
	grants     []store.Grant // of a local answer

	tally    tally
	envelope *Envelope
	bounds   *bounds  // of what is admitted without the store; nil until some is
	exact    accounts // what one exact limiter in front of the same traffic would do

	// Planted faults, in tests of who must find them: blind pods never notice what a
	// shard lost, and spoil chooses who answers for a pod without the store.
	blind bool
	spoil func(p int32, err error) (*pod.Pod, error)
}

// Run steps a simulation to its end.
func Run(c Config) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f := newFleet(&c)
	f.run()
	return f.result(), nil
}

func newFleet(c *Config) *fleet {
	keys := 0
	for i := range c.Traffic {
		keys = max(keys, c.Traffic[i].FirstKey+c.Traffic[i].Keys)
	}
	n := keys * len(c.Rules)
	f := &fleet{
		config:  c,
		traffic: rand.New(rand.NewPCG(c.Seed, 1)),
		network: rand.New(rand.NewPCG(c.Seed, 2)),
		moods:   rand.New(rand.NewPCG(c.Seed, 3)),
		shards:  make([]shard, c.shards()),
		keys:    make([]string, keys),
		limits:  make([]*limit.Limit, n),
		waiting: map[*pod.Waiter]int32{},
	}
	for i := range f.keys {
		f.keys[i] = keyName(i)
	}
	for i := range f.limits {
		f.limits[i] = &c.Rules[i%len(c.Rules)].Limit
	}
	f.store.states = newStates(n)
	f.exact.states = newStates(n)
	f.tally = newTally(c, n)
	f.envelope = NewEnvelope(f.limits, epochMS, lagMS(c))
	if c.mayFail() {
		f.bounds = newBounds(c, f.limits)
	}
	f.kinds = make([]source, len(c.Traffic))
	for i := range c.Traffic {
		f.start(int32(i))
	}
	for range c.Pods {
		f.birth()
	}
	for i := range f.pods {
		f.pods[i].pod.SetPods(int64(c.Pods))
	}
	f.schedule()
	f.heap.push(event{at: int64(sampleEvery), what: samples})
	f.heap.push(event{at: int64(time.Second), what: seconds})
	f.heap.push(event{at: int64(c.Duration), what: ends})
	return f
}

// lagMS is how late an admission may be told: an answer may wait for a pod that
// stands still, in each of its pauses.
func lagMS(c *Config) int64 {
	lag := c.Network.Patience + c.Network.Latency + c.Network.Jitter
	for _, p := range c.Faults.Pauses {
		lag += p.For
	}
	return lag.Milliseconds() + 2
}

// nowMS is the true time on the scale of the store's clock.
func (f *fleet) nowMS() int64 { return epochMS + f.now/int64(time.Millisecond) }

// run steps from event to event until all that began has ended.
func (f *fleet) run() {
	for {
		d := f.deadlines.next()
		if d != nil && (len(f.heap.events) == 0 || d.at <= f.heap.events[0].at) {
			f.now = d.at
			expired := *d
			f.deadlines.drop()
			f.expire(expired.check, expired.serial)
			continue
		}
		if len(f.heap.events) == 0 || f.ended && f.quiet() {
			break
		}
		f.now = f.heap.events[0].at
		if f.heap.events[0].what == arrives {
			f.arrive()
			continue
		}
		f.step(f.heap.pop())
	}
	f.finish()
}

// quiet reports whether nobody waits any more.
func (f *fleet) quiet() bool {
	return f.deadlines.count == 0 && len(f.waiting) == 0 && len(f.freeCalls) == len(f.calls)
}

// step does what an event says.
func (f *fleet) step(e event) {
	switch e.what {
	case delivers, replies, expires, ticks, beats, marks:
		if f.defers(&e) {
			return
		}
	case arrives, runs, samples, seconds, fails, ends:
	}
	switch e.what {
	case delivers:
		f.check(e.pod, e.ref, e.extra)
	case runs:
		f.runCall(e.ref)
	case replies:
		f.reply(e.ref)
	case expires:
		f.expire(e.ref, e.extra)
	case ticks:
		f.tick(e.pod)
	case beats:
		f.beat(e.pod)
	case marks:
		f.mark(e.pod)
	case samples:
		f.sample()
	case seconds:
		f.second()
	case fails:
		f.fail(&f.plan[e.ref])
	case ends:
		f.ended = true
	case arrives: // see run
	}
}
