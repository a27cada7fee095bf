package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// away is a store that has been given up on.
type away struct{}

func (away) Take(context.Context, []store.Op) ([]store.Grant, error) {
	return nil, &store.StoreError{Kind: store.Timeout, Down: time.Millisecond, Err: context.DeadlineExceeded}
}

// awayHandler has an open rule of two at once, a closed one, and closed ones with a
// list and with an allowance.
func awayHandler(t *testing.T) http.Handler {
	t.Helper()
	c := newClock()
	rule := func(id string, mode rules.FailMode) rules.Rule {
		return rules.Rule{
			ID: id, CoversAll: true, Identity: []string{"api_key"}, Algorithm: limit.TokenBucket, FailMode: mode,
			Numbers: rules.Numbers{Rate: 1, PerS: 3600, Burst: 10},
		}
	}
	open, shut, listed, part := rule("open", rules.FailOpen), rule("shut", rules.FailClosed), rule("listed", rules.FailClosed), rule("part", rules.FailClosed)
	open.Burst = 1
	listed.ClosedAllow = [][]string{{"staff"}}
	part.ClosedAllowanceMilli = 100
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{open, shut, listed, part}}, 1, c.now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: away{}, Now: c.now, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return newHandler(t, server.Config{Limiter: l})
}

// What the wire shows of a store that does not answer: no number that is made up, and
// a time to wait on every denial.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	const (
		entry      = `{"entries":[{"rule":"RULE","key":"KEY"}]}`
		passed     = `{"verdict":"allow","degraded":"store_unavailable","entries":[{"rule":"RULE","verdict":"allow","reason":"store_unavailable","source":"SOURCE"}],"headers":{}}`
		denied     = `{"verdict":"deny","denied_by":"RULE","degraded":"store_unavailable","retry_ms":1000,"entries":[{"rule":"RULE","verdict":"deny","retry_ms":1000,"reason":"over_limit","source":"fallback"}],"headers":{"Retry-After":"1"}}`
		refused    = `{"type":"urn:tallygate:problem:store_unavailable","title":"The store is unavailable","status":503,"code":"store_unavailable","detail":"the store did not answer and rule RULE fails closed","rule":"RULE","verdict":"deny","denied_by":"RULE","retry_after_seconds":1}`
		problem    = http.StatusServiceUnavailable
		admissions = 2 // of a burst of one, twice
	)
	for _, c := range []struct {
		name, rule, key, source string
		passes                  int
		then                    string
		status                  int
	}{
		{"open", "open", "k", "fallback", admissions, denied, http.StatusOK},
		{"closed", "shut", "k", "", 0, refused, problem},
		{"closed, listed", "listed", "staff", "allowlist", 100, "", http.StatusOK},
		{"closed, not listed", "listed", "k", "", 0, refused, problem},
		{"closed with an allowance", "part", "k", "fallback", 1, denied, http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := awayHandler(t)
			r := strings.NewReplacer("RULE", c.rule, "KEY", c.key, "SOURCE", c.source)
			for range c.passes {
				if w := post(h, r.Replace(entry)); w.Code != http.StatusOK || strings.TrimSpace(w.Body.String()) != r.Replace(passed) {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			if c.then == "" {
				return
			}
			w := post(h, r.Replace(entry))
			if w.Code != c.status || strings.TrimSpace(w.Body.String()) != r.Replace(c.then) {
				t.Errorf("%d %s\nwant %s", w.Code, w.Body, r.Replace(c.then))
			}
			if c.status != http.StatusOK && w.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
			}
		})
	}
}
