package redistest

import (
	"errors"
	"net/netip"
	"runtime"
	"strconv"
	"testing"
)

// ProxiedCluster is a cluster whose nodes tell clients the ports of proxies: every
// connection of a client goes through one, wherever it learnt the address. The bus
// between the nodes, and replication, pass untouched. Each node has an address of
// its own, so that a Partition can tell them apart, and its own Clock where there
// is gcc. It needs Linux, on which all of 127/8 is this machine.
type ProxiedCluster struct {
	*Cluster
	// Proxies stand before the Nodes, in the same order.
	Proxies []*Proxy

	partition partition
}

// nodesNet is where nodes with an address of their own are: see ownHost.
var nodesNet = netip.MustParsePrefix("127.7.0.0/16") //nolint:gochecknoglobals // a constant

// NewProxiedCluster starts such a cluster for this test.
func NewProxiedCluster(t testing.TB, args ...string) *ProxiedCluster {
	t.Helper()
	needRedis(t)
	needLinux(t)
	c, err := startProxied(t.TempDir(), args...)
	return started(t, c, err, func(t testing.TB) {
		t.Helper()
		c.watch(t)
		t.Cleanup(c.stop)
	})
}

// SharedProxiedCluster returns the one such cluster of this test binary; the first
// test that asks starts it. A test takes it mended and hands it on as it is: see
// Mend.
func SharedProxiedCluster(t testing.TB) *ProxiedCluster {
	t.Helper()
	needLinux(t)
	return share(t, &shared.proxied, func(dir string) (*ProxiedCluster, error) { return startProxied(dir) })
}

func needLinux(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: addresses of their own for nodes need Linux")
	}
}

func startProxied(dir string, args ...string) (_ *ProxiedCluster, err error) {
	c := new(ProxiedCluster)
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	shim, err := buildShim(dir)
	if err != nil && !errors.Is(err, errNoCompiler) {
		return nil, err
	}
	c.Cluster, err = formCluster(dir, func(_ int, home string) (*Server, error) {
		p, err := startProxy(ownHost, nodesNet)
		if err != nil {
			return nil, err
		}
		c.Proxies = append(c.Proxies, p)
		n, err := startBehind(p, home, shim, args)
		if err != nil {
			return nil, err
		}
		p.to.Store(&n.Addr)
		return n, nil
	})
	return c, err
}

// startBehind starts a node that names the proxy to clients.
func startBehind(p *Proxy, home, shim string, args []string) (*Server, error) {
	host := ownHost(p.Port)
	plan := plan{dir: home, host: host, args: func(port int) ([]string, error) {
		own := []string{
			"--port", strconv.Itoa(port), "--bind", host, "--bind-source-addr", host,
			"--cluster-announce-port", strconv.Itoa(p.Port), "--cluster-announce-bus-port", strconv.Itoa(port + busOffset),
			"--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes", "--cluster-allow-replica-migration", "no",
		}
		return append(append(own, nodeArgs(host)...), args...), nil
	}}
	if shim != "" {
		clock, err := newClock(shim, home)
		if err != nil {
			return nil, err
		}
		plan.clock = clock
	}
	n, err := startWith(plan)
	if err == nil {
		n.announced = p.Port
	}
	return n, err
}

func (c *ProxiedCluster) stop() {
	_ = c.partition.heal()
	if c.Cluster != nil {
		c.Cluster.stop()
	}
	for _, p := range c.Proxies {
		_ = p.Close()
	}
}

// Addrs returns the addresses for clients: those of the proxies.
func (c *ProxiedCluster) Addrs() []string {
	addrs := make([]string, len(c.Proxies))
	for i, p := range c.Proxies {
		addrs[i] = p.Addr
	}
	return addrs
}

// Front returns the proxy before a node.
func (c *ProxiedCluster) Front(n *Server) *Proxy {
	for i := range c.Nodes {
		if c.Nodes[i] == n {
			return c.Proxies[i]
		}
	}
	return nil
}

// Kill ends a node at once. Clients see what they would see of it: connections
// reset and refused.
func (c *ProxiedCluster) Kill(n *Server) {
	n.Kill()
	c.Front(n).Refuse()
	c.Front(n).Cut()
}

// Restart starts a killed node again.
func (c *ProxiedCluster) Restart(t testing.TB, n *Server) {
	t.Helper()
	n.Restart(t)
	c.Front(n).Pass(t)
}

// Accepted is how many connections of clients the proxies have accepted.
func (c *ProxiedCluster) Accepted() int64 {
	var n int64
	for _, p := range c.Proxies {
		n += p.Accepted()
	}
	return n
}
