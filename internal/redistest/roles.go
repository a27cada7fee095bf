package redistest

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// Slot returns the hash slot of a key.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	n, _ := c.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", key).(int64)
	return int(n)
}

// Owner returns the primary that serves a slot now, in the eyes of the first
// node that answers.
func (c *Cluster) Owner(t testing.TB, slot int) *Server {
	t.Helper()
	owner := ownerIn(c.ranges(), slot)
	if owner == nil {
		t.Fatalf("nobody serves slot %d", slot)
	}
	return owner
}

// ownerIn returns who serves a slot; nil for nobody of ours.
func ownerIn(ranges []slotRange, slot int) *Server {
	for _, s := range ranges {
		if s.from <= int64(slot) && int64(slot) <= s.to && s.owner != nil {
			return s.owner
		}
	}
	return nil
}

// slotRange are slots of one owner.
type slotRange struct {
	from, to int64
	owner    *Server // nil for a node that is none of ours
}

// ranges returns who serves which slots in the eyes of the first node that
// answers; nothing if none does.
func (c *Cluster) ranges() []slotRange {
	for _, n := range c.Nodes {
		if n.paused.Load() {
			continue
		}
		if ranges, err := c.rangesBy(n); err == nil {
			return ranges
		}
	}
	return nil
}

// rangesBy returns who serves which slots in the eyes of one node.
func (c *Cluster) rangesBy(n *Server) ([]slotRange, error) {
	reply, err := n.Do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	list, _ := reply.([]any)
	ranges := make([]slotRange, len(list))
	for i := range list {
		entry, _ := list[i].([]any)
		at, _ := entry[2].([]any)
		port, _ := at[1].(int64)
		ranges[i].from, _ = entry[0].(int64)
		ranges[i].to, _ = entry[1].(int64)
		ranges[i].owner = c.announcing(port)
	}
	return ranges, nil
}

// announcing returns the node that names this port to others.
func (c *Cluster) announcing(port int64) *Server {
	for _, n := range c.Nodes {
		if int64(n.announced) == port {
			return n
		}
	}
	return nil
}

// Primaries returns the nodes that are primaries now and answer.
func (c *Cluster) Primaries() []*Server { return c.withRole("master") }

// Replicas returns the nodes that are replicas now and answer.
func (c *Cluster) Replicas() []*Server { return c.withRole("slave") }

func (c *Cluster) withRole(role string) []*Server {
	var list []*Server
	for _, n := range c.Nodes {
		if n.paused.Load() {
			continue
		}
		if info, err := n.Info("replication"); err == nil && info["role"] == role {
			list = append(list, n)
		}
	}
	return list
}

// Replica returns a replica that follows this primary now.
func (c *Cluster) Replica(t testing.TB, primary *Server) *Server {
	t.Helper()
	for _, n := range c.Replicas() {
		if n.follows() == primary.announced {
			return n
		}
	}
	t.Fatalf("nobody follows %s", primary.Addr)
	return nil
}

// follows is the port of the primary a replica follows, 0 for a primary.
func (s *Server) follows() int {
	info, err := s.Info("replication")
	if err != nil || info["role"] != "slave" {
		return 0
	}
	port, _ := strconv.Atoi(info["master_port"])
	return port
}

// Takeover is how a replica becomes the primary.
type Takeover string

// The ways: with the primary's consent and nothing lost; without it, by vote of
// the other primaries; without anybody's.
const (
	Graceful Takeover = ""
	Forced   Takeover = "FORCE"
	Alone    Takeover = "TAKEOVER"
)

// Failover makes a replica the primary of its shard and returns when it says that
// it is.
func (c *Cluster) Failover(t testing.TB, replica *Server, how Takeover) {
	t.Helper()
	args := []string{"CLUSTER", "FAILOVER"}
	if how != Graceful {
		args = append(args, string(how))
	}
	replica.MustDo(t, args...)
	if err := replica.Promoted(settleTimeout); err != nil {
		t.Fatal(err)
	}
}

// Promoted waits until the server is a primary.
func (s *Server) Promoted(within time.Duration) error {
	return s.waitFor(within, "become a primary", func() error {
		info, err := s.Info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("its role is %q", info["role"])
		}
		return err
	})
}
