package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/store"
)

// The answers, byte for byte.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const growth = `{"domain":"public-api","entries":[{"rule":"growth-global","key":"acct_7Q2","cost":%d}]}`
	tests := []struct {
		name, before, body, want string
	}{
		{
			"allow", fmt.Sprintf(growth, 58), fmt.Sprintf(growth, 1),
			`{"verdict":"allow","entries":[{"rule":"growth-global","verdict":"allow","limit":200,"remaining":141,"reset_ms":590,"source":"store"}],` +
				`"headers":{"X-RateLimit-Limit":"200","X-RateLimit-Remaining":"141","X-RateLimit-Reset":"1790035201",` +
				`"RateLimit-Policy":"\"growth-global\";q=200;w=2","RateLimit":"\"growth-global\";r=141;t=1"}}`,
		},
		{
			"deny", fmt.Sprintf(growth, 200), fmt.Sprintf(growth, 1),
			`{"verdict":"deny","denied_by":"growth-global","retry_ms":10,"entries":[{"rule":"growth-global","verdict":"deny","limit":200,"remaining":0,` +
				`"retry_ms":10,"reset_ms":2000,"reason":"over_limit","source":"store"}],` +
				`"headers":{"X-RateLimit-Limit":"200","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1790035202",` +
				`"RateLimit-Policy":"\"growth-global\";q=200;w=2","RateLimit":"\"growth-global\";r=0;t=1","Retry-After":"1"}}`,
		},
		{
			"no rule", "", `{"domain":"public-api","attributes":{"plan":"free"}}`,
			`{"verdict":"allow","reason":"no_rule","entries":[],"headers":{}}`,
		},
		{
			"refused by a rule", "", `{"entries":[{"rule":"slow","key":"k"},{"rule":"block"}]}`,
			`{"verdict":"deny","denied_by":"block","entries":[{"rule":"slow","verdict":"allow","source":"none"},` +
				`{"rule":"block","verdict":"deny","reason":"denied","source":"rule"}],"headers":{}}`,
		},
		{
			"shadow", `{"entries":[{"rule":"shadow","key":"k"}]}`, `{"entries":[{"rule":"shadow","key":"k"}]}`,
			`{"verdict":"allow","entries":[{"rule":"shadow","verdict":"deny","mode":"shadow","limit":1,"remaining":0,"retry_ms":3600000,` +
				`"reset_ms":3600000,"reason":"over_limit","source":"store"}],"headers":{}}`,
		},
		{
			"no waiting helps", "", `{"entries":[{"rule":"tiny","key":["small"],"cost":3}]}`,
			`{"verdict":"deny","denied_by":"tiny","entries":[{"rule":"tiny","verdict":"deny","limit":2,"remaining":2,"reset_ms":0,` +
				`"reason":"cost_exceeds_limit","source":"store"}],"headers":{"X-RateLimit-Limit":"2","X-RateLimit-Remaining":"2",` +
				`"X-RateLimit-Reset":"1790035200","RateLimit-Policy":"\"tiny\";q=2;w=2","RateLimit":"\"tiny\";r=2;t=0"}}`,
		},
		{
			"list of key parts and white space", "", " {\n\t\"entries\" : [ { \"key\":[\"o\",\"\\u0075\"], \"rule\":\"pair\" } ] }\r\n",
			`{"verdict":"allow","entries":[{"rule":"pair","verdict":"allow","limit":5,"remaining":4,"reset_ms":60000,"source":"store"}],` +
				`"headers":{"X-RateLimit-Limit":"5","X-RateLimit-Remaining":"4","X-RateLimit-Reset":"1790035260",` +
				`"RateLimit-Policy":"\"pair\";q=5;w=60","RateLimit":"\"pair\";r=4;t=60"}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := handler(t, newClock())
			if test.before != "" {
				mustAllow(t, h, 1, test.before)
			}
			w := post(h, test.body)
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" || w.Body.String() != test.want+"\n" {
				t.Errorf("%d %s\ngot  %s\nwant %s", w.Code, w.Header().Get("Content-Type"), w.Body, test.want)
			}
			parse(t, w)
		})
	}
}

// HDR-02: Retry-After rounds up, and is enough.
func TestHDR02(t *testing.T) {
	t.Parallel()
	c := newClock()
	h := handler(t, c)
	body := `{"entries":[{"rule":"slow","key":"k","cost":20}]}`
	mustAllow(t, h, 1, body)
	c.at(1500)
	r := parse(t, post(h, `{"entries":[{"rule":"slow","key":"k"}]}`))
	if r.Verdict != "deny" || *r.RetryMS != 3_598_500 || r.Headers["Retry-After"] != "3599" {
		t.Errorf("%+v, want Retry-After 3599 for 3,598.5 s", r)
	}
	c.at(1500 + 3_599_000)
	mustAllow(t, h, 1, `{"entries":[{"rule":"slow","key":"k"}]}`)
}

// HDR-06: with several limits the headers describe one, the tightest.
func TestHDR06(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	mustAllow(t, h, 1, `{"domain":"public-api","entries":[{"rule":"growth-global","key":"k","cost":58},{"rule":"labels-route","key":"k","cost":87}]}`)
	r := parse(t, post(h, `{"domain":"public-api","attributes":{"plan":"growth","route":"POST /v1/labels","api_key":"k"}}`))
	if got := []int64{*r.Entries[0].Remaining, *r.Entries[0].ResetMS, *r.Entries[1].Remaining, *r.Entries[1].ResetMS}; fmt.Sprint(got) != "[141 590 12 880]" {
		t.Errorf("entries %v", got)
	}
	for name, want := range map[string]string{
		"X-RateLimit-Limit": "100", "X-RateLimit-Remaining": "12", "X-RateLimit-Reset": strconv.Itoa(epochMS/1000 + 1),
		"RateLimit": `"labels-route";r=12;t=1`, "RateLimit-Policy": `"labels-route";q=100;w=1`,
	} {
		if got := r.Headers[name]; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// HDR-08: a check that passes without the store shows no made-up numbers.
func TestHDR08(t *testing.T) {
	t.Parallel()
	for kind, want := range map[store.ErrorKind]string{
		store.Timeout: "store_timeout", store.Unavailable: "store_unavailable", store.Refused: "store_unavailable",
	} {
		h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), failing{kind})})
		w := post(h, `{"entries":[{"rule":"slow","key":"k"}]}`)
		wantBody := `{"verdict":"allow","degraded":"` + want + `","entries":[{"rule":"slow","verdict":"allow","reason":"` + want + `","source":"fallback"}],"headers":{}}` + "\n"
		if w.Code != http.StatusOK || w.Body.String() != wantBody {
			t.Errorf("%s: %d %s", kind, w.Code, w.Body)
		}
	}
}

// FLT-12: unknown is deny for closed rules.
func TestFLT12(t *testing.T) {
	t.Parallel()
	for kind, want := range map[store.ErrorKind]struct {
		status int
		code   string
	}{
		store.Timeout:     {http.StatusGatewayTimeout, "store_timeout"},
		store.Unavailable: {http.StatusServiceUnavailable, "store_unavailable"},
		store.Refused:     {http.StatusServiceUnavailable, "store_unavailable"},
	} {
		h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), failing{kind})})
		w := post(h, `{"domain":"public-api","attributes":{"route":"POST /login","ip":"203.0.113.9"}}`)
		r := parse(t, w)
		if w.Code != want.status || r.Code != want.code || r.Verdict != "deny" || r.DeniedBy != "login-ip" ||
			w.Header().Get("Retry-After") != "1" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v %s", kind, w.Code, w.Header(), w.Body)
		}
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	w := post(h, `{"checks":[
		{"entries":[{"rule":"slow","key":"k","cost":20}]},
		{"entries":[{"rule":"slow","key":"k"}]},
		{"entries":[{"rule":"nope","key":"k"}]},
		{"entries":[{"rule":"slow","key":"k","cost":0.5}]},
		{"checks":[]},
		7,
		{"domain":"public-api","attributes":{"plan":"growth","api_key":"k"},"cost":2}
	]}`)
	r := parse(t, w)
	if w.Code != http.StatusOK || len(r.Results) != 7 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i, want := range []struct{ verdict, code, pointer string }{
		{verdict: "allow"},
		{verdict: "deny"},
		{code: "unknown_rule", pointer: "#/checks/2/entries/0/rule"},
		{code: "invalid_cost", pointer: "#/checks/3/entries/0/cost"},
		{code: "bad_request", pointer: "#/checks/4/checks"},
		{code: "bad_request", pointer: "#/checks/5"},
		{verdict: "allow"},
	} {
		got := r.Results[i]
		if got.Verdict != want.verdict || got.Code != want.code || got.Pointer != want.pointer {
			t.Errorf("result %d: %+v, want %+v", i, got, want)
		}
	}
	if got := *r.Results[6].Entries[0].Remaining; got != 198 {
		t.Errorf("last result has %d left, want 198", got)
	}
}

func TestBatchBounds(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	item := `{"attributes":{"plan":"free","api_key":"k"},"cost":0}`
	r := parse(t, post(h, `{"checks":[`+strings.Repeat(item+",", 999)+item+`]}`))
	if len(r.Results) != 1000 {
		t.Errorf("%d results, want 1000", len(r.Results))
	}
	w := post(h, `{"checks":[`+strings.Repeat(item+",", 1000)+item+`]}`)
	if r := parse(t, w); w.Code != http.StatusRequestEntityTooLarge || r.Code != "too_large" || r.Pointer != "#/checks" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestOverloaded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), nil), MaxInflight: 1})
	done := make(chan *httptest.ResponseRecorder)
	go func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, checkPath, &gate{entered: entered, leave: leave}))
		done <- w
	}()
	<-entered
	w := post(h, `{"entries":[{"rule":"slow","key":"k"}]}`)
	if r := parse(t, w); w.Code != http.StatusServiceUnavailable || r.Code != "overloaded" || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	close(leave)
	if w := <-done; w.Code != http.StatusBadRequest {
		t.Errorf("%d %s, want an empty body refused", w.Code, w.Body)
	}
	mustAllow(t, h, 1, `{"entries":[{"rule":"slow","key":"k"}]}`)
}

// gate is a body that arrives when it is let to.
type gate struct{ entered, leave chan struct{} }

func (g *gate) Read([]byte) (int, error) {
	close(g.entered)
	<-g.leave
	return 0, http.ErrBodyReadAfterClose
}
