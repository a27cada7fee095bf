package bench_test

import (
	"os"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
)

// patience is the deadline of the store: what is measured is not what a busy machine gives
// up on.
const patience = 5 * time.Second

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// TestFigures prints every figure beside its yardstick.
func TestFigures(t *testing.T) {
	t.Run("local", testLocal)
	t.Run("leases", testLeases)
	t.Run("http", testHTTP)
	t.Run("proxy", testProxy)
	t.Run("middleware", testMiddleware)
	t.Run("identity", testIdentity)
	t.Run("http from leases", testHTTPLeases)
	t.Run("envoy rls from leases", testRLS)
	t.Run("envoy rls, exact", testRLSExact)
	t.Run("other limiters", testOthers)
	t.Run("open loop, exact", testOpenLoopExact)
	t.Run("open loop, from leases", testOpenLoopLocal)
	t.Run("redis throughput", testRedisThroughput)
	t.Run("redis CPU", testRedisCPU)
	t.Run("redis memory", testRedisMemory)
}
