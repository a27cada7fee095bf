package httplimit_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// sink is a ResponseWriter that costs nothing, so that what is measured is ours.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// bench is a typical request: through a proxy, with a key, two rules that match.
func bench(t testing.TB) (limited http.Handler, bare http.Handler, r *http.Request) {
	t.Helper()
	bucket := func(id, by string) rules.Rule {
		return rules.Rule{
			ID: id, Match: map[string]string{"route": "GET /v1/labels/{id}"}, Identity: []string{by},
			Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1e9, Burst: 1e9},
		}
	}
	bare = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) })
	limited = httplimit.Handler(httplimit.Config{
		Limiter: newLimiter(t, bucket("key", "api_key"), bucket("ip", "ip")),
		Identity: identities(t, identity.Config{
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
			Sources:        map[string]string{"api_key": "header:X-Api-Key"},
		}),
	})(bare)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/v1/labels/5", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RemoteAddr, r.Pattern = "10.0.0.1:40001", "GET /v1/labels/{id}"
	r.Header.Set("X-Forwarded-For", "203.0.113.9")
	r.Header.Set("X-Api-Key", "acct_7Q2")
	return limited, bare, r
}

func TestHandlerAllocatesLittle(t *testing.T) {
	limited, _, r := bench(t)
	w := &sink{header: http.Header{}}
	limited.ServeHTTP(w, r)
	if len(w.header["X-Ratelimit-Limit"]) != 1 {
		t.Fatalf("not limited: %v", w.header)
	}
	// The text of the headers and their values.
	if n := testing.AllocsPerRun(200, func() { limited.ServeHTTP(w, r) }); n > 2 && !raceEnabled {
		t.Errorf("a request allocates %v times, want 2", n)
	}
}

func BenchmarkHandler(b *testing.B) {
	limited, bare, r := bench(b)
	for name, h := range map[string]http.Handler{"bare": bare, "limited": limited} {
		b.Run(name, func(b *testing.B) {
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
