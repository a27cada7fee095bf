package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

const checkPath = "/v1/ratelimit:check"

// epochMS is where test clocks start: the start of a minute, an hour and a day.
const epochMS = 1_790_035_200_000

// clock is a clock that stands until it is moved.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.at(0)
	return c
}

func (c *clock) at(ms int64)    { c.ms.Store(epochMS + ms) }
func (c *clock) now() time.Time { return time.UnixMilli(c.ms.Load()) }

// testRules are the rules of the design, and a few for odd cases.
func testRules() []rules.Rule {
	key := []string{"api_key"}
	return []rules.Rule{
		{
			ID: "growth-global", Domain: "public-api", Match: map[string]string{"plan": "growth"}, Identity: key,
			Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 100, Burst: 200}, MaxCost: 200,
		},
		{
			ID: "labels-route", Domain: "public-api", Match: map[string]string{"route": "POST /v1/labels"}, Identity: key,
			Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 100, Burst: 100}, MaxCost: 100,
		},
		{
			ID: "login-ip", Domain: "public-api", Match: map[string]string{"route": "POST /login"}, Identity: []string{"ip"},
			Algorithm: limit.SlidingLog, Numbers: rules.Numbers{Limit: 5, WindowS: 60}, FailMode: rules.FailClosed,
		},
		{ID: "slow", CoversAll: true, Identity: key, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, PerS: 3600, Burst: 20}, MaxCost: 20},
		{ID: "shadow", Identity: key, Match: map[string]string{"plan": "x"}, Mode: rules.ModeShadow, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, PerS: 3600, Burst: 1}},
		{ID: "pair", Identity: []string{"org", "user"}, Match: map[string]string{"plan": "x"}, Algorithm: limit.FixedWindow, Numbers: rules.Numbers{Limit: 5, WindowS: 60}},
		{ID: "block", Action: rules.ActionDeny, Match: map[string]string{"country": "xx"}},
		{ID: "tiny", Identity: key, Match: map[string]string{"plan": "x"}, Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: 1, Burst: 9}, MaxCost: 9},
	}
}

func testSet() rules.Set {
	return rules.Set{
		Rules:     testRules(),
		Overrides: []rules.Override{{Rule: "tiny", Key: []string{"small"}, Numbers: rules.Numbers{Burst: 2}}},
	}
}

// counting counts the calls that reach a store.
type counting struct {
	store.Store
	calls atomic.Int64
}

func (c *counting) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	c.calls.Add(1)
	return c.Store.Take(ctx, ops)
}

// failing is a store that is away.
type failing struct{ kind store.ErrorKind }

func (f failing) Take(context.Context, []store.Op) ([]store.Grant, error) {
	return nil, &store.StoreError{Kind: f.kind, Err: context.DeadlineExceeded}
}

// newLimiter returns a limiter with the test rules on s, or on memory.
func newLimiter(t testing.TB, c *clock, s store.Store) *tallygate.Limiter {
	t.Helper()
	snapshot, problems := rules.Compile(nil, testSet(), 1, c.now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if s == nil {
		s = store.NewMemoryStore(store.MemoryConfig{Now: c.now})
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Now: c.now, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newHandler returns the endpoints over a limiter.
func newHandler(t testing.TB, config server.Config) http.Handler {
	t.Helper()
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// handler returns the endpoints with the test rules and defaults.
func handler(t testing.TB, c *clock) http.Handler {
	t.Helper()
	return newHandler(t, server.Config{Limiter: newLimiter(t, c, nil)})
}

// post sends a check.
func post(h http.Handler, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, checkPath, strings.NewReader(body)))
	return w
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// reply is what an answer or a problem may hold.
type reply struct {
	Verdict  string            `json:"verdict"`
	DeniedBy string            `json:"denied_by"`
	Reason   string            `json:"reason"`
	Degraded string            `json:"degraded"`
	RetryMS  *int64            `json:"retry_ms"`
	Entries  []replyEntry      `json:"entries"`
	Headers  map[string]string `json:"headers"`
	Results  []reply           `json:"results"`

	Reservation string `json:"reservation"`

	Type    string `json:"type"`
	Title   string `json:"title"`
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
	Pointer string `json:"pointer"`
	Rule    string `json:"rule"`

	RetryAfterSeconds int64 `json:"retry_after_seconds"`
}

type replyEntry struct {
	Rule      string `json:"rule"`
	Verdict   string `json:"verdict"`
	Mode      string `json:"mode"`
	Limit     *int64 `json:"limit"`
	Remaining *int64 `json:"remaining"`
	RetryMS   *int64 `json:"retry_ms"`
	ResetMS   *int64 `json:"reset_ms"`
	Reason    string `json:"reason"`
	Source    string `json:"source"`
}

// parse reads an answer, in which nothing may be unknown.
func parse(t testing.TB, w *httptest.ResponseRecorder) reply {
	t.Helper()
	var r reply
	d := json.NewDecoder(strings.NewReader(w.Body.String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return r
}

// mustAllow sends a check n times and wants each allowed.
func mustAllow(t testing.TB, h http.Handler, n int, body string) reply {
	t.Helper()
	var r reply
	for range n {
		w := post(h, body)
		if r = parse(t, w); w.Code != http.StatusOK || r.Verdict != "allow" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	return r
}
