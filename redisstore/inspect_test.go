package redisstore_test

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// inspect looks at a server of its own.
func inspect(t *testing.T, url string) ([]redisstore.Server, []redisstore.Finding) {
	t.Helper()
	conf := patient(url)
	conf.NoBeats = true
	servers, found, err := open(t, conf).Inspect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return servers, found
}

func TestInspect_findings(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	server.MustDo(t, "CONFIG", "SET", "appendonly", "yes", "stop-writes-on-bgsave-error", "no", "maxmemory", "100mb", "maxmemory-policy", "noeviction")
	server.MustDo(t, "ACL", "SETUSER", "tally", "reset", "on", ">x", "~*", "+@all")
	server.DisableDefaultUser(t)
	url := "redis://tally:x@" + server.Addr
	if _, found := inspect(t, url); len(found) != 0 {
		t.Fatalf("a well-set server is faulted: %v", found)
	}
	for name, row := range map[string]struct {
		bad, good []string
		setting   string
		level     redisstore.Level
		word      string
	}{
		"evicts":          {[]string{"maxmemory-policy", "allkeys-lru"}, []string{"maxmemory-policy", "noeviction"}, "maxmemory-policy", redisstore.Warning, "full one"},
		"forgets":         {[]string{"appendonly", "no"}, []string{"appendonly", "yes"}, "appendonly", redisstore.Warning, "forgets"},
		"stops writing":   {[]string{"stop-writes-on-bgsave-error", "yes"}, []string{"stop-writes-on-bgsave-error", "no"}, "stop-writes-on-bgsave-error", redisstore.Warning, "MISCONF"},
		"without a bound": {[]string{"maxmemory", "0"}, []string{"maxmemory", "100mb"}, "maxmemory", redisstore.Warning, "machine"},
		"nearly full":     {[]string{"maxmemory", "1mb"}, []string{"maxmemory", "100mb"}, "memory", redisstore.Warning, "refused"},
	} {
		server.MustDo(t, append([]string{"CONFIG", "SET"}, row.bad...)...)
		_, found := inspect(t, url)
		if len(found) != 1 || found[0].Setting != row.setting || found[0].Level != row.level || !strings.Contains(found[0].Message, row.word) {
			t.Errorf("%s: %v, want one %s of %s", name, found, row.level, row.setting)
		}
		server.MustDo(t, append([]string{"CONFIG", "SET"}, row.good...)...)
	}
}

func TestInspect_cluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	url := "redis://" + c.Addrs()[0]
	c.Nodes[0].MustDo(t, "CONFIG", "SET", "cluster-node-timeout", "15000")
	servers, found := inspect(t, url)
	all := 0
	for _, s := range servers {
		all += s.Slots
		if s.Role != "primary" || !strings.HasPrefix(s.Version, "7.") && !strings.HasPrefix(s.Version, "8.") || len(s.Replicas) != 1 || s.RoundTrip <= 0 || s.Err != nil || s.ID == "" {
			t.Errorf("server %+v", s)
		}
	}
	if len(servers) != 3 || all != 16_384 {
		t.Errorf("%d servers with %d slots, want 3 with all", len(servers), all)
	}
	if !has(found, "cluster-node-timeout", "21.3s") { // 1.35 × 15 s + 1 s
		t.Errorf("a long node timeout is not faulted: %v", found)
	}
	if !has(found, "min-replicas-to-write", "cut off") {
		t.Errorf("no advice on replicas: %v", found)
	}
	c.Nodes[0].MustDo(t, "CONFIG", "SET", "cluster-node-timeout", "500")

	for _, n := range c.Nodes {
		n.AddUser(t, "blind", "x", "~*", "+@all", "-cluster")
	}
	if _, found = inspect(t, "redis://blind:x@"+c.Addrs()[0]); !has(found, "cluster", "cluster|slots") {
		t.Errorf("a cluster that is taken for one server: %v", found)
	}

	// One shard loses its replica, then all of it; another one a slot.
	c.Nodes[3].Kill()
	c.Nodes[1].MustDo(t, "CLUSTER", "DELSLOTS", "9000")
	c.Nodes[2].MustDo(t, "CLUSTER", "DELSLOTS", "9000")
	c.Nodes[0].MustDo(t, "CLUSTER", "DELSLOTS", "9000")
	eventually(t, 10*time.Second, "the cluster says that a replica is gone and a slot unowned", func() bool {
		_, found = inspect(t, url)
		return has(found, "replicas", "lost") && has(found, "slots", "1 of 16384")
	})
	c.Nodes[0].Kill()
	conf := patient("redis://" + c.Addrs()[1])
	conf.NoBeats = true
	servers, found, err := open(t, conf).Inspect(context.Background())
	if err != nil {
		t.Fatalf("with two of three primaries: %v", err)
	}
	gone := 0
	for _, s := range servers {
		if s.Err != nil {
			gone++
		}
	}
	if gone != 1 || !has(found, "reachable", "does not answer") {
		t.Errorf("%d of %d are gone, %v; want 1 and a finding", gone, len(servers), found)
	}
}

