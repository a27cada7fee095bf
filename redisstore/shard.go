package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/internal/breaker"
	"github.com/tallygate/tallygate/store"
)

// shard is one primary: the queue of calls to it, whether it is asked at all, and
// what is believed of its counts.
type shard struct {
	store *Store
	id    string // of the primary in its cluster; the address elsewhere
	addr  string

	fast *lane
	// slow is for calls that wait for replicas, on a connection of their own.
	slow *lane

	// epoch changes whenever the shard was found to have lost spends: calls packed
	// before are packed again.
	epoch   atomic.Uint32
	beating atomic.Bool
	figures shardFigures

	mu      sync.Mutex // guards what follows
	breaker breaker.Breaker
	hold    breaker.Hold
	marks   beat
	// replicas are the addresses of its replicas, as of the last view.
	replicas []string
	// suspect says that the shard may have lost spends and its beat must be read
	// before it is believed; dials is how many connections were made when it was.
	suspect bool
	dials   int64
}

// shardFigures count what happened at one shard.
type shardFigures struct {
	timeouts, failures, opened, behind, empty atomic.Int64
	usedBytes, maxBytes                       atomic.Int64
	memoryKnown                               atomic.Bool
}

func newShard(s *Store, id, addr string, marks beat) *shard {
	h := &shard{
		store: s, id: id, addr: addr, marks: marks,
		// One that follows another is not believed before its beat was read.
		suspect: marks.acked > 0,
		breaker: breaker.Breaker{Failures: s.conf.BreakerFailures, Within: s.conf.BreakerWithin, ProbeEvery: s.conf.ProbeEvery},
		hold:    breaker.Hold{BehindFor: s.conf.FailoverHold, EmptyFor: s.conf.EmptyHold},
	}
	h.fast = &lane{shard: h, node: newNode(s.options, addr), workers: laneWorkers, bound: s.conf.MaxInFlight}
	h.slow = &lane{shard: h, node: newNode(s.options, addr), workers: 1, bound: s.conf.MaxInFlight}
	return h
}

// ask sends a call and waits until deadline for what becomes of it, while the breaker
// lets it. It returns for how long the shard has been down, if that is why it was
// not sent.
func (h *shard) ask(ctx context.Context, c *call, deadline time.Time) (o outcome, down time.Duration) {
	h.mu.Lock()
	now := h.store.now()
	p := h.breaker.Ask(now)
	down = h.breaker.Down(now)
	h.mu.Unlock()
	if p == breaker.Refuse {
		return outcome{class: unsent, err: errDown}, down
	}
	lane := h.fast
	if c.replicas > 0 {
		lane = h.slow
	}
	c.until = deadline
	c.timer.Reset(time.Until(deadline))
	if err := lane.add(c); err == nil {
		o = c.wait(ctx, deadline)
	} else {
		o = outcome{class: unsent, err: err}
		if errors.Is(err, errClosed) {
			o.class = again // it owns nothing any more: who does is asked
		}
	}
	o.patient = lane == h.slow
	h.note(ctx, &o, now, p)
	return o, 0
}

