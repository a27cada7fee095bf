package redisstore

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// refreshEvery is how often a cluster is asked who owns which slots, and
	// refreshDown how often while a shard does not answer.
	refreshEvery = 2 * time.Second
	refreshDown  = 400 * time.Millisecond
	// refreshGap is the least time between two questions, however many redirections
	// ask for one.
	refreshGap = 100 * time.Millisecond
	// refreshWithin bounds one question, and refreshAsk how many servers get it: the
	// view with the latest epoch counts.
	refreshWithin = 300 * time.Millisecond
	refreshAsk    = 3
	// believeOlder is how many times in a row none of them knows of the last epoch
	// before what they say counts all the same.
	believeOlder = 5
)

// topology knows which shard owns a slot. A cluster is asked from time to time, and
// whenever something says that it has changed; anything else is one shard.
type topology struct {
	store *Store
	// single is the one shard of what is no cluster.
	single *shard
	owners [slots]atomic.Pointer[shard]
	kicked chan struct{}

	mu      sync.Mutex // guards what follows
	known   map[string]*shard
	retired []*shard
	// seeds are servers that own no slots: replicas, and what the settings name.
	seeds map[string]*node
	epoch int64
	// older is how many views in a row were of an earlier epoch.
	older  int
	closed bool
}

func newTopology(s *Store) *topology {
	return &topology{store: s, kicked: make(chan struct{}, 1), known: map[string]*shard{}, seeds: map[string]*node{}}
}

// owner returns the shard of a slot; nil where nobody is known to have it.
func (t *topology) owner(slot int) *shard {
	if t.single != nil {
		return t.single
	}
	return t.owners[slot].Load()
}

// shards returns all that own slots.
func (t *topology) shards() []*shard {
	if t.single != nil {
		return []*shard{t.single}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.known), func(a, b *shard) int { return cmp.Compare(a.addr, b.addr) })
}

// shardAt returns the shard with that address; nil where none has it any more.
func (t *topology) shardAt(addr string) *shard {
	for _, h := range t.shards() {
		if h.addr == addr {
			return h
		}
	}
	return nil
}

// kick asks for a refresh soon.
func (t *topology) kick() {
	if t.single != nil {
		return
	}
	select {
	case t.kicked <- struct{}{}:
	default:
	}
}

// moved takes in a redirection of a slot for good, and returns where to.
func (t *topology) moved(slot int, addr string) *shard {
	t.mu.Lock()
	defer t.mu.Unlock()
	var marks beat
	if before := t.owners[slot].Load(); before != nil && before.addr != addr {
		// Where it has taken over from that one, what was written there last must be here.
		before.mu.Lock()
		marks = before.marks
		before.mu.Unlock()
	}
	h := t.atLocked(addr, marks)
	t.owners[slot].Store(h)
	t.kick()
	return h
}

// at returns the shard at an address. One that is not known yet gets its name with
// the next refresh.
func (t *topology) at(addr string) *shard {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.atLocked(addr, beat{})
}

// atLocked is at with the beat of the shard it may follow; mu is held.
func (t *topology) atLocked(addr string, marks beat) *shard {
	for _, h := range t.known {
		if h.addr == addr {
			return h
		}
	}
	h := newShard(t.store, addr, addr, marks)
	if t.closed {
		h.fast.closed, h.slow.closed = true, true // nobody would close it
		return h
	}
	t.known[addr] = h
	return h
}

// follow refreshes until ctx ends.
func (t *topology) follow(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		every := refreshEvery
		if slices.ContainsFunc(t.shards(), func(h *shard) bool { return h.down() > 0 }) {
			every = refreshDown
		}
		timer.Reset(every/2 + time.Duration(rand.Int64N(int64(every)/2)))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.kicked:
		}
		if err := t.refresh(); err != nil {
			t.store.conf.Log.Debug("the cluster could not be asked for its slots", "error", err)
		}
		t.sweep()
		select {
		case <-ctx.Done():
			return
		case <-time.After(refreshGap):
		}
	}
}

// refresh asks a few servers side by side and takes the view with the latest epoch:
// one that is cut off still believes what was.
func (t *topology) refresh() error {
	nodes := t.candidates()
	views := make(chan view, len(nodes))
	for _, n := range nodes {
		t.store.work.Go(func() { views <- ask(n) })
	}
	timeout := time.NewTimer(refreshWithin)
	defer timeout.Stop()
	var best view
	for range nodes {
		select {
		case v := <-views:
			if best.ranges == nil || v.err == nil && v.later(&best) {
				best = v
			}
			continue
		case <-timeout.C:
		}
		break
	}
	if best.ranges == nil {
		return cmp.Or(best.err, context.DeadlineExceeded)
	}
	t.adopt(best)
	return nil
}

// candidates are the servers to ask now: those that answer first, in any order.
func (t *topology) candidates() []*node {
	t.mu.Lock()
	defer t.mu.Unlock()
	var up, rest []*node
	primaries := map[string]bool{}
	for _, h := range t.known {
		primaries[h.addr] = true
		if h.down() == 0 {
			up = append(up, h.slow.node)
		} else {
			rest = append(rest, h.slow.node)
		}
	}
	for addr, n := range t.seeds {
		if !primaries[addr] { // those are asked by their own connections
			rest = append(rest, n)
		}
	}
	shuffle(up)
	shuffle(rest)
	list := append(up, rest...)
	return list[:min(len(list), refreshAsk)]
}