// TestInspect_clock: a server whose clock is far from ours is told of.
func TestInspect_clock(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	for ahead, want := range map[int64]bool{0: false, 90: true, -90: true} {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		// The answer to TIME is two texts, of which the first is seconds.
		times := regexp.MustCompile(`\*2\r\n\$10\r\n(\d{10})\r\n`)
		w := startWire(t, &wire{Listener: listener, to: server.Addr, mangle: func(said []byte) []byte {
			m := times.FindSubmatch(said)
			if m == nil {
				return said
			}
			seconds, _ := strconv.ParseInt(string(m[1]), 10, 64)
			return bytes.Replace(said, m[1], strconv.AppendInt(nil, seconds+ahead, 10), 1)
		}})
		servers, found := inspect(t, "redis://"+w.Addr().String())
		if got := has(found, "clock", "NTP"); got != want {
			t.Errorf("%d s ahead: a finding %v, want %v: %v", ahead, got, want, found)
		}
		if got := servers[0].ClockOffset - time.Duration(ahead)*time.Second; got.Abs() > time.Second {
			t.Errorf("%d s ahead: told %s", ahead, servers[0].ClockOffset)
		}
	}
}

func TestInspect_noPrimary(t *testing.T) {
	t.Parallel()
	server, other := redistest.Standalone(t), redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	server.MustDo(t, "REPLICAOF", "127.0.0.1", strconv.Itoa(other.Port))
	servers, found, err := s.Inspect(context.Background())
	if err == nil || len(servers) != 1 || !has(found, "role", "no writes") {
		t.Errorf("a replica: %v, %v", found, err)
	}
	server.Kill()
	if _, found, err = s.Inspect(context.Background()); err == nil || !has(found, "reachable", "does not answer") {
		t.Errorf("a server that is gone: %v, %v", found, err)
	}
}

// TestInspect_writesNothing: who only looks leaves no key behind.
func TestInspect_writesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Standalone(t)
	inspect(t, "redis://"+server.Addr)
	if n, _ := server.MustDo(t, "DBSIZE").(int64); n != 0 {
		t.Errorf("%d keys were written: %v", n, server.MustDo(t, "KEYS", "*"))
	}
}

// TestPlace: where a bucket is said to lie is where it is written, by the cluster's
// own reckoning.
func TestPlace(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	for i := range 50 {
		op := take("rule", "place-"+strconv.Itoa(i), slow(5))
		p := s.Place(op.Bucket)
		if want := c.Slot(t, name(op)); p.Key != name(op) || !p.Cluster || p.Slot != want {
			t.Fatalf("%+v, want %s in slot %d", p, name(op), want)
		}
		must(t, s, op)
		owner := c.Owner(t, p.Slot)
		if p.Primary.Addr != owner.Addr || p.Primary.ID == "" {
			t.Fatalf("primary %+v, want %s", p.Primary, owner.Addr)
		}
		if n, _ := owner.MustDo(t, "EXISTS", p.Key).(int64); n != 1 {
			t.Errorf("%s is not at %s", p.Key, owner.Addr)
		}
	}
	eventually(t, 10*time.Second, "the replica is known", func() bool {
		return len(s.Place(store.Bucket{Domain: "d", Rule: "r", Key: "k"}).Primary.Replicas) == 1
	})
	server := redistest.SharedStandalone(t)
	p := open(t, patient("redis://"+server.Addr)).Place(store.Bucket{Domain: "d", Rule: "r", Key: "k"})
	if p.Cluster || p.Primary.Addr != server.Addr {
		t.Errorf("%+v, want the one server", p)
	}
}
