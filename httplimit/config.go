package httplimit

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/identity/request"
	"github.com/tallygate/tallygate/internal/headers"
)

// Limiter decides checks: a *tallygate.Limiter.
type Limiter interface {
	Decide(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) error
}

// Resolver tells who asks: an *identity.Resolver. It replaces what attrs holds.
type Resolver interface {
	Resolve(f *identity.Facts, attrs map[string]string) error
}

// Config says how requests are limited. Only Limiter is required. All hooks may be
// called from any number of goroutines at once, and none may keep what it is given.
type Config struct {
	// Limiter decides. Required.
	Limiter Limiter
	// Domain is the set of rules; "" means "default". While it has no rule at all,
	// requests pass, Observe sees the error unknown_domain, and Log a warning.
	Domain string
	// Identity tells who asks. Nil believes the socket: the client is its peer.
	Identity Resolver
	// Route returns the route's template. Nil means what the router says: Pattern
	// of the request, or what next knows where that is an *http.ServeMux; without
	// either it is "other". A request.Templates has a Route for a list of your own.
	Route func(r *http.Request) string
	// Attributes adds facts, such as the plan of the caller's account, or changes
	// them. Nil adds none.
	Attributes func(r *http.Request, attrs map[string]string)
	// Cost is what a request spends, 0 to 10^9; 0 means 1, as does a nil Cost.
	Cost func(r *http.Request) int64
	// Skip says which requests are not limited, such as health checks. Nil skips none.
	Skip func(r *http.Request) bool
	// OnDeny writes the answer to a denied request in place of the 429. The limit
	// headers and Retry-After are set already. v is valid until it returns.
	OnDeny func(w http.ResponseWriter, r *http.Request, v *tallygate.Verdict)
	// OnError writes the answer where there is no verdict, in place of the problem.
	// err is a *tallygate.Error or an *identity.SourceError. It may call the next
	// handler, which admits the request uncounted.
	OnError func(w http.ResponseWriter, r *http.Request, next http.Handler, err error)
	// Observe sees each decision before it is carried out; v is nil where err is
	// not. Nil observes none.
	Observe func(r *http.Request, v *tallygate.Verdict, err error)
	// ReportOnly counts and observes, and lets every request pass without a header:
	// for a first look at what the rules would do.
	ReportOnly bool
	// ResetSeconds makes X-RateLimit-Reset the seconds left, not the epoch second.
	ResetSeconds bool
	// NoIETF leaves out RateLimit and RateLimit-Policy.
	NoIETF bool
	// RetryJitter spreads Retry-After by up to this part of the wait, 0 to 0.1, later
	// only: so that not all come back in one second. It needs Rand.
	RetryJitter float64
	// Rand returns numbers in [0, 1), safe for concurrent use, such as rand.Float64 of
	// math/rand/v2.
	Rand func() float64
	// Log is warned, at most once a minute, while requests pass since Domain has no
	// rule. Nil means slog.Default.
	Log *slog.Logger
}

// style is how the headers are written.
func (c *Config) style() headers.Style {
	s := headers.Style{Jitter: c.RetryJitter, Rand: c.Rand}
	if c.ResetSeconds {
		s.Reset = headers.ResetSeconds
	}
	if c.NoIETF {
		s.IETF = headers.IETFOff
	}
	return s
}

// router finds the template that next would choose: an *http.ServeMux.
type router interface {
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// routeOf returns how routes are found in front of next.
func (c *Config) routeOf(next http.Handler) func(*http.Request) string {
	if c.Route != nil {
		return c.Route
	}
	mux, ok := next.(router)
	if !ok {
		return request.Route
	}
	return func(r *http.Request) string {
		if r.Pattern != "" {
			return request.Route(r)
		}
		_, pattern := mux.Handler(r)
		return request.Name(r.Method, pattern)
	}
}
