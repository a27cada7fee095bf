package bench_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/proxy"
	"github.com/tallygate/tallygate/rules"
)

// testProxy has the proxy with a limit and back-pressure beside a bare one, in front of
// the same upstream.
func testProxy(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	ours, yard := httptest.NewServer(limited(t, target)), httptest.NewServer(bare(target))
	defer ours.Close()
	defer yard.Close()
	got := interleave(
		sample{"bare", posts(t, yard, bodies["an entry"])},
		sample{"proxy", posts(t, ours, bodies["an entry"])},
	)
	row(t, "proxy with a limit / bare ReverseProxy", got[1], got[0], "calls/s", atLeast(0.8), got[1] >= 0.8*got[0])
}

// bare is the yardstick: what net/http brings, with as many idle connections as ours.
func bare(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512},
	}
}

// limited is ours: two rules, of which one may be shed.
func limited(t *testing.T, target *url.URL) http.Handler {
	t.Helper()
	set := growth()
	set.Rules[0].ShedFloorMilli = 300
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	who, err := identity.NewResolver(identity.Config{Sources: map[string]string{"plan": "constant:growth", "api_key": "constant:acct_7Q2"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(proxy.Config{
		Upstream: target, Identity: who, Rules: tallygate.Fixed(snapshot),
		Limit: httplimit.Config{
			Limiter: l, Domain: "public-api",
			Route: func(*http.Request) string { return "POST /v1/labels" },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
