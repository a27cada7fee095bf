package redisstore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/internal/breaker"
)

const (
	// beatEvery is how often a pod writes its beat to every primary: what a shard
	// loses in a failover is told by it as long as the last beat is among that.
	beatEvery = 250 * time.Millisecond
	// beatLife is how long a beat is kept.
	beatLife = time.Hour
)

// beat is a number that this pod counts up in a key of its own in a slot of one
// primary. What is read there after a failover tells what was lost.
type beat struct {
	tag string // of a slot of that primary; "" before one is known
	// sent was written last and acked is known to have been written, at ackedNS; 0:
	// nothing was.
	sent, acked int64
	ackedNS     int64
}

// key is the beat's name in the store.
func (b *beat) key(pod string) string { return "tg:beat:{" + b.tag + "}:" + pod }

// judge says what is known from the number read, or from its absence.
func (b *beat) judge(now, read int64, found bool) breaker.Finding {
	switch {
	case b.acked == 0 || now-b.ackedNS >= int64(beatLife):
		return breaker.Current // nothing is known to be missing
	case !found:
		return breaker.Empty
	case read < b.acked:
		return breaker.Behind
	default:
		return breaker.Current
	}
}

// read asks the server for the beat.
func (b *beat) read(client rueidis.Client, pod string) (n int64, found bool, err error) {
	text, err := client.Do(context.Background(), client.B().Arbitrary("GET").Keys(b.key(pod)).Build()).ToString()
	if rueidis.IsRedisNil(err) || code(err) == "WRONGTYPE" {
		return 0, false, nil // what is not ours is not the beat
	}
	if err != nil {
		return 0, false, err
	}
	n, err = strconv.ParseInt(text, 10, 64)
	return n, err == nil, nil
}

var (
	// errChanged is of calls that were packed before the shard was found empty.
	errChanged = errors.New("the shard has changed")
	// errForgot is what rules that fail closed get from a shard that lost spends.
	errForgot = errors.New("the shard has lost spends, in a failover or a restart")
	// errReplicas is what a call gets whose spend too few replicas have in time.
	errReplicas = errors.New("not enough replicas have the spend")
)

// prepare connects to a shard that is about to be probed: the probe has no more time
// than any call, and a connection may take all of it.
func (h *shard) prepare() {
	h.mu.Lock()
	soon := h.breaker.Soon(h.store.now(), beatEvery)
	h.mu.Unlock()
	if soon {
		_, _ = h.fast.node.ready() // the probe will tell
	}
}

// beat writes the shard's beat, in a call like any other: where the breaker is open
// and no check comes it is the probe.
func (h *shard) beat(ctx context.Context) {
	h.mu.Lock()
	if h.marks.tag == "" {
		h.mu.Unlock()
		return
	}
	h.marks.sent++
	n, key := h.marks.sent, h.marks.key(h.store.conf.Pod)
	h.mu.Unlock()
	c := &call{
		words: []string{"SET", key, strconv.FormatInt(n, 10), "PX", strconv.FormatInt(beatLife.Milliseconds(), 10)},
		done:  make(chan outcome, 1), timer: time.NewTimer(time.Hour),
	}
	if o, _ := h.ask(ctx, c, time.Now().Add(h.store.conf.Deadline)); o.class == answered {
		h.mu.Lock()
		h.marks.acked, h.marks.ackedNS = max(n, h.marks.acked), h.store.now()
		h.mu.Unlock()
	}
}

// beats writes all beats, side by side, until ctx ends.
func (s *Store) beats(ctx context.Context) {
	every := time.NewTicker(beatEvery)
	defer every.Stop()
	for {
		for _, h := range s.topology.shards() {
			if h.beating.CompareAndSwap(false, true) {
				s.work.Go(func() {
					defer h.beating.Store(false)
					h.prepare()
					h.beat(ctx)
				})
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