func shuffle(nodes []*node) {
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
}

// adopt makes a view the one that counts, unless it is older than that.
func (t *topology) adopt(v view) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(v.ranges) == 0 {
		return // or one server that was reset would end the asking of all others
	}
	if v.epoch < t.epoch {
		// One that is cut off, or a cluster that was made anew: then all say so.
		if t.older++; t.older < believeOlder || v.owned() < slots {
			return
		}
		t.store.conf.Log.Warn("the cluster is an earlier or another one than before; going by what it says now")
	}
	t.epoch, t.older = v.epoch, 0
	t.disown(v.ranges)
	old := t.known
	beats := inherited(old, v.ranges)
	t.known = make(map[string]*shard, len(old))
	replicas := map[string]bool{}
	for _, r := range v.ranges {
		h := t.known[r.id]
		if h == nil {
			if h = old[r.id]; h == nil || h.addr != r.addr {
				h = old[r.addr] // made by a redirection, which knows no ids
			}
			if h == nil || h.addr != r.addr {
				h = newShard(t.store, r.id, r.addr, beats[r.id])
			}
			t.known[r.id] = h
		}
		h.mu.Lock()
		h.id, h.replicas = r.id, r.replicas
		h.mu.Unlock()
		for slot := r.from; slot <= r.to; slot++ {
			t.owners[slot].Store(h)
		}
		for _, addr := range r.replicas {
			replicas[addr] = true
			t.seed(addr)
		}
	}
	kept := map[*shard]bool{}
	for _, h := range t.known {
		kept[h] = true
	}
	for _, h := range old {
		if !kept[h] {
			t.retired = append(t.retired, h)
		}
	}
	for _, h := range t.known {
		h.mark(t)
	}
	t.forget(replicas)
}

// disown forgets who owned the slots that nobody has in a view.
func (t *topology) disown(ranges []slotRange) {
	var owned [slots]bool
	for _, r := range ranges {
		for slot := r.from; slot <= r.to; slot++ {
			owned[slot] = true
		}
	}
	for slot, is := range owned {
		if !is {
			t.owners[slot].Store(nil)
		}
	}
}

// inherited returns, by the ids of those who own the slots now, the beats of the
// shards that owned them before.
func inherited(old map[string]*shard, ranges []slotRange) map[string]beat {
	beats := map[string]beat{}
	for id, h := range old {
		h.mu.Lock()
		marks := h.marks
		h.mu.Unlock()
		if marks.tag == "" {
			continue
		}
		slot := Slot(marks.tag)
		for _, r := range ranges {
			if r.from <= slot && slot <= r.to && r.id != id {
				beats[r.id] = marks
			}
		}
	}
	return beats
}

// mark gives a shard a tag of a slot of its own for its beat, where the one it has
// is not (any more). The topology's mu is held.
func (h *shard) mark(t *topology) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.marks.tag != "" && t.owners[Slot(h.marks.tag)].Load() == h {
		return
	}
	h.marks = beat{}
	// With a handful of primaries one of the first tags is ours; a primary with next
	// to no slots may have none of them, and then goes without.
	for i := range slots {
		tag := strconv.Itoa(i)
		if t.owners[Slot(tag)].Load() == h {
			h.marks.tag = tag
			return
		}
	}
}

// seed remembers a server to ask that owns no slots.
func (t *topology) seed(addr string) {
	if t.seeds[addr] == nil {
		t.seeds[addr] = newNode(t.store.options, addr)
	}
}

// forget drops seeds that are no replicas of the cluster. Those that the settings
// name stay as long as there is one, but not their connections: a primary has some
// already.
func (t *topology) forget(replicas map[string]bool) {
	for addr, n := range t.seeds {
		if replicas[addr] {
			continue
		}
		delete(t.seeds, addr)
		if t.single == nil && slices.Contains(t.store.options.InitAddress, addr) {
			if n.unused() {
				t.seeds[addr] = n
				continue
			}
			t.seed(addr)
		}
		t.store.work.Go(n.close) // it may be connecting
	}
}

// sweep closes the shards that own nothing any more, when nothing is under way there.
func (t *topology) sweep() {
	t.mu.Lock()
	var idle []*shard
	t.retired = slices.DeleteFunc(t.retired, func(h *shard) bool {
		if h.idle() {
			idle = append(idle, h)
			return true
		}
		return false
	})
	t.mu.Unlock()
	for _, h := range idle {
		h.close()
	}
}

func (t *topology) close() {
	t.mu.Lock()
	t.closed = true
	list := slices.Concat(slices.Collect(maps.Values(t.known)), t.retired)
	seeds := slices.Collect(maps.Values(t.seeds))
	if t.single != nil {
		list = append(list, t.single)
	}
	t.mu.Unlock()
	for _, h := range list {
		h.close()
	}
	for _, n := range seeds {
		n.close()
	}
}
