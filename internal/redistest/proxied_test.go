package redistest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// mended returns the shared cluster behind proxies, whole and empty.
func mended(t *testing.T) *redistest.ProxiedCluster {
	t.Helper()
	c := redistest.SharedProxiedCluster(t)
	c.Mend(t)
	return c
}

// through connects to a node as a client does.
func through(t *testing.T, c *redistest.ProxiedCluster, n *redistest.Server) *redistest.Conn {
	t.Helper()
	conn, err := redistest.DialPlain(c.Front(n).Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func isProxy(c *redistest.ProxiedCluster, addr string) bool {
	for _, p := range c.Proxies {
		if p.Addr == addr {
			return true
		}
	}
	return false
}

// TestProxiedCluster: one after the other, each takes what the last one left.
func TestProxiedCluster(t *testing.T) {
	t.Parallel()
	t.Run("names proxies to clients", func(t *testing.T) { testNamesProxies(t, mended(t)) })
	t.Run("counts what clients do", func(t *testing.T) { testCounts(t, mended(t)) })
	t.Run("is mended after a kill of a whole shard", func(t *testing.T) {
		c := mended(t)
		n := c.Owner(t, 0)
		r := c.Replica(t, n)
		c.Kill(n)
		c.Kill(r)
		if _, err := redistest.DialPlain(c.Front(n).Addr); err == nil {
			t.Error("a killed node accepts connections")
		}
		mended(t)
	})
	t.Run("is mended after a restart before the timeout", func(t *testing.T) {
		c := mended(t)
		n := c.Owner(t, 0)
		n.MustDo(t, "SET", "{06S}k", "v") // slot 0
		c.Kill(n)
		c.Restart(t, n)
		mended(t)
		if c.Owner(t, 0) == n {
			if got := n.MustDo(t, "DBSIZE"); got != int64(0) {
				t.Errorf("it came back with %v keys", got)
			}
		}
	})
	t.Run("is mended while paused, and kills what is paused", func(t *testing.T) {
		c := mended(t)
		c.Nodes[0].Pause(t)
		mended(t)
		c.Nodes[1].Pause(t)
		c.Kill(c.Nodes[1])
		mended(t)
	})
	t.Run("fails over in three ways", func(t *testing.T) {
		for _, how := range []redistest.Takeover{redistest.Graceful, redistest.Forced, redistest.Alone} {
			c := mended(t)
			old := c.Owner(t, 100)
			replica := c.Replica(t, old)
			c.Failover(t, replica, how)
			c = mended(t)
			if got := c.Owner(t, 100); got != replica {
				t.Errorf("%q: owner is %s, want %s", how, got.Addr, replica.Addr)
			}
			if got := c.Replica(t, replica); got != old {
				t.Errorf("%q: replica is %s, want %s", how, got.Addr, old.Addr)
			}
		}
	})
	t.Run("is mended while a slot moves", func(t *testing.T) {
		c := mended(t)
		slot := c.Slot(t, "{m}a")
		from, to := c.Owner(t, slot), c.Primaries()[0]
		if from == to {
			to = c.Primaries()[1]
		}
		from.MustDo(t, "MSET", "{m}a", "1", "{m}b", "2")
		c.StartMove(t, slot, to)
		c.MoveKeys(t, slot, to, "{m}a")
		conn := through(t, c, from)
		if _, err := conn.Do("GET", "{m}a"); err == nil || !strings.HasPrefix(err.Error(), "ASK ") || !isProxy(c, strings.Fields(err.Error())[2]) {
			t.Errorf("err = %v, want ASK with a proxy's address", err)
		}
		c = mended(t)
		if got := c.Owner(t, slot).MustDo(t, "MGET", "{m}a", "{m}b"); fmt.Sprint(got) != "[<nil> <nil>]" {
			t.Errorf("MGET = %v, want nothing", got)
		}
	})
	t.Run("can have a wrong clock on one node", func(t *testing.T) {
		c := mended(t)
		c.Nodes[0].Clock(t).Set(t, -10*time.Second)
		if a, b := wrong(t, c.Nodes[0]), wrong(t, c.Nodes[1]); a != -10*time.Second || b != 0 {
			t.Errorf("clocks are wrong by %s and %s, want -10s and 0s", a, b)
		}
		if got := wrong(t, mended(t).Nodes[0]); got != 0 {
			t.Errorf("a mended clock is wrong by %s", got)
		}
	})
	t.Run("is parted and heals", func(t *testing.T) { testPartition(t, mended(t)) })
}

func testNamesProxies(t *testing.T, c *redistest.ProxiedCluster) {
	t.Helper()
	for _, addr := range c.Addrs() {
		if !isProxy(c, addr) {
			t.Errorf("%s is no proxy", addr)
		}
	}
	slot := c.Slot(t, "k")
	owner := c.Owner(t, slot)
	for _, n := range c.Nodes {
		conn := through(t, c, n)
		if n != owner {
			_, err := conn.Do("GET", "k")
			if want := fmt.Sprintf("MOVED %d %s", slot, c.Front(owner).Addr); err == nil || err.Error() != want {
				t.Errorf("GET at %s = %v, want %s", n.Addr, err, want)
			}
		}
		list, err := conn.Do("CLUSTER", "SLOTS")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.([]any) {
			for _, at := range r.([]any)[2:] {
				if addr := fmt.Sprintf("%s:%d", at.([]any)[0], at.([]any)[1]); !isProxy(c, addr) {
					t.Errorf("CLUSTER SLOTS names %s, which is no proxy", addr)
				}
			}
		}
	}
}

func testCounts(t *testing.T, c *redistest.ProxiedCluster) {
	t.Helper()
	n := c.Owner(t, c.Slot(t, "k"))
	conns, accepted, runs := n.Connections(t), c.Accepted(), n.ScriptRuns(t)
	conn := through(t, c, n)
	if _, err := conn.Do("EVALSHA", strings.Repeat("0", 40), "1", "k"); err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT") {
		t.Errorf("err = %v, want NOSCRIPT", err)
	}
	if _, err := conn.Do("EVAL", "return 1", "1", "k"); err != nil {
		t.Error(err)
	}
	if got := n.ScriptRuns(t) - runs; got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
	if a, b := n.Connections(t)-conns, c.Accepted()-accepted; a != 1 || b != 1 {
		t.Errorf("%d connections at the server, %d at the proxy; want 1 and 1", a, b)
	}
	// Replicas go on through the weather of clients.
	c.Front(n).Stall()
	defer c.Front(n).Pass(t)
	n.MustDo(t, "SET", "k", "v")
	if got := n.MustDo(t, "WAIT", "1", "5000"); got != int64(1) {
		t.Errorf("%v replicas followed during a stall of clients, want 1", got)
	}
}

func testPartition(t *testing.T, c *redistest.ProxiedCluster) {
	t.Helper()
	slot := c.Slot(t, "k")
	old := c.Owner(t, slot)
	replica := c.Replica(t, old)
	c.Isolate(t, old)
	if err := replica.Promoted(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	// The old one still answers clients, and knows that it is alone.
	soon(t, "the isolated primary is down", func() bool {
		_, err := through(t, c, old).Do("GET", "k")
		return err != nil && strings.HasPrefix(err.Error(), "CLUSTERDOWN")
	})
	c.Heal(t)
	c = mended(t)
	if got := c.Replica(t, replica); got != old {
		t.Errorf("%s follows, want the former primary %s", got.Addr, old.Addr)
	}
}
