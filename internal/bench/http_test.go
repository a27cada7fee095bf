package bench_test

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
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// The bodies asked: one entry, two, and two found by attributes.
var bodies = map[string]string{
	"an entry":    `{"domain":"public-api","entries":[{"rule":"growth-global","key":"acct_7Q2","cost":1}]}`,
	"two entries": `{"domain":"public-api","entries":[{"rule":"growth-global","key":"acct_7Q2","cost":1},{"rule":"labels-route","key":"acct_7Q2","cost":1}]}`,
	"attributes":  `{"domain":"public-api","attributes":{"plan":"growth","route":"POST /v1/labels","api_key":"acct_7Q2","ip":"203.0.113.9"},"cost":1}`,
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

// plenty is a rate and a burst that no measurement drains.
const plenty = 1_000_000_000

// growth are two rules that no measurement drains.
func growth() rules.Set {
	rule := func(id, attribute, value string) rules.Rule {
		return rules.Rule{
			ID: id, Domain: "public-api", Match: map[string]string{attribute: value}, Identity: []string{"api_key"},
			Algorithm: limit.TokenBucket, Numbers: rules.Numbers{Rate: plenty, Burst: plenty},
		}
	}
	return rules.Set{Rules: []rules.Rule{rule("growth-global", "plan", "growth"), rule("labels-route", "route", "POST /v1/labels")}}
}

func limiter(t testing.TB) *tallygate.Limiter {
	t.Helper()
	snapshot, problems := rules.Compile(nil, growth(), 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func testHTTP(t *testing.T) {
	s, err := server.New(server.Config{Limiter: limiter(t)})
	if err != nil {
		t.Fatal(err)
	}
	ours, yard := httptest.NewServer(s.Handler()), httptest.NewServer(http.HandlerFunc(echo))
	defer ours.Close()
	defer yard.Close()
	for _, name := range []string{"an entry", "two entries", "attributes"} {
		got := interleave(
			sample{"echo", posts(t, yard, bodies[name])},
			sample{"check", posts(t, ours, bodies[name])},
		)
		row(t, "JSON check of "+name+" / JSON echo", got[1], got[0], "calls/s", atLeast(0.7), got[1] >= 0.7*got[0])
	}
}

// posts sends a body over eight keep-alive connections that do as little as they
// can, so that the figures are the server's, and returns calls a second.
func posts(t *testing.T, s *httptest.Server, body string) func(n int) float64 {
	t.Helper()
	const clients = 8
	request := fmt.Appendf(nil, "POST /v1/ratelimit:check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	conns := make([]*client, clients)
	for i := range conns {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns[i] = &client{conn: conn, in: bufio.NewReader(conn)}
	}
	return func(n int) float64 {
		each := n/clients + 1
		start := time.Now()
		var wg sync.WaitGroup
		for _, c := range conns {
			wg.Go(func() {
				for range each {
					if err := c.do(request); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(each*clients) / time.Since(start).Seconds()
	}
}

// client is one keep-alive connection.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
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
