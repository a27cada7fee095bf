package proxy_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/proxy"
)

// speaking is a client of one protocol in clear.
func speaking(h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetUnencryptedHTTP2(h2)
	return &http.Client{Transport: &http.Transport{Protocols: &p, DisableKeepAlives: true}}
}

// protocols are the pairs of client's and upstream's.
func protocols(t *testing.T, run func(t *testing.T, client *http.Client, upstream *url.URL)) {
	t.Helper()
	for _, tt := range []struct {
		name            string
		client, behind2 bool
	}{
		{"HTTP/1.1 to HTTP/1.1", false, false},
		{"HTTP/1.1 to h2c", false, true},
		{"h2c to HTTP/1.1", true, false},
		{"h2c to h2c", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scheme := "http"
			if tt.behind2 {
				scheme = "h2c"
			}
			run(t, speaking(tt.client), &url.URL{Scheme: scheme})
		})
	}
}

// What the upstream writes behind its body says nothing of limits and costs.
func TestTrailersOfAnswers(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, client *http.Client, upstream *url.URL) {
		t.Helper()
		l := &ledger{}
		c := newClock()
		config := proxy.Config{Upstream: upstream, Reserver: l, CostHeader: "X-Tokens"}
		config.Limit.Limiter = limiterOf(t, c, snapshotOf(t, c, rule("r", "ip", 1)))
		f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Ratelimit-Remaining, X-Sum, X-Request-Id")
			_, _ = io.WriteString(w, "body")
			_ = http.NewResponseController(w).Flush()
			for _, name := range []string{"X-Ratelimit-Remaining", "X-Sum", "X-Request-Id"} {
				w.Header().Set(name, "announced")
			}
			for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Ratelimit-Limit", "X-Late"} {
				w.Header().Set(http.TrailerPrefix+name, "not announced")
			}
			w.Header().Set(http.TrailerPrefix+"X-Tokens", "7")
		}), 0, config)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.addr, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if body, err := io.ReadAll(resp.Body); string(body) != "body" || err != nil {
			t.Fatalf("%q, %v", body, err)
		}
		var got []string
		for name, lines := range resp.Trailer {
			got = append(got, name+"="+strings.Join(lines, "|"))
		}
		slices.Sort(got)
		if want := []string{"X-Late=not announced", "X-Sum=announced"}; !slices.Equal(got, want) {
			t.Errorf("trailers %q, want %q", got, want)
		}
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if got, want := l.lines(), []string{"reserve 0", "commit 7"}; !slices.Equal(got, want) {
			t.Errorf("the cost in the trailer: %q, want %q", got, want)
		}
	})
}

// A cost in the head stands, whatever the trailer says.
func TestCostOfTheHeadStands(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	c := newClock()
	config := proxy.Config{Reserver: l, CostHeader: "X-Tokens"}
	config.Limit.Limiter = limiterOf(t, c, snapshotOf(t, c, rule("r", "ip", 1)))
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Tokens", "5")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Tokens", "7")
	}), 0, config)
	f.get(t, "/")
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	if got, want := l.lines(), []string{"reserve 0", "commit 5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Trailers of requests end at the proxy: upstreams that join them to the head would
// believe the client's word about addresses, limits and keys.
func TestTrailersOfRequests(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, client *http.Client, upstream *url.URL) {
		t.Helper()
		seen := make(chan http.Header, 1)
		f := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if string(body) != "body" || err != nil {
				t.Errorf("the upstream read %q, %v", body, err)
			}
			seen <- r.Trailer
		}), 10, proxy.Config{Upstream: upstream})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.addr, io.NopCloser(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		r.Trailer = http.Header{"X-Ratelimit-Limit": {"1"}, "X-Forwarded-For": {"203.0.113.9"}, "Forwarded": {"for=203.0.113.9"}, "X-Api-Key": {"k"}, "X-Sum": {"1"}}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := <-seen; resp.StatusCode != 200 || len(got) != 0 {
			t.Errorf("%d, the upstream saw %v", resp.StatusCode, got)
		}
	})
}
