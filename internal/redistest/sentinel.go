package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// SentinelName is the name under which sentinels know the primary.
const SentinelName = "tally"

// sentinelCount is the number of sentinels; two of them decide.
const sentinelCount = 3

// Sentinels is a primary with a replica, and three sentinels that promote the
// replica about a second after the primary is gone.
type Sentinels struct {
	Primary, Replica *Server
	// Sentinels are the watchers; clients ask them where SentinelName is.
	Sentinels []*Server
}

// Sentinel starts a sentinel set for this test and returns when all know each
// other and the replica is in step.
func Sentinel(t testing.TB) *Sentinels {
	t.Helper()
	needRedis(t)
	s, err := startSentinels(t.TempDir())
	return started(t, s, err, s.watch)
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() []string {
	addrs := make([]string, len(s.Sentinels))
	for i, n := range s.Sentinels {
		addrs[i] = n.Addr
	}
	return addrs
}

func (s *Sentinels) all() []*Server {
	var list []*Server
	for _, n := range append([]*Server{s.Primary, s.Replica}, s.Sentinels...) {
		if n != nil {
			list = append(list, n)
		}
	}
	return list
}

func (s *Sentinels) watch(t testing.TB) {
	t.Helper()
	for _, n := range s.all() {
		n.watch(t)
	}
}

func (s *Sentinels) stop() { stopAll(s.all()) }

func startSentinels(dir string) (_ *Sentinels, err error) {
	s := new(Sentinels)
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	home := func(name string) (string, error) {
		path := filepath.Join(dir, name)
		return path, os.Mkdir(path, 0o700)
	}
	at, err := home("primary")
	if err != nil {
		return nil, err
	}
	if s.Primary, err = startServer(at); err != nil {
		return nil, err
	}
	if at, err = home("replica"); err != nil {
		return nil, err
	}
	if s.Replica, err = startServer(at, "--replicaof", "127.0.0.1", strconv.Itoa(s.Primary.Port)); err != nil {
		return nil, err
	}
	if err := s.Primary.waitFor(settleTimeout, "have its replica in step", s.Primary.inStep); err != nil {
		return nil, err
	}
	for i := range sentinelCount {
		if at, err = home("sentinel" + strconv.Itoa(i)); err != nil {
			return nil, err
		}
		n, err := s.startOne(at)
		if err != nil {
			return nil, err
		}
		s.Sentinels = append(s.Sentinels, n)
	}
	return s, s.settled()
}

// startOne starts one sentinel. It keeps what it learns in its configuration.
func (s *Sentinels) startOne(dir string) (*Server, error) {
	conf := fmt.Sprintf(`# written by redistest
bind 127.0.0.1
protected-mode no
daemonize no
user default on nopass ~* &* +@all
user %[1]s on >%[2]s ~* &* +@all
sentinel monitor %[3]s 127.0.0.1 %[4]d 2
sentinel down-after-milliseconds %[3]s 500
sentinel failover-timeout %[3]s 3000
sentinel parallel-syncs %[3]s 1
`, adminUser, adminPassword, SentinelName, s.Primary.Port)
	if err := os.WriteFile(filepath.Join(dir, "redis.conf"), []byte(conf), 0o600); err != nil {
		return nil, fmt.Errorf("write a sentinel's configuration: %w", err)
	}
	n, err := startWith(plan{dir: dir, args: func(p int) ([]string, error) {
		return []string{"--port", strconv.Itoa(p), "--sentinel"}, nil
	}})
	if err != nil {
		return nil, err
	}
	// Sentinels find each other by messages that they send every two seconds;
	// asked to, ten times a second.
	_, err = n.Do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "100", "INFO-PERIOD", "500")
	if err != nil {
		n.stop()
		return nil, fmt.Errorf("hurry the sentinel %s: %w", n.Addr, err)
	}
	return n, nil
}

// settled waits until every sentinel knows the others and the replica.
func (s *Sentinels) settled() error {
	for _, n := range s.Sentinels {
		err := n.waitFor(settleTimeout, "know the others", func() error {
			if _, err := n.Do("SENTINEL", "CKQUORUM", SentinelName); err != nil {
				return err
			}
			others, err := n.Do("SENTINEL", "SENTINELS", SentinelName)
			if err != nil {
				return err
			}
			replicas, err := n.Do("SENTINEL", "REPLICAS", SentinelName)
			if err != nil {
				return err
			}
			list, _ := others.([]any)
			known, _ := replicas.([]any)
			if len(list) != sentinelCount-1 || len(known) != 1 {
				return errors.New("knows too few")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
