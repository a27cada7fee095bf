package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/store"
)

// postTo sends a body to an endpoint of reservations.
func postTo(h http.Handler, verb, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/ratelimit:"+verb, strings.NewReader(body)))
	return w
}

// reserved makes a reservation and returns its text.
func reserved(t testing.TB, h http.Handler, body string) string {
	t.Helper()
	w := postTo(h, "reserve", body)
	r := parse(t, w)
	if w.Code != http.StatusOK || r.Verdict != "allow" || r.Reservation == "" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return r.Reservation
}

func quoted(t testing.TB, text string) string {
	t.Helper()
	q, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(q)
}

func TestReserve_commitAndCancel(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	body := `{"entries":[{"rule":"slow","key":"k","cost":15}],"id":"req-1","ttl_ms":5000}`
	token := reserved(t, h, body)
	if again := reserved(t, h, body); again != token {
		t.Error("a repeat has another reservation")
	}
	q := quoted(t, token)
	for _, c := range []struct{ name, verb, body, want string }{
		{"commit", "commit", `{"reservation":` + q + `,"cost":4}`, `{"settlement":"committed","entries":[{"rule":"slow","limit":20,"remaining":16,"reset_ms":14400000}]}`},
		{"again", "commit", `{"reservation":` + q + `,"cost":4}`, `{"settlement":"repeated","entries":[{"rule":"slow","limit":20,"remaining":16,"reset_ms":14400000}]}`},
		{"cancel after it", "cancel", `{"reservation":` + q + `}`, `{"settlement":"repeated","entries":[{"rule":"slow","limit":20,"remaining":16,"reset_ms":14400000}]}`},
		{"by rule", "commit", `{"costs":{"slow":0},"reservation":` + quoted(t, reserved(t, h, `{"entries":[{"rule":"slow","key":"k2","cost":9}]}`)) + `}`, `{"settlement":"committed","entries":[{"rule":"slow","limit":20,"remaining":20,"reset_ms":0}]}`},
		{"cancel", "cancel", `{"reservation":` + quoted(t, reserved(t, h, `{"entries":[{"rule":"slow","key":"k3","cost":9}]}`)) + `}`, `{"settlement":"canceled","entries":[{"rule":"slow","limit":20,"remaining":20,"reset_ms":0}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if w := postTo(h, c.verb, c.body); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != c.want {
				t.Errorf("%d %s want %s", w.Code, w.Body, c.want)
			}
		})
	}
}

func TestReserve_denied(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	reserved(t, h, `{"entries":[{"rule":"slow","key":"k","cost":15}]}`)
	w := postTo(h, "reserve", `{"entries":[{"rule":"slow","key":"k","cost":15}]}`)
	r := parse(t, w)
	if w.Code != http.StatusOK || r.Verdict != "deny" || r.Reservation != "" || r.RetryMS == nil || r.Headers["Retry-After"] == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestReserve_ends(t *testing.T) {
	t.Parallel()
	c := newClock()
	h := newHandler(t, server.Config{Limiter: newLimiter(t, c, store.NewMemoryStore(store.MemoryConfig{Now: c.now}))})
	q := quoted(t, reserved(t, h, `{"entries":[{"rule":"slow","key":"k","cost":10}],"ttl_ms":1000}`))
	c.at(time.Second.Milliseconds())
	for _, want := range []string{"unknown", "late"} {
		verb, rest := "cancel", ""
		if want == "late" {
			verb, rest = "commit", `,"cost":1`
		}
		if w := postTo(h, verb, `{"reservation":`+q+rest+`}`); !strings.Contains(w.Body.String(), `"settlement":"`+want+`"`) {
			t.Errorf("%d %s want %s", w.Code, w.Body, want)
		}
	}
}

func TestReserve_problems(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	entry := `"entries":[{"rule":"slow","key":"k"}]`
	for _, c := range []struct {
		name, verb, body string
		status           int
		code, pointer    string
	}{
		{"nothing", "reserve", ``, 400, "bad_request", ""},
		{"a batch", "reserve", `{"checks":[{` + entry + `}]}`, 400, "bad_request", "#/checks"},
		{"an unknown field", "reserve", `{` + entry + `,"ttl":1}`, 400, "bad_request", "#/ttl"},
		{"an id twice", "reserve", `{` + entry + `,"id":"a","id":"b"}`, 400, "bad_request", "#/id"},
		{"an empty id", "reserve", `{` + entry + `,"id":""}`, 400, "bad_request", "#/id"},
		{"a long id", "reserve", `{` + entry + `,"id":"` + strings.Repeat("i", 257) + `"}`, 413, "too_large", "#/id"},
		{"a time of 999", "reserve", `{` + entry + `,"ttl_ms":999}`, 400, "bad_request", "#/ttl_ms"},
		{"a time of more than an hour", "reserve", `{` + entry + `,"ttl_ms":3600001}`, 400, "bad_request", "#/ttl_ms"},
		{"a time in text", "reserve", `{` + entry + `,"ttl_ms":"1000"}`, 400, "bad_request", "#/ttl_ms"},
		{"a look", "reserve", `{"entries":[{"rule":"slow","key":"k","cost":0}]}`, 422, "invalid_cost", ""},
		{"a log", "reserve", `{"domain":"public-api","entries":[{"rule":"login-ip","key":"203.0.113.9"}]}`, 422, "not_reservable", ""},
		{"an id in a check", "check", `{` + entry + `,"id":"a"}`, 400, "bad_request", "#/id"},
		{"no reservation", "commit", `{"cost":1}`, 400, "bad_request", "#/reservation"},
		{"no cost", "commit", `{"reservation":"AQ"}`, 400, "bad_request", "#/cost"},
		{"both costs", "commit", `{"reservation":"AQ","cost":1,"costs":{}}`, 400, "bad_request", "#/costs"},
		{"a broken reservation", "commit", `{"reservation":"AQ","cost":1}`, 400, "bad_request", "#/reservation"},
		{"a negative cost", "commit", `{"reservation":"AQ","cost":-1}`, 422, "invalid_cost", "#/cost"},
		{"a fraction by rule", "commit", `{"reservation":"AQ","costs":{"a":1.5}}`, 422, "invalid_cost", "#/costs/a"},
		{"a rule twice", "commit", `{"reservation":"AQ","costs":{"a":1,"a":1}}`, 400, "bad_request", "#/costs/a"},
		{"costs in a list", "commit", `{"reservation":"AQ","costs":[1]}`, 400, "bad_request", "#/costs"},
		{"a cancel with a cost", "cancel", `{"reservation":"AQ","cost":1}`, 400, "bad_request", "#/cost"},
		{"more behind it", "cancel", `{"reservation":"AQ"} {}`, 400, "bad_request", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := postTo(h, c.verb, c.body)
			if r := parse(t, w); w.Code != c.status || r.Code != c.code || r.Pointer != c.pointer {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// Without the store a settlement is a problem that decides nothing.
func TestReserve_away(t *testing.T) {
	t.Parallel()
	c := newClock()
	token := reserved(t, handler(t, c), `{"entries":[{"rule":"slow","key":"k"}]}`)
	h := newHandler(t, server.Config{Limiter: newLimiter(t, c, failing{store.Timeout})})
	w := postTo(h, "commit", `{"cost":1,"reservation":`+quoted(t, token)+`}`)
	if r := parse(t, w); w.Code != http.StatusGatewayTimeout || r.Code != "store_timeout" || r.Verdict != "" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestReserve_needsTokenAndPost(t *testing.T) {
	t.Parallel()
	h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), nil), Authorize: func(string) bool { return false }})
	for _, verb := range []string{"reserve", "commit", "cancel"} {
		if w := postTo(h, verb, `{}`); w.Code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", verb, w.Code)
		}
		if w := get(h, "/v1/ratelimit:"+verb); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", verb, w.Code)
		}
	}
}
