package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// Pods tell the store every beatEvery that they live, and are taken for gone
// after goneAfter without.
const (
	beatEvery = 2 * time.Second
	goneAfter = 3 * beatEvery
)

// errTimeout is what a pod hears when its patience ends.
var errTimeout = &store.StoreError{Kind: store.Timeout, Sent: true}

// machine is one pod and what is around it.
type machine struct {
	pod *pod.Pod
	// born is the true time at which the pod's own clock showed 0: no two show the
	// same.
	born    int64
	asleep  int64 // stands still until then
	crashed bool
	drained bool // takes no traffic and ticks no more
	// heard is the last beat the store knows; registered ends with a drain.
	heard      int64
	registered bool

	views []view // of the shards

	calls int32 // in this second
	open  []openSet
}

// openSet counts the calls under way for one bucket set.
type openSet struct {
	set   uint64
	count int32
}

// podNow is the pod's monotonic clock.
func (f *fleet) podNow(m *machine) int64 { return f.now - m.born }

// birth starts a pod.
func (f *fleet) birth() {
	at := int32(len(f.pods))
	born := f.now - int64(time.Second) - f.network.Int64N(int64(time.Second))
	m := machine{born: born, heard: f.now, registered: true, views: newViews(len(f.shards))}
	m.pod = pod.New(f.now-born, 0)
	f.pods = append(f.pods, m)
	f.live = append(f.live, at)
	f.heap.push(event{at: f.now + f.network.Int64N(int64(pod.TickEvery)), what: ticks, pod: at})
	f.heap.push(event{at: f.now + f.network.Int64N(int64(beatEvery)), what: beats, pod: at})
	if f.config.mayFail() {
		f.heap.push(event{at: f.now + f.moods.Int64N(int64(markEvery)), what: marks, pod: at})
	}
}

// defers puts off an event whose pod stands still, and reports whether it did.
func (f *fleet) defers(e *event) bool {
	m := &f.pods[e.pod]
	if m.crashed || f.now >= m.asleep {
		return false
	}
	e.at = m.asleep
	f.heap.push(*e)
	return true
}

// tick has a pod give back what nobody spends.
func (f *fleet) tick(p int32) {
	m := &f.pods[p]
	if m.crashed || m.drained {
		return
	}
	for _, c := range m.pod.Tick(f.podNow(m)) {
		f.send(p, c, forNobody)
	}
	f.heap.push(event{at: f.now + int64(pod.TickEvery), what: ticks, pod: p})
}

// beat has a pod tell the store that it lives, and learn who else does.
func (f *fleet) beat(p int32) {
	m := &f.pods[p]
	if m.crashed || m.drained {
		return
	}
	m.heard = f.now
	m.pod.SetPods(f.alive())
	f.heap.push(event{at: f.now + int64(beatEvery), what: beats, pod: p})
}

// alive is how many pods the store takes for alive.
func (f *fleet) alive() (n int64) {
	for i := range f.pods {
		if m := &f.pods[i]; m.registered && f.now-m.heard < int64(goneAfter) {
			n++
		}
	}
	return n
}

// drain stops a pod as a gateway is stopped: it takes no more traffic and gives
// back what it holds.
func (f *fleet) drain(p int32) {
	m := &f.pods[p]
	m.drained, m.registered = true, false
	for _, c := range f.releases(m) {
		f.send(p, c, forNobody)
	}
}

// releases are the calls that give back all a pod holds, in an order that is the
// same each time: the pod's is that of a map.
func (f *fleet) releases(m *machine) []*pod.Call {
	list := m.pod.Release(f.podNow(m))
	slices.SortFunc(list, func(a, b *pod.Call) int {
		x, y := &a.Ops[0].Bucket, &b.Ops[0].Bucket
		if c := strings.Compare(x.Key, y.Key); c != 0 {
			return c
		}
		return strings.Compare(x.Rule, y.Rule)
	})
	return list
}

// launched counts a call that begins.
func (m *machine) launched(set uint64, t *tally) {
	m.calls++
	for i := range m.open {
		if m.open[i].set == set {
			m.open[i].count++
			t.openMost = max(t.openMost, m.open[i].count)
			return
		}
	}
	t.openMost = max(t.openMost, 1)
	m.open = append(m.open, openSet{set, 1})
}

// landed counts a call that the pod has heard of.
func (m *machine) landed(set uint64) {
	for i := range m.open {
		if m.open[i].set != set {
			continue
		}
		if m.open[i].count--; m.open[i].count == 0 {
			last := len(m.open) - 1
			m.open[i] = m.open[last]
			m.open = m.open[:last]
		}
		return
	}
}

// finish ends the fleet: all pods give back what they hold, and what the store
// still takes for out is stranded.
func (f *fleet) finish() {
	for i := range f.pods {
		m := &f.pods[i]
		if m.crashed || m.drained {
			continue
		}
		for _, c := range f.releases(m) {
			numbers := make([]int32, len(c.Ops))
			for j := range c.Ops {
				numbers[j] = f.number(&c.Ops[j].Bucket)
			}
			f.store.take(f.nowMS(), c.Ops, numbers, nil)
		}
	}
	for i := range f.store.states {
		f.tally.stranded += f.store.out(f.nowMS(), int32(i))
	}
	f.envelope.Finish(f.nowMS())
	f.bounds.finish(f.nowMS())
}

func newStates(n int) []algorithm.State { return make([]algorithm.State, n) }
