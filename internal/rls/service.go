package rls

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/sampled"
	"github.com/tallygate/tallygate/internal/unlimited"
)

// Service answers ShouldRateLimit. It is part of a [Server].
type Service struct {
	rlsv3.UnimplementedRateLimitServiceServer

	config    Config
	overrides overrides
	paths     paths
	calls     sync.Pool
	inflight  atomic.Int64
	log       *sampled.Log
	unlimited *unlimited.Notice

	shed, unknown, closed, failed, panics atomic.Int64
}

// Stats counts what no answer of the limiter shows. All of it only grows.
type Stats struct {
	// Shed were refused since too many requests were under way.
	Shed int64
	// UnknownDomain were passed since there is no rule in their domain.
	UnknownDomain int64
	// FailClosed had no answer of the store and a rule that fails closed.
	FailClosed int64
	// Failed got an error of another kind, and Panics of a bug of ours.
	Failed, Panics int64
}

// Stats returns the figures.
func (s *Service) Stats() Stats {
	return Stats{
		Shed: s.shed.Load(), UnknownDomain: s.unknown.Load(), FailClosed: s.closed.Load(),
		Failed: s.failed.Load(), Panics: s.panics.Load(),
	}
}

// ShouldRateLimit implements Envoy's service.
func (s *Service) ShouldRateLimit(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	if s.config.Authorize != nil && !s.config.Authorize(token(ctx)) {
		return nil, s.refused(unauthorized())
	}
	return s.answer(ctx, request)
}

// answer bounds the requests under way, and turns a panic into an error: one request
// that finds a bug must not end those of all others.
func (s *Service) answer(ctx context.Context, request *rlsv3.RateLimitRequest) (response *rlsv3.RateLimitResponse, err error) {
	if s.inflight.Add(1) > int64(s.config.MaxInflight) {
		s.inflight.Add(-1)
		s.shed.Add(1)
		return nil, refuse(codes.ResourceExhausted, tallygate.CodeOverloaded, fmt.Sprintf("overloaded: more than %d requests are in flight", s.config.MaxInflight))
	}
	defer func() {
		s.inflight.Add(-1)
		if p := recover(); p != nil {
			response, err = nil, s.panicked(p)
		}
	}()
	response, err = s.decide(ctx, request)
	if err != nil {
		err = s.refused(asStatus(ctx, err))
	}
	return response, err
}

// decide is the path of a request.
func (s *Service) decide(ctx context.Context, request *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	c := s.calls.Get().(*call) //nolint:forcetypeassert // the pool holds nothing else
	defer s.free(c)            // also after an error: what was read is to be cleared
	c.anyway = s.config.CountDenied
	c.imported = s.config.Imported != nil && s.config.Imported(request.GetDomain())
	if err := c.read(&s.overrides, &s.paths, request); err != nil {
		return nil, err
	}
	response, parts := newReply(len(c.sets))
	var err error
	if s.config.PerDescriptor {
		err = s.decideEach(ctx, c, request.GetDomain(), parts)
	} else {
		err = s.config.Limiter.Decide(ctx, c.check(request.GetDomain(), c.sets), &c.verdict)
		if err == nil {
			tell(parts, c.limits, &c.verdict)
		}
	}
	switch {
	case err == nil:
	case tallygate.CodeOf(err) == tallygate.CodeUnknownDomain:
		s.unknown.Add(1)
		s.unlimited.Passed(time.Now(), request.GetDomain())
		return response, nil
	case noStore(err):
		s.closed.Add(1)
		if s.config.ErrorOnFailure {
			return nil, err
		}
		failClosed(response, parts)
		return response, nil
	default:
		return nil, err
	}
	for i := range parts {
		if parts[i].status.GetCode() == codeOver {
			response.OverallCode = codeOver
		}
	}
	s.adorn(response, &c.verdict)
	return response, nil
}

// decideEach decides each descriptor by itself, once all of them can be decided: a
// request that is refused charges nothing. c.verdict is then that of the strictest: the
// first that denies for longest, else the one with least left.
func (s *Service) decideEach(ctx context.Context, c *call, domain string, parts []part) error {
	for i := range c.sets {
		if err := s.config.Limiter.Valid(c.check(domain, c.sets[i:i+1])); err != nil {
			return ofDescriptor(err, i)
		}
	}
	c.verdict = tallygate.Verdict{Allow: true, Entries: c.verdict.Entries[:0], Tightest: -1}
	var away error
	for i := range c.sets {
		err := s.config.Limiter.Decide(ctx, c.check(domain, c.sets[i:i+1]), &c.own)
		switch {
		case err == nil:
		case noStore(err) && !s.config.ErrorOnFailure:
			// The others are decided all the same: they are charged by themselves.
			away = err
			failClosed(nil, parts[i:i+1])
			continue
		default:
			return ofDescriptor(err, i)
		}
		tell(parts[i:i+1], c.limits[i:i+1], &c.own)
		if i == 0 || tighter(&c.own, &c.verdict) {
			c.verdict, c.own = c.own, c.verdict
		}
	}
	if away != nil {
		s.closed.Add(1)
	}
	return nil
}

// tighter reports whether headers should speak of a rather than b.
func tighter(a, b *tallygate.Verdict) bool {
	switch {
	case a.Allow != b.Allow:
		return !a.Allow
	case !a.Allow:
		return a.RetryMS > b.RetryMS
	case a.Tightest < 0 || b.Tightest < 0:
		return a.Tightest > b.Tightest
	default:
		return a.Entries[a.Tightest].Remaining < b.Entries[b.Tightest].Remaining
	}
}

// failClosed makes statuses denials for want of the store: try again in a second,
// about as long as a breaker stays open.
func failClosed(response *rlsv3.RateLimitResponse, parts []part) {
	for i := range parts {
		parts[i].status.Code = codeOver
		parts[i].resets(1000)
	}
	if response != nil {
		response.OverallCode = codeOver
	}
}

// panicked counts and logs a panic.
func (s *Service) panicked(p any) error {
	s.panics.Add(1)
	s.config.Log.Error("a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return refuse(codes.Internal, codeInternal, "internal error; the log of this pod says more")
}

// free gives a call back, unless it has rare large maps.
func (s *Service) free(c *call) {
	if cap(c.verdict.Entries) > maxEntries || len(c.attributes) > maxEntries/4 {
		return
	}
	c.forget()
	s.calls.Put(c)
}

// token is the bearer token of a call, "" for none.
func token(ctx context.Context) string {
	token, _ := identity.Bearer(metadata.ValueFromIncomingContext(ctx, "authorization"))
	return token
}

func unauthorized() error {
	return refuse(codes.Unauthenticated, "unauthorized", "send a token of this server: authorization: Bearer tg_…")
}
