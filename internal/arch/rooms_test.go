package arch_test

// root is the name of the root package in the table below.
const root = "tallygate"

// room says what the code of one package may import beside the standard
// library. Tests of a package may import any package of the module, and what
// testOnly lists.
type room struct {
	// house are packages of this module.
	house []string
	// outside are modules of others, each here for a reason told in
	// CONTRIBUTING.md.
	outside []string
}

// rooms is the house, from the ground up: a package may import only packages
// above it in this list. A package that is not listed fails the test.
func rooms() []namedRoom {
	return []namedRoom{
		// The ground: numbers and names, the standard library only.
		{"limit", room{}},
		{"identity", room{}},
		{"identity/request", room{house: []string{"identity"}}},
		{"identity/jwt", room{house: []string{"identity"}, outside: []string{"github.com/go-jose/go-jose/v4"}}},
		{"internal/keyed", room{}},
		{"internal/headers", room{}},
		{"internal/spelling", room{}},
		{"internal/load", room{outside: []string{"github.com/HdrHistogram/hdrhistogram-go"}}},
		{"internal/algorithm", room{house: []string{"limit"}}},
		{"internal/candidate", room{}},
		{"internal/loop", room{}},
		{"internal/counters", room{}},
		{"internal/names", room{}},
		{"internal/newcomers", room{}},
		{"internal/sampled", room{}},
		{"internal/unlimited", room{house: []string{"internal/sampled"}}},
		{"internal/problem", room{}},
		{"internal/uplink", room{}},
		{"internal/pressure", room{}},

		// The contracts, and what stands on them alone.
		{"store", room{house: []string{"limit", "internal/algorithm", "internal/keyed"}}},
		{"internal/calls", room{house: []string{"store"}}},
		{"internal/pod", room{house: []string{"limit", "store", "internal/keyed"}}},
		{"internal/breaker", room{house: []string{"limit", "store"}}},
		{"rules", room{house: []string{"limit", "identity", "internal/loop", "internal/spelling"}}},
		{"internal/moment", room{house: []string{"rules"}}},
		{"internal/reservation", room{house: []string{"limit", "store", "rules"}}},
		{"internal/yamltree", room{house: []string{"rules"}, outside: []string{"github.com/goccy/go-yaml"}}},
		{"rules/yaml", room{house: []string{"rules", "limit", "internal/yamltree"}, outside: []string{"github.com/goccy/go-yaml"}}},
		{"storetest", room{house: []string{"limit", "store"}}},
		{"storetest/history", room{house: []string{"limit", "store", "storetest"}, outside: []string{"github.com/anishathalye/porcupine"}}},
		{"redisstore", room{house: []string{"limit", "identity", "store", "internal/algorithm", "internal/breaker"}, outside: []string{"github.com/redis/rueidis"}}},

		// The library. It compiles nothing of anybody else's.
		{root, room{house: []string{"limit", "identity", "store", "rules", "internal/calls", "internal/candidate", "internal/counters", "internal/moment", "internal/names", "internal/newcomers", "internal/pod", "internal/reservation", "internal/sampled"}}},

		// The library in front of a handler and of a gRPC method. The second's modules are
		// one family: grpc, its error details, and the protobuf they are made of.
		{"httplimit", room{house: []string{root, "identity", "identity/request", "internal/headers", "internal/problem", "internal/unlimited"}}},
		{"grpclimit", room{house: []string{root, "identity", "identity/request", "internal/headers", "internal/unlimited"}, outside: []string{"google.golang.org"}}},

		// The figures, for who wants them.
		{"metrics", room{house: []string{root}, outside: []string{"github.com/prometheus/client_golang"}}},

		// The rules of record: the contract, what both databases share, each of them.
		{"internal/rulestore", room{house: []string{"internal/loop", "rules"}}},
		{"internal/rulestore/sqldb", room{house: []string{"internal/rulestore", "rules"}}},
		{"internal/rulestore/sqlite", room{house: []string{"internal/rulestore/sqldb"}, outside: []string{"github.com/pressly/goose/v3", "modernc.org/sqlite"}}},
		{"internal/rulestore/postgres", room{house: []string{"internal/rulestore/sqldb"}, outside: []string{"github.com/jackc/pgx/v5", "github.com/pressly/goose/v3"}}},

		{"internal/rulestore/file", room{house: []string{"internal/rulestore", "rules", "rules/yaml"}}},

		// The control plane: who follows it, what changes rules, what pods tell.
		{"internal/rulestore/wire", room{house: []string{"internal/rulestore"}}},
		{"internal/rulestore/feed", room{house: []string{"internal/loop", "internal/problem", "internal/rulestore", "internal/rulestore/wire", "internal/uplink"}}},
		{"internal/rulestore/kept", room{house: []string{"internal/loop", "internal/rulestore", "internal/rulestore/wire"}}},
		{"internal/fleet", room{house: []string{"internal/loop", "internal/candidate", "internal/rulestore", "internal/uplink"}}},

		// Files that somebody else renews, and who may use the admin API.
		{"internal/newest", room{}},
		{"internal/tlsfiles", room{house: []string{"internal/newest"}}},
		{"internal/admin/token", room{house: []string{"internal/newest"}, outside: []string{"github.com/goccy/go-yaml"}}},

		// The admin API: its JSON, its server, its client.
		{"internal/admin/api", room{house: []string{"rules", "internal/candidate", "internal/rulestore", "internal/fleet"}}},
		{"internal/admin", room{
			house:   []string{root, "limit", "identity", "store", "rules", "internal/candidate", "internal/rulestore", "internal/rulestore/wire", "internal/fleet", "internal/spelling", "internal/admin/api", "internal/admin/token"},
			outside: []string{"github.com/go-chi/chi/v5", "github.com/danielgtaylor/huma/v2"},
		}},
		{"internal/rulestore/remote", room{house: []string{"internal/rulestore", "internal/admin/api"}}},

		// The formats of others.
		{"internal/envoyconfig", room{house: []string{"limit", "rules", "internal/spelling", "internal/yamltree"}, outside: []string{"github.com/goccy/go-yaml"}}},

		// The server.
		{"internal/server", room{house: []string{root, "limit", "store", "rules", "identity", "identity/request", "internal/headers", "internal/problem", "internal/sampled", "internal/unlimited"}}},
		{"internal/proxy", room{house: []string{root, "identity", "rules", "httplimit", "internal/headers", "internal/pressure", "internal/problem", "internal/sampled"}}},

		{"internal/rls", room{
			house: []string{root, "limit", "identity", "rules", "internal/headers", "internal/envoyconfig", "internal/problem", "internal/sampled", "internal/unlimited"},
			outside: []string{
				"github.com/envoyproxy/go-control-plane/envoy",
				"google.golang.org/grpc",
				"google.golang.org/protobuf",
			},
		}},

		// The simulator: the same pods, on virtual time.
		{"internal/sim", room{house: []string{"limit", "store", "internal/algorithm", "internal/breaker", "internal/pod"}}},
		{"internal/sim/scenario", room{house: []string{"limit", "internal/pod", "internal/sim"}, outside: []string{"github.com/goccy/go-yaml"}}},
		{"internal/sim/scenarios", room{}},

		{"cmd/tallygate", room{
			house: []string{
				root, "limit", "identity", "store", "rules", "rules/yaml", "redisstore", "metrics", "internal/headers", "internal/load", "internal/spelling", "internal/tlsfiles", "internal/envoyconfig", "internal/loop", "internal/rls",
				"httplimit", "identity/jwt", "identity/request", "internal/newest", "internal/proxy", "internal/sampled",
				"internal/admin", "internal/admin/api", "internal/admin/token", "internal/fleet",
				"internal/rulestore", "internal/rulestore/feed", "internal/rulestore/file", "internal/rulestore/kept", "internal/rulestore/postgres", "internal/rulestore/remote", "internal/rulestore/sqlite", "internal/rulestore/wire",
				"internal/server", "internal/sim", "internal/sim/scenario", "internal/sim/scenarios",
			},
			outside: []string{
				"github.com/goccy/go-yaml",
				"github.com/knadh/koanf/v2",
				"github.com/prometheus/client_golang",
				"github.com/spf13/cobra",
			},
		}},

		// Tests and their help: no code of the house imports these.
		{"internal/await", room{}},
		{"internal/testport", room{}},
		{"internal/redistest", room{house: []string{"internal/testport"}}},
		{"internal/pgtest", room{house: []string{"internal/testport"}}},
		{"internal/rulestore/rulestoretest", room{house: []string{"internal/await", "rules", "internal/rulestore", "internal/rulestore/sqldb"}, outside: []string{"pgregory.net/rapid"}}},
		{"internal/arch", room{}},
		{"internal/bench", room{}},
		{"internal/gateways", room{}},
		{"internal/openloop", room{}},
		{"internal/faults", room{}},
	}
}

type namedRoom struct {
	name string
	room
}

// testOnly are the modules that tests may import beside those of the code.
func testOnly() []string {
	return []string{
		"github.com/anishathalye/porcupine",
		"github.com/envoyproxy/go-control-plane/envoy",
		"github.com/go-chi/chi/v5",
		"github.com/goccy/go-yaml",
		"github.com/prometheus/client_model",
		"github.com/prometheus/common",
		"github.com/redis/rueidis",
		"go.uber.org/goleak",
		"golang.org/x/time",
		"google.golang.org/grpc",
		"google.golang.org/protobuf",
		"pgregory.net/rapid",
	}
}

// The sizes to hold.
const (
	maxFileLines     = 500   // of code
	maxTestFileLines = 1_000 // of tests
	maxRootLines     = 3_000 // of the root package's code
	maxChain         = 8     // packages one below the other: cmd, proxy, httplimit, library, pod, store, algorithm, limit
	maxOutside       = 3     // modules a package uses: Envoy's messages need gRPC, and both protobuf
	maxDirect        = 26    // direct dependencies of the module
)
