package redisstore

import (
	"context"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/store"
)

// memoryEvery is how often each primary is asked how full it is.
const memoryEvery = 10 * time.Second

// Health implements store.Healther.
func (s *Store) Health() store.Health {
	health := store.Health{LostUndos: s.LostUndos()}
	for _, h := range s.topology.shards() {
		f := &h.figures
		health.Shards = append(health.Shards, store.ShardHealth{
			Shard: h.addr, Down: h.down(),
			Timeouts: f.timeouts.Load(), Failures: f.failures.Load(), Opened: f.opened.Load(),
			Behind: f.behind.Load(), Empty: f.empty.Load(),
			UsedBytes: f.usedBytes.Load(), MaxBytes: f.maxBytes.Load(), MemoryKnown: f.memoryKnown.Load(),
		})
	}
	return health
}

var _ store.Healther = (*Store)(nil)

// watchMemory asks the primaries how full they are, until ctx ends. Without the
// right to ask it is not known.
func (s *Store) watchMemory(ctx context.Context) {
	every := time.NewTicker(memoryEvery)
	defer every.Stop()
	for {
		for _, h := range s.topology.shards() {
			if h.down() == 0 {
				h.readMemory()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (h *shard) readMemory() {
	text, err := h.slow.node.do("INFO", "memory").ToString()
	used, usedErr := strconv.ParseInt(field(text, "used_memory"), 10, 64)
	most, mostErr := strconv.ParseInt(field(text, "maxmemory"), 10, 64)
	known := err == nil && usedErr == nil && mostErr == nil
	if known {
		h.figures.usedBytes.Store(used)
		h.figures.maxBytes.Store(most)
	}
	h.figures.memoryKnown.Store(known)
}
