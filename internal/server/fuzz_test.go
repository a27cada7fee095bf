package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/store"
)

// Whatever the body: no panic, no 5xx, an answer that is JSON with the members we
// promise, and no store call for a 4xx.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{
		`{"domain":"public-api","entries":[{"rule":"growth-global","key":"acct_7Q2","cost":1},{"rule":"labels-route","key":["k"]}]}`,
		`{"domain":"public-api","attributes":{"plan":"growth","route":"POST /v1/labels","api_key":"k","ip":"203.0.113.9"},"cost":0}`,
		`{"checks":[{"entries":[{"rule":"slow","key":"k"}]},{},7,{"attributes":{}}]}`,
		`{"entries":[{"rule":"slow","key":"\u0000\ud83d\ude00","cost":-5}]}`,
		`{"entries":[{"rule":"slow","key":"k","cost":9007199254740993}]}`,
		`{"entries":[{"rule":"block"},{"rule":"shadow","key":"k"},{"rule":"pair","key":["a","b"]}]}`,
		`{"domain":"public-api","attributes":{"route":"POST /login","ip":"::ffff:192.0.2.1"}}`,
		`{"entries":[{"rule":"tiny","key":"small","cost":3}]}`, `[]`, `{"entries":`, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		counted := &counting{Store: store.NewMemoryStore(store.MemoryConfig{MaxBuckets: 100})}
		h := newHandler(t, server.Config{Limiter: newLimiter(t, newClock(), counted)})
		w := post(h, string(body))
		if w.Code >= 500 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		r := parse(t, w)
		switch {
		case !json.Valid(w.Body.Bytes()):
			t.Fatalf("%s is no JSON", w.Body)
		case w.Code == 200 && r.Verdict == "" && len(r.Results) == 0:
			t.Fatalf("no verdict in %s", w.Body)
		case w.Code == 200 && !json.Valid(body):
			t.Fatalf("%q was taken for JSON", body)
		case w.Code >= 400 && (r.Code == "" || r.Status != w.Code || counted.calls.Load() != 0):
			t.Fatalf("%d %s with %d store calls", w.Code, w.Body, counted.calls.Load())
		case w.Code == 200 && r.Verdict == "deny" && r.RetryMS != nil && r.Headers["Retry-After"] == "":
			t.Fatalf("a wait without Retry-After in %s", w.Body)
		}
		for name, value := range r.Headers {
			if strings.Contains(value, "-") && name != "RateLimit" && name != "RateLimit-Policy" {
				t.Fatalf("%s: %s is negative", name, value)
			}
		}
	})
}
