package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/server"
)

// held decides nothing until it is let go.
type held struct{ begun, letGo chan struct{} }

func (h held) Decide(_ context.Context, _ tallygate.Check, v *tallygate.Verdict) error {
	h.begun <- struct{}{}
	<-h.letGo
	v.Allow, v.Tightest, v.Reason = true, -1, tallygate.ReasonNoRule
	return nil
}

// TestShed: what is above the bound is refused, counted, and leaves its place to others.
func TestShed(t *testing.T) {
	h := held{make(chan struct{}), make(chan struct{})}
	s, err := server.New(server.Config{Limiter: h, MaxInflight: 2})
	if err != nil {
		t.Fatal(err)
	}
	post := func() int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/ratelimit:check", strings.NewReader(`{"entries":[{"rule":"r","key":"k"}]}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		return w.Code
	}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if got := post(); got != http.StatusOK {
				t.Errorf("a check within the bound: %d", got)
			}
		})
		<-h.begun
	}
	for n := range int64(3) {
		if got := post(); got != http.StatusServiceUnavailable || s.Shed() != n+1 {
			t.Errorf("a check beyond the bound: %d, %d shed; want 503, %d", got, s.Shed(), n+1)
		}
	}
	close(h.letGo)
	group.Wait()
	go func() { <-h.begun }()
	if got := post(); got != http.StatusOK || s.Shed() != 3 {
		t.Errorf("after the others: %d, %d shed", got, s.Shed())
	}
}
