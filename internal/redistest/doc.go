// Package redistest starts real Redis servers for tests: one server, a cluster
// of three primaries with a replica each, a primary with a replica and three
// sentinels, or a server that speaks only TLS.
//
// Servers run as children of the test binary on private ports of 127.0.0.1,
// without persistence, in a directory of their own. They are killed when the
// test ends, and by the kernel when the test binary dies (Linux). Ports are
// taken with a lock file and a trial bind, so that the test binaries of several
// packages may run at once. They stay below 22,768: a cluster node also listens
// on port + 10,000, which must stay out of the ephemeral range.
//
//	srv := redistest.Standalone(t)                  // for this test alone
//	srv.MustDo(t, "CONFIG", "SET", "maxmemory", "1mb")
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//	c := redistest.SharedCluster(t)                 // one for the whole package
//
// For faults there is a Proxy, which plays a bad network in front of a server, and a
// ProxiedCluster, whose clients all come through one: its nodes can be killed, held,
// parted and have a wrong clock, and Mend undoes all of it for the next test.
//
// Without a redis-server of version 7 or later on the PATH tests are skipped,
// loudly; with CI=true in the environment they fail. Everything here is safe for
// concurrent use. The package is for tests only: a test of the house's imports
// sees to it that nothing else links it.
package redistest
