package redisstore

import (
	"slices"

	"github.com/tallygate/tallygate/store"
)

// Node is a primary as the store knows it.
type Node struct {
	// Addr is its address; behind sentinels the name they know it by.
	Addr string
	// ID names it in its cluster, and Slots is how many it has there; "" and 0 of any
	// other server.
	ID    string
	Slots int
	// Replicas are the addresses of its replicas as far as a cluster has said so.
	Replicas []string
}

// Place says where a bucket lies.
type Place struct {
	// Key is the bucket's name in Redis.
	Key string
	// Slot is its hash slot; it means nothing where Cluster is false, as there is
	// one server.
	Slot    int
	Cluster bool
	// Primary holds it. Without an Addr nobody is known to serve the slot.
	Primary Node
}

// Place returns where the bucket lies now, without asking the servers again.
func (s *Store) Place(b store.Bucket) Place {
	p := Place{Key: string(s.appendKey(nil, &b)), Cluster: s.bySlot}
	if s.bySlot {
		p.Slot = Slot(p.Key)
	}
	if h := s.topology.owner(p.Slot); h != nil {
		for _, n := range s.Primaries() {
			if n.Addr == h.addr {
				p.Primary = n
			}
		}
	}
	return p
}

// Primaries returns the servers that hold buckets, by address.
func (s *Store) Primaries() []Node {
	counts := map[*shard]int{}
	if s.bySlot {
		for slot := range slots {
			counts[s.topology.owner(slot)]++
		}
	}
	shards := s.topology.shards()
	nodes := make([]Node, 0, len(shards))
	for _, h := range shards {
		n := Node{Addr: h.addr, Slots: counts[h]}
		if s.bySlot {
			n.ID, n.Replicas = h.named()
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// named is the shard's id and its replicas as of the last view.
func (h *shard) named() (id string, replicas []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.id, slices.Clone(h.replicas)
}
