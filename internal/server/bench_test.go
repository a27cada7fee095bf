package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
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

// raw is the harder yardstick: it does not even look at the bytes.
func raw(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// client is one keep-alive connection that does as little as it can, so that the
// figures are the server's.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

func dial(tb testing.TB, url string) *client {
	tb.Helper()
	conn, err := net.Dial("tcp", url[len("http://"):])
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return &client{conn: conn, in: bufio.NewReader(conn)}
}

// do sends a request and reads its answer.
func (c *client) do(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	length, first := 0, true
	for {
		line, err := c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")):
			return fmt.Errorf("%s", line)
		case len(line) == 2:
			c.body = append(c.body[:0], make([]byte, length)...)
			_, err := io.ReadFull(c.in, c.body)
			return err
		}
		first = false
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
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

// BenchmarkCheck asks the check API and both yardsticks in turn, in short rounds
// over loopback, and reports what part of each yardstick's throughput the check
// reaches. The goal is 0.7 of echo.
func BenchmarkCheck(b *testing.B) {
	handlers := []struct {
		name string
		http.Handler
	}{
		{"check", newHandler(b, server.Config{Limiter: benchLimiter(b)})},
		{"echo", http.HandlerFunc(echo)},
		{"raw", http.HandlerFunc(raw)},
	}
	urls := make([]string, len(handlers))
	for i, h := range handlers {
		s := httptest.NewServer(h)
		b.Cleanup(s.Close)
		urls[i] = s.URL
	}
	const clients, round = 8, 250
	for n, body := range bodies() {
		b.Run([]string{"entry", "entries", "attributes"}[n], func(b *testing.B) {
			request := []byte(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", checkPath, len(body), body))
			conns := make([][]*client, len(urls))
			for i, url := range urls {
				for range clients {
					conns[i] = append(conns[i], dial(b, url))
				}
			}
			spent := make([]time.Duration, len(urls))
			done := 0
			for b.Loop() {
				for i := range urls {
					start := time.Now()
					var group sync.WaitGroup
					for _, c := range conns[i] {
						group.Go(func() {
							for range round {
								if err := c.do(request); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
					group.Wait()
					spent[i] += time.Since(start)
				}
				done += clients * round
			}
			for i, h := range handlers {
				b.ReportMetric(float64(done)/spent[i].Seconds(), h.name+"/s")
			}
			b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "of-echo")
			b.ReportMetric(spent[2].Seconds()/spent[0].Seconds(), "of-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
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
