package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/rules"
)

// The bodies asked: one entry, two, and two found by attributes.
func bodies() []string {
	return []string{
		`{"domain":"public-api","entries":[{"rule":"growth-global","key":"acct_7Q2","cost":1}]}`,
		`{"domain":"public-api","entries":[{"rule":"growth-global","key":"acct_7Q2","cost":1},{"rule":"labels-route","key":"acct_7Q2","cost":1}]}`,
		`{"domain":"public-api","attributes":{"plan":"growth","route":"POST /v1/labels","api_key":"acct_7Q2","ip":"203.0.113.9"},"cost":1}`,
	}
}

// echo is the yardstick: a bare net/http handler that decodes the same bodies
// with encoding/json and encodes what it got.
func echo(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Domain  string `json:"domain"`
		Entries []struct {
			Rule string `json:"rule"`
			Key  string `json:"key"`
			Cost int64  `json:"cost"`
		} `json:"entries,omitempty"`
		Attributes map[string]string `json:"attributes,omitempty"`
		Cost       int64             `json:"cost,omitempty"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// benchLimiter never denies.
func benchLimiter(b *testing.B) *tallygate.Limiter {
	b.Helper()
	set := testSet()
	for i := range set.Rules {
		if r := &set.Rules[i]; r.Domain == "public-api" && r.Rate > 0 {
			r.Rate, r.Burst = 1_000_000_000, 1_000_000_000
		}
	}
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if err := problems.Err(); err != nil {
		b.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		b.Fatal(err)
	}
	return l
}

// BenchmarkHandler is the check without HTTP's share.
func BenchmarkHandler(b *testing.B) {
	for n, body := range bodies() {
		for name, h := range map[string]http.Handler{
			"check": newHandler(b, server.Config{Limiter: benchLimiter(b)}), "echo": http.HandlerFunc(echo),
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				r := httptest.NewRequest(http.MethodPost, checkPath, nil)
				w := discard{http.Header{}}
				reader := new(rewound)
				b.ReportAllocs()
				for b.Loop() {
					reader.Reset([]byte(body))
					r.Body = reader
					h.ServeHTTP(w, r)
				}
			})
		}
	}
}

type rewound struct{ bytes.Reader }

func (*rewound) Close() error { return nil }

// discard is a ResponseWriter that throws all away.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
