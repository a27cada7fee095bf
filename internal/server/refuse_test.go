package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/store"
)

// Each malformed body gets its status, code and pointer; the store is not asked.
func TestRefused(t *testing.T) {
	t.Parallel()
	entry := func(members string) string { return `{"entries":[{` + members + `}]}` }
	tests := []struct {
		name, body string
		status     int
		code       string
		pointer    string
	}{
		{"empty", "", 400, "bad_request", ""},
		{"no object", "7", 400, "bad_request", ""},
		{"null", "null", 400, "bad_request", ""},
		{"nothing asked", "{}", 400, "bad_request", ""},
		{"cut off", `{"entries":[{"rule":"slow","key":"k"`, 400, "bad_request", "#/entries/0"},
		{"trailing", entry(`"rule":"slow","key":"k"`) + "{}", 400, "bad_request", ""},
		{"trailing comma", `{"entries":[{"rule":"slow","key":"k"},]}`, 400, "bad_request", "#/entries/1"},
		{"unknown field", `{"entires":[]}`, 400, "bad_request", "#/entires"},
		{"unknown field with odd name", `{"a/b~c%":1}`, 400, "bad_request", "#/a~1b~0c%25"},
		{"unknown field of an entry", entry(`"rule":"slow","key":"k","costs":1`), 400, "bad_request", "#/entries/0/costs"},
		{"field in other case", entry(`"Rule":"slow","key":"k"`), 400, "bad_request", "#/entries/0/Rule"},
		{"twice", entry(`"rule":"slow","rule":"slow","key":"k"`), 400, "bad_request", "#/entries/0/rule"},
		{"twice, escaped", entry(`"rule":"slow","r\u0075le":"slow","key":"k"`), 400, "bad_request", "#/entries/0/rule"},
		{"both ways", `{"entries":[{"rule":"slow","key":"k"}],"attributes":{}}`, 400, "bad_request", "#/attributes"},
		{"checks and more", `{"checks":[{"attributes":{}}],"domain":"d"}`, 400, "bad_request", "#/checks"},
		{"no checks", `{"checks":[]}`, 400, "bad_request", "#/checks"},
		{"no entries", `{"entries":[]}`, 400, "bad_request", "#/entries"},
		{"entries null", `{"entries":null}`, 400, "bad_request", "#/entries"},
		{"entry is no object", `{"entries":["slow"]}`, 400, "bad_request", "#/entries/0"},
		{"33 entries", `{"entries":[` + strings.Repeat(`{"rule":"slow","key":"k"},`, 32) + `{"rule":"slow","key":"k"}]}`, 400, "bad_request", "#/entries"},
		{"100,000 entries", `{"entries":[` + strings.Repeat(`{},`, 100_000) + `{}]}`, 400, "bad_request", "#/entries/0/rule"},
		{"cost beside entries", `{"entries":[{"rule":"slow","key":"k"}],"cost":1}`, 400, "bad_request", "#/cost"},
		{"empty domain", `{"domain":"","attributes":{}}`, 400, "bad_request", "#/domain"},
		{"unknown domain", `{"domain":"nowhere","attributes":{}}`, 404, "unknown_domain", "#/domain"},
		{"unknown rule", entry(`"rule":"nope","key":"k"`), 404, "unknown_rule", "#/entries/0/rule"},
		{"no rule named", entry(`"key":"k"`), 400, "bad_request", "#/entries/0/rule"},
		{"no key", entry(`"rule":"slow"`), 400, "bad_request", "#/entries/0/key"},
		{"empty key", entry(`"rule":"slow","key":""`), 400, "bad_request", "#/entries/0/key"},
		{"empty list", entry(`"rule":"slow","key":[]`), 400, "bad_request", "#/entries/0/key"},
		{"key is a number", entry(`"rule":"slow","key":7`), 400, "bad_request", "#/entries/0/key"},
		{"key part is null", entry(`"rule":"pair","key":["a",null]`), 400, "bad_request", "#/entries/0/key/1"},
		{"invalid UTF-8", entry("\"rule\":\"slow\",\"key\":\"\xff\""), 400, "bad_request", "#/entries/0/key"},
		{"half a surrogate", entry(`"rule":"slow","key":"\ud800"`), 400, "bad_request", "#/entries/0/key"},
		{"raw newline", entry("\"rule\":\"slow\",\"key\":\"a\nb\""), 400, "bad_request", "#/entries/0/key"},
		{"attributes null", `{"attributes":null}`, 400, "bad_request", "#/attributes"},
		{"attribute is a number", `{"attributes":{"plan":7}}`, 400, "bad_request", "#/attributes/plan"},
		{"attribute twice", `{"attributes":{"plan":"a","plan":"b"}}`, 400, "bad_request", "#/attributes/plan"},
		{"many attributes", `{"attributes":{` + members(257) + `}}`, 400, "bad_request", "#/attributes"},
		{"many key values", entry(`"rule":"pair","key":["a","b","c","d","e"]`), 400, "bad_request", "#/entries/0/key"},
		{"attribute without name", `{"attributes":{"":"b"}}`, 400, "bad_request", "#/attributes"},
		{"missing identity", `{"domain":"public-api","attributes":{"plan":"growth"}}`, 422, "missing_identity", "#/attributes"},
		{"too deep", `{"checks":[` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `]}`, 400, "bad_request", "#/checks"},
		{"attributes above max_cost", `{"attributes":{"api_key":"k"},"cost":21}`, 422, "invalid_cost", "#/cost"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			counted := &counting{Store: failing{}}
			h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), counted)})
			w := post(h, test.body)
			r := parse(t, w)
			if w.Code != test.status || r.Status != test.status || r.Code != test.code || r.Pointer != test.pointer {
				t.Errorf("%d %s\nwant %d %s at %q", w.Code, w.Body, test.status, test.code, test.pointer)
			}
			if w.Header().Get("Content-Type") != "application/problem+json" || r.Title == "" || r.Detail == "" || r.Type == "" {
				t.Errorf("%v %s is no full problem", w.Header(), w.Body)
			}
			if n := counted.calls.Load(); n != 0 {
				t.Errorf("%d store calls", n)
			}
		})
	}
}