// note takes what became of a call, asked for at askedNS, to the breaker. A caller
// that went by its own will says nothing of the shard, nor does one whose deadline was
// noticed late, since the pod itself did not run: a pause of the pod would end the
// asking of all shards. Nor does one that waited for a replica: the beats tell whether the primary answers.
// The probe's outcome always counts.
func (h *shard) note(ctx context.Context, o *outcome, askedNS int64, p breaker.Permit) {
	failed := o.class.failed()
	switch {
	case o.class == late && p != breaker.Probe && o.patient:
		return
	case o.class == late && p != breaker.Probe && (o.starved || errors.Is(ctx.Err(), context.Canceled)):
		return
	case p != breaker.Probe && (errors.Is(o.err, errQueue) || errors.Is(o.err, errClosed) || errors.Is(o.err, rueidis.ErrClosing)):
		return // our own doing
	case !failed && o.class != answered && p != breaker.Probe:
		return // routine, or of one key
	}
	now := h.store.now()
	h.mu.Lock()
	var opened, closed bool
	if failed {
		opened = h.breaker.Failure(now, askedNS, p, rand.Float64())
	} else if closed = h.breaker.Success(p); closed {
		h.suspect = true
	}
	if o.class == readOnly {
		h.suspect = true
	}
	h.mu.Unlock()
	if failed {
		h.figures.failures.Add(1)
		if o.class == late {
			h.figures.timeouts.Add(1)
		}
		h.store.topology.kick()
	}
	switch log := h.store.conf.Log; {
	case opened:
		h.figures.opened.Add(1)
		log.Error("a shard of the store does not answer; its rules' fail modes decide until a probe finds it back", "shard", h.addr, "error", o.err)
	case closed:
		log.Info("the shard answers again", "shard", h.addr)
	}
}

// reassure reads the shard's beat where it may have lost spends: after its breaker
// closed, a READONLY, a new connection, or when it follows another primary. Until
// that is done nothing is sent to it.
func (h *shard) reassure(client rueidis.Client) error {
	h.mu.Lock()
	if dials := h.fast.node.dials.Load() + h.slow.node.dials.Load(); dials != h.dials {
		h.suspect = h.suspect || h.dials > 0
		h.dials = dials
	}
	suspect, marks := h.suspect, h.marks
	h.mu.Unlock()
	if !suspect {
		return nil
	}
	var f breaker.Finding
	if marks.tag != "" {
		read, found, err := marks.read(client, h.store.conf.Pod)
		if class := sort(err); class == moved || class == asks {
			err = nil // the slot of the beat has gone elsewhere, which tells nothing
		} else if err == nil {
			f = marks.judge(h.store.now(), read, found)
		}
		if err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.suspect {
		return nil // another batch was faster
	}
	h.suspect = false
	h.found(f)
	return nil
}

// found takes in what a beat said; mu is held.
func (h *shard) found(f breaker.Finding) {
	if f == breaker.Current {
		return
	}
	h.hold.Note(h.store.now(), f)
	h.epoch.Add(1)
	h.marks.acked = 0 // what is missing was noticed
	log := h.store.conf.Log
	if f == breaker.Behind {
		h.figures.behind.Add(1)
		log.Warn("a failover lost the last spends of a shard; rules that fail closed deny for a while", "shard", h.addr, "for", h.hold.BehindFor)
		return
	}
	h.figures.empty.Add(1)
	log.Error("a shard came back without its keys; rules that fail closed deny and missing buckets start empty for a while", "shard", h.addr, "at_most", h.hold.EmptyFor)
}

// forgot reports whether the shard was found to have lost spends since epoch, by this
// batch, whose connection may be a new one, or by another: answers to rules that fail
// closed are then not believed.
func (h *shard) forgot(client rueidis.Client, epoch uint32) bool {
	return h.reassure(client) != nil || h.epoch.Load() != epoch
}

// refuses reports whether one of ops must not be answered, since the shard has lost
// spends.
func (h *shard) refuses(ops []store.Op) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hold.Held() {
		return false
	}
	now := h.store.now()
	for i := range ops {
		if h.hold.Refuses(now, &ops[i]) {
			return true
		}
	}
	return false
}

// stale returns how to tell buckets that are not full where they are missing; nil
// where none are.
func (h *shard) stale() func(*store.Op) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.hold.Held() {
		return nil
	}
	hold, now := h.hold, h.store.now()
	return func(op *store.Op) bool { return hold.Stale(now, op) }
}

// down is for how long the shard has been given up on.
func (h *shard) down() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.breaker.Down(h.store.now())
}

func (h *shard) close() {
	h.fast.close()
	h.slow.close()
}

// idle reports whether nothing is under way.
func (h *shard) idle() bool { return h.fast.idle() && h.slow.idle() }
