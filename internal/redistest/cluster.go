package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The shape of a cluster.
const (
	primaries   = 3
	slots       = 16_384
	nodeTimeout = 500 * time.Millisecond
)

// Cluster is a running Redis Cluster of three primaries with a replica each.
// A node that is away for half a second is taken for dead; the other shards
// serve on.
type Cluster struct {
	// Nodes are the servers: at first 0 to 2 are the primaries and 3 to 5 their
	// replicas in the same order.
	Nodes []*Server
}

// NewCluster starts a cluster for this test and returns when every node says that
// it works and every replica is in step. That takes about two seconds: tests of
// one package better share one, see SharedCluster.
func NewCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	needRedis(t)
	c, err := startCluster(t.TempDir(), args...)
	return started(t, c, err, c.watch)
}

func (c *Cluster) watch(t testing.TB) {
	t.Helper()
	for _, n := range c.Nodes {
		n.watch(t)
	}
}

func (c *Cluster) stop() { stopAll(c.Nodes) }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, n := range c.Nodes {
		addrs[i] = n.Addr
	}
	return addrs
}

// startCluster starts nodes on one address.
func startCluster(dir string, args ...string) (*Cluster, error) {
	return formCluster(dir, func(_ int, home string) (*Server, error) {
		return startServer(home, append(nodeArgs(loopback), args...)...)
	})
}

// nodeArgs are the settings of a node that others find at host. Without the
// announced address, nodes may learn another one of this machine and wait for each
// other for ever.
func nodeArgs(host string) []string {
	return []string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.FormatInt(nodeTimeout.Milliseconds(), 10),
		"--cluster-require-full-coverage", "no",
		"--cluster-announce-ip", host,
	}
}

// formCluster has start start the nodes, each in a folder of its own, and makes
// them one cluster.
func formCluster(dir string, start func(i int, home string) (*Server, error)) (_ *Cluster, err error) {
	c := new(Cluster)
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	for i := range 2 * primaries {
		home := filepath.Join(dir, "node"+strconv.Itoa(i))
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, fmt.Errorf("make a node's folder: %w", err)
		}
		node, err := start(i, home)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, node)
	}
	for _, step := range []func() error{c.giveSlots, c.meet, c.replicate, c.Settled} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// giveSlots splits the slots between the primaries.
func (c *Cluster) giveSlots() error {
	for i, n := range c.Nodes {
		if _, err := n.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return fmt.Errorf("set the epoch of %s: %w", n.Addr, err)
		}
	}
	for i, n := range c.Nodes[:primaries] {
		from, to := i*slots/primaries, (i+1)*slots/primaries-1
		if _, err := n.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(from), strconv.Itoa(to)); err != nil {
			return fmt.Errorf("give slots to %s: %w", n.Addr, err)
		}
	}
	return nil
}

// meet makes every node known to every other.
func (c *Cluster) meet() error {
	for _, n := range c.Nodes {
		for _, other := range c.Nodes {
			if n == other {
				continue
			}
			if _, err := n.Do("CLUSTER", "MEET", other.Host, strconv.Itoa(other.Port)); err != nil {
				return fmt.Errorf("have %s meet %s: %w", n.Addr, other.Addr, err)
			}
		}
	}
	return nil
}

// replicate makes the second half of the nodes replicas of the first.
func (c *Cluster) replicate() error {
	for i, n := range c.Nodes[primaries:] {
		id, err := c.Nodes[i].ID()
		if err != nil {
			return err
		}
		// Refused until the two have met.
		err = n.waitFor(settleTimeout, "become a replica", func() error {
			_, err := n.Do("CLUSTER", "REPLICATE", id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Settled waits until the cluster is whole: every node says that it works, knows
// all others as reachable, and every replica is in step with its primary. To be
// called after a fault was mended, before the next.
func (c *Cluster) Settled() error {
	for _, n := range c.Nodes {
		if err := n.waitFor(settleTimeout, "find its cluster whole", func() error { return n.whole(len(c.Nodes)) }); err != nil {
			return err
		}
	}
	return nil
}

// whole says what is not yet as it should be in the eyes of this node.
func (s *Server) whole(nodes int) error {
	reply, err := s.Do("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	info := fields(text)
	for name, want := range map[string]string{
		"cluster_state": "ok", "cluster_slots_ok": strconv.Itoa(slots), "cluster_known_nodes": strconv.Itoa(nodes), "cluster_size": strconv.Itoa(primaries),
	} {
		if info[name] != want {
			return fmt.Errorf("%s is %q, want %q", name, info[name], want)
		}
	}
	reply, err = s.Do("CLUSTER", "NODES")
	if err != nil {
		return err
	}
	text, _ = reply.(string)
	if strings.Contains(text, "fail") || strings.Contains(text, "handshake") {
		return fmt.Errorf("a node is not reachable:\n%s", text)
	}
	if got := strings.Count(text, "slave"); got != nodes-primaries {
		return fmt.Errorf("%d replicas known, want %d", got, nodes-primaries)
	}
	return s.inStep()
}

// inStep says whether replication of this node, primary or replica, is not yet up.
func (s *Server) inStep() error {
	info, err := s.Info("replication")
	if err != nil {
		return err
	}
	if info["role"] == "slave" {
		if info["master_link_status"] != "up" {
			return fmt.Errorf("link to the primary is %s", info["master_link_status"])
		}
		return nil
	}
	if !strings.Contains(info["slave0"], "state=online") {
		return fmt.Errorf("replica is %q", info["slave0"])
	}
	return nil
}

// ID returns the node's id in its cluster.
func (s *Server) ID() (string, error) {
	reply, err := s.Do("CLUSTER", "MYID")
	if err != nil {
		return "", fmt.Errorf("ask %s for its id: %w", s.Addr, err)
	}
	id, _ := reply.(string)
	return id, nil
}

func mustID(t testing.TB, s *Server) string {
	t.Helper()
	id, err := s.ID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}
