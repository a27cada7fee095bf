package faults_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/openloop"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/store"
)

// slowStore allows everything, each time after a while.
type slowStore struct{ takes time.Duration }

func (s slowStore) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	time.Sleep(s.takes)
	grants := make([]store.Grant, len(ops))
	for i := range ops {
		grants[i] = store.Grant{OK: true, Remaining: 1, Limit: ops[i].Limit, NowMS: time.Now().UnixMilli()}
	}
	return grants, nil
}

// TestOverload: ten times what the server may have under way is shed at once, and
// what is served is served as before.
func TestOverload(t *testing.T) {
	needSuite(t)
	const takes, inflight = 20 * time.Millisecond, 32
	const capacity = float64(inflight) * float64(time.Second) / float64(takes)
	limiter, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(ruleSet(t)), Store: slowStore{takes}, Deadline: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = limiter.Close() }()
	s, err := server.New(server.Config{Limiter: limiter, MaxInflight: inflight})
	if err != nil {
		t.Fatal(err)
	}
	handler := s.Handler()
	post := func(i int) string {
		body := `{"entries":[{"rule":"closed","key":"overload` + strconv.Itoa(i) + `"}]}` // exact, of a key of its own
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/ratelimit:check", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code == http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), "overloaded") {
			return "another 503"
		}
		return strconv.Itoa(w.Code)
	}
	length := long(time.Second, 5*time.Second)
	for try := 1; ; try++ {
		idle := openloop.Drive(capacity/2, length, post).Of("200")
		busy := openloop.Drive(10*capacity, length, post)
		served, shed := busy.Of("200"), busy.Of("503")
		t.Logf("below capacity: %s", idle)
		t.Logf("at ten times it: served %s; shed %s", served, shed)
		if n := len(served.Calls) + len(shed.Calls); n != len(busy.Calls) {
			t.Fatalf("%d of %d were neither served nor shed: %s", len(busy.Calls)-n, len(busy.Calls), busy)
		}
		fair := float64(len(served.Calls)) > capacity*length.Seconds()/2
		// Lateness is of the machine that drives; the median tells what shedding costs.
		quick := shed.Percentile(50) < time.Millisecond && served.Percentile(99) <= 2*idle.Percentile(99)
		if fair && quick {
			return
		}
		if try == 3 {
			t.Fatalf("half of capacity served: %v; shed within 1 ms and served p99 %s at most 2 × %s: %v", fair, served.Percentile(99), idle.Percentile(99), quick)
		}
	}
}
