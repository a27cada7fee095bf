package redistest

import (
	"os"
	"sync"
	"testing"
)

// Main runs a package's tests and then stops the servers they shared. It
// returns the exit code:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//
// A check for leaked goroutines has to let one function pass while shared
// servers run: (*process).run of this package.
func Main(m *testing.M) int {
	code := m.Run()
	shared.stop()
	return code
}

// SharedStandalone returns the one server of this test binary; the first test
// that asks starts it. Tests leave it as they found it and use keys of their own.
func SharedStandalone(t testing.TB) *Server {
	t.Helper()
	return share(t, &shared.standalone, func(dir string) (*Server, error) { return startServer(dir) })
}

// SharedCluster returns the one cluster of this test binary; the first test that
// asks starts it. A test that breaks it takes a NewCluster, or mends it and waits
// for Settled. Its nodes wait long for each other: nobody tests failovers on it, and
// a busy machine must not cause one.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	return share(t, &shared.cluster, func(dir string) (*Cluster, error) { return startCluster(dir, "--cluster-node-timeout", "10000") })
}

// shared is what the tests of this binary have in common. Needed as a variable,
// since testing hands nothing from TestMain to a test.
var shared set //nolint:gochecknoglobals // see above

type set struct {
	standalone once[*Server]
	cluster    once[*Cluster]
	proxied    once[*ProxiedCluster]

	mu    sync.Mutex // guards stops
	stops []func()
}

// once is one shared thing, or why there is none.
type once[T any] struct {
	sync.Once
	value T
	err   error
}

// stopper is what can be shared.
type stopper interface{ stop() }

func share[T stopper](t testing.TB, o *once[T], start func(dir string) (T, error)) T {
	t.Helper()
	needRedis(t)
	o.Do(func() {
		dir, err := os.MkdirTemp("", "redistest") //nolint:usetesting // outlives the test that asks first
		if err != nil {
			o.err = err
			return
		}
		if o.value, o.err = start(dir); o.err != nil {
			_ = os.RemoveAll(dir)
			return
		}
		shared.onStop(func() {
			o.value.stop()
			_ = os.RemoveAll(dir)
		})
	})
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.value
}

func (s *set) onStop(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, f)
}

func (s *set) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.stops {
		f()
	}
	s.stops = nil
}
