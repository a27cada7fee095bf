package bench_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallygate/tallygate/internal/server"
)

// BenchmarkHandler is the check without HTTP's share.
func BenchmarkHandler(b *testing.B) {
	s, err := server.New(server.Config{Limiter: limiter(b)})
	if err != nil {
		b.Fatal(err)
	}
	for what, body := range bodies {
		for name, h := range map[string]http.Handler{"check": s.Handler(), "echo": http.HandlerFunc(echo)} {
			b.Run(name+"/"+what, func(b *testing.B) {
				r := httptest.NewRequest(http.MethodPost, "/v1/ratelimit:check", nil)
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
