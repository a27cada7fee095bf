package bench_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
)

// addedNS is how much a limit may add to a request in a program's own server, and
// resolveNS how long it may take to tell who asks, on a machine as [casNS] says.
const (
	addedNS   = 2000
	resolveNS = 300
)

// labelled is a typical request, through a trusted proxy and with a key.
func labelled(t testing.TB) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/v1/labels", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr, r.Pattern = "10.0.0.1:40001", "POST /v1/labels"
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	r.Header.Set("X-Api-Key", "acct_7Q2")
	r.Header.Set("X-Plan", "growth")
	return r
}

// behindProxy tells who asks by headers that a proxy has seen.
func behindProxy(t testing.TB) *identity.Resolver {
	t.Helper()
	who, err := identity.NewResolver(identity.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Sources:        map[string]string{"plan": "proxy-header:X-Plan", "api_key": "header:X-Api-Key"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return who
}

// nothing is a handler that costs nothing.
func nothing(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }

// gated is that handler behind a limiter.
func gated(t testing.TB, l *tallygate.Limiter) http.Handler {
	t.Helper()
	return httplimit.Handler(httplimit.Config{Limiter: l, Domain: "public-api", Identity: behindProxy(t)})(http.HandlerFunc(nothing))
}

// BenchmarkMiddleware is for runs in turn with those of other code.
func BenchmarkMiddleware(b *testing.B) {
	for name, of := range map[string]func(testing.TB) *tallygate.Limiter{"memory": limiter, "leases": lending} {
		b.Run(name, func(b *testing.B) {
			h, r, w := gated(b, of(b)), labelled(b), discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkIdentity is for runs in turn with those of other code.
func BenchmarkIdentity(b *testing.B) {
	for name, by := range map[string]*identity.Resolver{"peer": {}, "proxy": behindProxy(b)} {
		b.Run(name, func(b *testing.B) {
			r, attrs := labelled(b), make(map[string]string, 8)
			var facts identity.Facts
			b.ReportAllocs()
			for b.Loop() {
				facts = request.Of(r)
				if err := by.Resolve(&facts, attrs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// testMiddleware measures what a limit by two rules adds to a handler.
func testMiddleware(t *testing.T) {
	plain := http.HandlerFunc(nothing)
	memory, leases := gated(t, limiter(t)), gated(t, lending(t))
	r, w := labelled(t), discard{http.Header{}}
	serve := func(h http.Handler) func(n int) float64 {
		return nsPerOp(func(n int) {
			for range n {
				h.ServeHTTP(w, r)
			}
		})
	}
	got := interleave(sample{"bare", serve(plain)}, sample{"memory", serve(memory)}, sample{"leases", serve(leases)}, casSample())
	if w.header.Get("X-RateLimit-Limit") == "" {
		t.Fatalf("the handler is not limited: %v", w.header)
	}
	most := addedNS * slower(got[3])
	goal := fmt.Sprintf("<= %.0f", most)
	row(t, "httplimit, two buckets, added / CAS bucket", got[1]-got[0], got[3], "ns", goal, got[1]-got[0] <= most)
	row(t, "httplimit, two buckets from leases, added / CAS bucket", got[2]-got[0], got[3], "ns", goal, got[2]-got[0] <= most)
	allocates(t, "httplimit, two buckets", 3, func() { memory.ServeHTTP(w, r) })
	allocates(t, "httplimit, two buckets from leases", 3, func() { leases.ServeHTTP(w, r) })
}

// testIdentity measures how long it takes to tell who asks, without tokens.
func testIdentity(t *testing.T) {
	r := labelled(t)
	who, peerOnly := behindProxy(t), &identity.Resolver{}
	attrs := make(map[string]string, 8)
	var facts identity.Facts // as a middleware would use it again
	resolve := func(by *identity.Resolver) func() {
		return func() {
			facts = request.Of(r)
			if err := by.Resolve(&facts, attrs); err != nil {
				t.Fatal(err)
			}
		}
	}
	resolve(peerOnly)()
	if got := attrs["ip"]; len(attrs) != 1 || got != "10.0.0.1" {
		t.Fatalf("by the socket: %v", attrs)
	}
	resolve(who)()
	if attrs["ip"] != "203.0.113.9" || attrs["plan"] != "growth" || attrs["api_key"] != "acct_7Q2" {
		t.Fatalf("behind a proxy: %v", attrs)
	}
	often := func(f func()) func(n int) float64 {
		return nsPerOp(func(n int) {
			for range n {
				f()
			}
		})
	}
	got := interleave(casSample(), sample{"peer", often(resolve(peerOnly))}, sample{"behind a proxy", often(resolve(who))})
	most := resolveNS * slower(got[0])
	goal := fmt.Sprintf("<= %.0f", most)
	row(t, "identity, the peer's address / CAS bucket", got[1], got[0], "ns", goal, got[1] <= most)
	row(t, "identity, proxy, plan and key / CAS bucket", got[2], got[0], "ns", goal, got[2] <= most)
	allocates(t, "identity, proxy, plan and key", 0, resolve(who))
}