// CST-02: costs of every wrong kind are named and refused; none spends or mints.
func TestCST02(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	for cost, status := range map[string]int{
		"-5": 422, "-1": 422, "-0": 422, "0.5": 422, "1.0": 422, "1e2": 422, "1e400": 422, "9007199254740993": 422,
		"1000000001": 422, "21": 422, `"1"`: 422, `"NaN"`: 422, "null": 422, "true": 422, "[1]": 422, "{}": 422,
		"99999999999999999999999999999999999999999999": 422,
		"NaN": 400, "Infinity": 400, "01": 400, "+1": 400, "0x10": 400, "1_000": 400, ".5": 400, "": 400, "-": 400, "1.": 400, "1e": 400,
	} {
		for _, body := range []string{
			`{"entries":[{"rule":"slow","key":"k","cost":` + cost + `}]}`,
			`{"attributes":{"api_key":"k"},"cost":` + cost + `}`,
		} {
			w := post(h, body)
			r := parse(t, w)
			if w.Code != status || status == 422 && (r.Code != "invalid_cost" || !strings.HasSuffix(r.Pointer, "/cost")) {
				t.Errorf("cost %s: %d %s", cost, w.Code, w.Body)
			}
			if status == 422 && len(cost) < 40 && !strings.Contains(r.Detail, strings.Trim(cost, `"`)) {
				t.Errorf("cost %s: %q does not name the value", cost, r.Detail)
			}
		}
	}
	mustAllow(t, h, 20, `{"entries":[{"rule":"slow","key":"k"}]}`)
	if r := parse(t, post(h, `{"entries":[{"rule":"slow","key":"k"}]}`)); r.Verdict != "deny" {
		t.Errorf("the 21st check: %+v", r)
	}
}

// KEY-04: long keys never reach the store, quickly.
func TestKEY04(t *testing.T) {
	t.Parallel()
	counted := &counting{Store: store.NewMemoryStore(store.MemoryConfig{})}
	h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), counted)})
	for _, body := range []string{
		`{"entries":[{"rule":"slow","key":"` + strings.Repeat("k", 1<<20-1000) + `"}]}`,
		`{"attributes":{"api_key":"` + strings.Repeat("k", 4097) + `"}}`,
		`{"entries":[{"rule":"slow","key":"` + strings.Repeat("k", 1<<20) + `"}]}`,
	} {
		w := post(h, body)
		if r := parse(t, w); w.Code != http.StatusRequestEntityTooLarge || r.Code != "too_large" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if n := counted.calls.Load(); n != 0 {
		t.Errorf("%d store calls", n)
	}
	long := strings.Repeat("k", 4095)
	mustAllow(t, h, 5, `{"entries":[{"rule":"slow","key":"`+long+`a"}]}`)
	if r := mustAllow(t, h, 1, `{"entries":[{"rule":"slow","key":"`+long+`b"}]}`); *r.Entries[0].Remaining != 19 {
		t.Errorf("%d left of another key, want 19", *r.Entries[0].Remaining)
	}
}

