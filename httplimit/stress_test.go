package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// changing are rules that somebody changes all the time.
type changing struct {
	now atomic.Pointer[rules.Snapshot]
}

// Snapshot implements [tallygate.Snapshots].
func (c *changing) Snapshot() *rules.Snapshot { return c.now.Load() }

// versions are the rules of each route with limits that tell the route and the version.
func versions(t testing.TB, routes int) (list []*rules.Snapshot) {
	t.Helper()
	var last *rules.Snapshot
	for version := range 6 {
		var set rules.Set
		for i := range routes {
			r := rules.Rule{
				ID: fmt.Sprint("rule-", i), Match: map[string]string{"route": fmt.Sprint("/", i)}, Identity: []string{"api_key"},
				Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: int64(20 + i + version%2*100), WindowS: 3600},
			}
			set.Rules = append(set.Rules, r)
		}
		s, problems := rules.Compile(last, set, int64(version+1), start)
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		list, last = append(list, s), s
	}
	return list
}

// Passes, verdicts and fields are used again by others: while the rules change, each
// answer speaks of its own request's rule, in one version, and of its own key, and no
// change admits anything beyond the larger limit.
func TestAnswersDoNotMix(t *testing.T) {
	t.Parallel()
	const routes, keys, requests = 4, 4, 150
	list, source := versions(t, routes), new(changing)
	source.now.Store(list[0])
	limiter, err := tallygate.New(tallygate.Config{Rules: source, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	h := httplimit.Handler(httplimit.Config{
		Limiter:  limiter,
		Identity: identities(t, identity.Config{Sources: map[string]string{"api_key": "header:X-Api-Key"}}),
		Route:    func(r *http.Request) string { return r.URL.Path },
	})(http.HandlerFunc(ok))
	var all sync.WaitGroup
	for i := range routes * keys {
		route, key := i%routes, fmt.Sprint("key-", i/routes)
		all.Go(func() {
			passed := 0
			for n := range requests {
				if i == 0 && n < len(list)*10 {
					source.now.Store(list[n/10])
				}
				r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/", route), nil)
				r.Header.Set("X-Api-Key", key)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code == http.StatusOK {
					passed++
				}
				tellsOf(t, w, route, passed)
			}
			if most := 120 + route; passed > most || passed < 20+route {
				t.Errorf("route %d, %s: %d passed, want at most %d", route, key, passed, most)
			}
		})
	}
	all.Wait()
}

// tellsOf checks that an answer is one of a route's rule, of which so many have passed.
func tellsOf(t *testing.T, w *httptest.ResponseRecorder, route, passed int) {
	t.Helper()
	for _, most := range []int{20 + route, 120 + route} {
		left := fmt.Sprint(max(0, most-passed))
		got := fmt.Sprint(w.Header()["X-Ratelimit-Limit"], w.Header()["X-Ratelimit-Remaining"], w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"])
		if got == fmt.Sprintf(`[%d] [%s] ["rule-%d";q=%d;w=3600] ["rule-%d";r=%s;t=3600]`, most, left, route, most, route, left) {
			return
		}
	}
	t.Errorf("route %d after %d passed: %d %v", route, passed, w.Code, w.Header())
}
