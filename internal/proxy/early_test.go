package proxy_test

import (
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/internal/proxy"
)

// An answer before the answer takes nothing of ours along, and adds nothing to it.
func TestAnswersBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Link", "</a.css>; rel=preload")
		h.Set("RateLimit", `"theirs";r=1`)
		h.Set("X-Request-Id", "theirs")
		h.Set("X-Tokens", "4")
		w.WriteHeader(http.StatusEarlyHints)
		if r.URL.Path == "/breaks" {
			panic(http.ErrAbortHandler)
		}
	})
	c := newClock()
	l := limiterOf(t, c, snapshotOf(t, c, rule("ip", "ip", 100)))
	f := serve(t, upstream, 0, proxy.Config{
		Limit: httplimit.Config{Limiter: l}, CostHeader: "X-Tokens", Reserver: proxy.Reservations(l, 0), Now: c.now,
	})
	for _, path := range []string{"/", "/breaks"} {
		var early textproto.MIMEHeader
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { early = h; return nil },
		})
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.addr+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		for when, h := range map[string]http.Header{"before": http.Header(early), "at last": a.Header} {
			if got := h["Ratelimit"]; len(got) != 1 || strings.Contains(got[0], "theirs") {
				t.Errorf("%s %s: RateLimit is %q", path, when, got)
			}
			if got := h["X-Request-Id"]; len(got) != 1 || got[0] == "theirs" {
				t.Errorf("%s %s: X-Request-Id is %q", path, when, got)
			}
			if h.Get("X-Tokens") != "" {
				t.Errorf("%s %s: the cost is told", path, when)
			}
		}
		if early.Get("Link") == "" {
			t.Errorf("%s: there was nothing before", path)
		}
	}
}