// KEY-01: odd characters in keys are keys of their own.
func TestKEY01(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	for _, key := range []string{"a", "a:b", "{a}", "{}", "a}b{", `\u0000`, `a\nb`, `\"`, `ü`, `\ud83d\ude00`, " ", "slow", "a/b"} {
		r := mustAllow(t, h, 1, `{"entries":[{"rule":"slow","key":"`+key+`"}]}`)
		if *r.Entries[0].Remaining != 19 {
			t.Errorf("key %s: %d left, want 19", key, *r.Entries[0].Remaining)
		}
	}
	for _, key := range []string{`["a:b","c"]`, `["a","b:c"]`, `["a","b"]`, `["ab",":c"]`} {
		r := mustAllow(t, h, 1, `{"entries":[{"rule":"pair","key":`+key+`}]}`)
		if *r.Entries[0].Remaining != 4 {
			t.Errorf("key %s: %d left, want 4", key, *r.Entries[0].Remaining)
		}
	}
}

func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	tests := []struct {
		method, path string
		status       int
		allow        string
	}{
		{http.MethodGet, checkPath, 405, "POST"},
		{http.MethodDelete, checkPath, 405, "POST"},
		{http.MethodPost, "/healthz", 405, "GET, HEAD"},
		{http.MethodPost, "/version", 405, "GET, HEAD"},
		{http.MethodGet, "/", 404, ""},
		{http.MethodPost, "/v1/ratelimit:checks", 404, ""},
		{http.MethodHead, "/healthz", 200, ""},
		{http.MethodGet, "/readyz", 200, ""},
	}
	for _, test := range tests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(test.method, test.path, nil))
		if w.Code != test.status || w.Header().Get("Allow") != test.allow {
			t.Errorf("%s %s: %d %v", test.method, test.path, w.Code, w.Header())
		}
		if test.status >= 400 && test.method != http.MethodHead {
			if r := parse(t, w); r.Status != test.status {
				t.Errorf("%s %s: %s", test.method, test.path, w.Body)
			}
		}
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	h := handler(t, newClock())
	send := func(change func(*http.Request)) int {
		r := httptest.NewRequest(http.MethodPost, checkPath, strings.NewReader(`{"entries":[{"rule":"slow","key":"k"}]}`))
		change(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	tests := []struct {
		name   string
		change func(*http.Request)
		status int
	}{
		{"any content type, as curl -d sends", func(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }, 200},
		{"identity", func(r *http.Request) { r.Header.Set("Content-Encoding", "identity") }, 200},
		{"gzip", func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415},
		{"told too large", func(r *http.Request) { r.ContentLength = 1<<20 + 1 }, 413},
		{"too large, not told", func(r *http.Request) {
			r.ContentLength, r.Body = -1, http.NoBody
			r.Body = readCloser{bytes.NewReader(make([]byte, 1<<20+1))}
		}, 413},
		{"too slow", func(r *http.Request) { r.Body = readCloser{slow{}} }, 408},
	}
	for _, test := range tests {
		if got := send(test.change); got != test.status {
			t.Errorf("%s: %d, want %d", test.name, got, test.status)
		}
	}
}

// readCloser makes a body of a reader.
type readCloser struct{ io.Reader }

func (readCloser) Close() error { return nil }

// slow is a body whose time is up.
type slow struct{}

func (slow) Read([]byte) (int, error) { return 0, fmt.Errorf("read: %w", os.ErrDeadlineExceeded) }

// A client that left spends no more of a batch.
func TestCanceledBatch(t *testing.T) {
	t.Parallel()
	counted := &counting{Store: store.NewMemoryStore(store.MemoryConfig{})}
	h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), counted)})
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	cancel()
	r := httptest.NewRequest(http.MethodPost, checkPath, strings.NewReader(`{"checks":[{"entries":[{"rule":"slow","key":"k"}]}]}`))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable || counted.calls.Load() != 0 {
		t.Errorf("%d %s, %d store calls", w.Code, w.Body, counted.calls.Load())
	}
}

// members are n members of an object of strings.
func members(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"a%d":""`, i)
	}
	return b.String()[1:]
}
