package rls_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/rls"
)

// Calls are used again by others, also after one that is refused: each answer speaks of
// its own descriptors, in their order, and of its own keys.
func TestAnswersDoNotMix(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]rls.Config{
		"all or none": {}, "each by itself": {PerDescriptor: true}, "every hit": {CountDenied: true},
		"every hit by itself": {CountDenied: true, PerDescriptor: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config.Limiter, config.Headers = limiterOf(t, newClock(), nil), new(headers.Style)
			s := newServer(t, config)
			var all sync.WaitGroup
			for worker := range 8 {
				all.Go(func() { mixed(t, s, worker) })
			}
			all.Wait()
		})
	}
}

// mixed asks for keys of one worker's own, good requests and bad ones in turn.
func mixed(t *testing.T, s *rls.Server, worker int) {
	t.Helper()
	for i := range 200 {
		key := fmt.Sprint(worker, "-", i)
		var r *rlsv3.RateLimitRequest
		var want, name string
		switch i % 4 {
		case 0:
			r = request(of("ten", key), descriptor("x=y"), of("two", key))
			want, name = "OK; OK 9 of 10/MINUTE ten in 1m0s; OK; OK 1 of 2/MINUTE two in 1m0s", `"two"`
		case 1:
			r = request(limited(of("x", key), uint32(3+worker), typev3.RateLimitUnit_HOUR, 0))
			want, name = fmt.Sprintf("OK; OK %d of %d/HOUR  in 1h0m0s", 2+worker, 3+worker), fmt.Sprintf(`"envoy-%d-per-3600s"`, 3+worker)
		case 2:
			r = request(hits(of("ten", key), 7), of("ten", strings.Repeat("k", 5000)))
		case 3:
			r = request(hits(of("ten", key), 4))
			want, name = "OK; OK 6 of 10/MINUTE ten in 1m0s", `"ten"`
		}
		response, err := s.ShouldRateLimit(context.Background(), r)
		if want == "" {
			if err == nil {
				t.Errorf("%v: not refused", r)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if got := told(response); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
		for _, h := range response.GetResponseHeadersToAdd() {
			if h.GetKey() == "RateLimit-Policy" && !strings.Contains(h.GetValue(), name[1:len(name)-1]) {
				t.Errorf("%s: policy %s, want that of %s", key, h.GetValue(), name)
			}
		}
	}
}
