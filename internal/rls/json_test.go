package rls_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/store"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	const two = `{"domain":"public-api","descriptors":[{"entries":[{"key":"plan","value":"two"},{"key":"api_key","value":"k"}]}],"hitsAddend":2}`
	token := func(s string) bool { return s == "tg_1" }
	for _, test := range []struct {
		name    string
		away    bool
		bodies  []string
		status  int
		want    string // of the last answer
		retry   string
		code    string // of a problem
		title   string // of a problem
		noToken bool
	}{
		{name: "OK", bodies: []string{two}, status: 200, want: "OK; OK 0 of 2/MINUTE two in 1m0s"},
		{name: "over the limit", bodies: []string{two, two}, status: 429, want: "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE two in 1m0s", retry: "60"},
		{name: "names as in the proto", bodies: []string{strings.Replace(two, "hitsAddend", "hits_addend", 1)}, status: 200},
		{name: "unknown domain", bodies: []string{strings.Replace(two, "public-api", "other", 1)}, status: 200, want: "OK; OK"},
		{name: "no JSON", bodies: []string{"{"}, status: 400, code: "bad_request"},
		{name: "an unknown field", bodies: []string{`{"domian":"public-api"}`}, status: 400, code: "bad_request"},
		{name: "no descriptors", bodies: []string{`{"domain":"public-api"}`}, status: 400, code: "bad_request"},
		{name: "a body of 5 MiB", bodies: []string{`{"domain":"` + strings.Repeat("d", 5<<20) + `"}`}, status: 400, code: "bad_request"},
		{name: "no identity", bodies: []string{`{"domain":"public-api","descriptors":[{"entries":[{"key":"plan","value":"two"}]}]}`}, status: 400, code: "missing_identity", title: "Missing identity"},
		{name: "no UTF-8", bodies: []string{"{\"domain\":\"\xff\"}"}, status: 400, code: "bad_request"},
		{name: "the store is away", away: true, bodies: []string{strings.Replace(two, `"two"`, `"closed"`, 1)}, status: 503, retry: "1", code: "store_timeout"},
		{name: "no token", bodies: []string{two}, status: 401, code: "unauthorized", noToken: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config := rls.Config{Limiter: limiterOf(t, newClock(), nil), Authorize: token}
			if test.away {
				config.Limiter, config.ErrorOnFailure = limiterOf(t, newClock(), failing{store.Timeout}), true
			}
			s := newServer(t, config)
			var w *httptest.ResponseRecorder
			for _, body := range test.bodies {
				r := httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body))
				if !test.noToken {
					r.Header.Set("Authorization", "Bearer tg_1")
				}
				w = httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
			}
			text, _ := io.ReadAll(w.Body)
			if test.code != "" && (!strings.Contains(string(text), `"code":"`+test.code+`"`) || w.Header().Get("Content-Type") != "application/problem+json") {
				t.Errorf("%v %s, want the problem %s", w.Header(), text, test.code)
			}
			if test.title != "" && !strings.Contains(string(text), `"title":"`+test.title) {
				t.Errorf("%s, want the title %q", text, test.title)
			}
			if w.Code != test.status || w.Header().Get("Retry-After") != test.retry {
				t.Fatalf("status %d, Retry-After %q, body %.200s", w.Code, w.Header().Get("Retry-After"), text)
			}
			if test.want == "" {
				return
			}
			var response rlsv3.RateLimitResponse
			if err := protojson.Unmarshal(text, &response); err != nil {
				t.Fatal(err)
			}
			if got := told(&response); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestJSONTakesPost(t *testing.T) {
	t.Parallel()
	s := newServer(t, rls.Config{Limiter: limiterOf(t, newClock(), nil)})
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/json", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "POST" || !strings.Contains(w.Body.String(), `"code":"method_not_allowed"`) {
		t.Errorf("GET: %d %v %s", w.Code, w.Header(), w.Body)
	}
}
