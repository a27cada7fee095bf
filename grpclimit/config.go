package grpclimit

import (
	"context"
	"log/slog"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
)

// Limiter decides checks: a *tallygate.Limiter.
type Limiter interface {
	Decide(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) error
}

// Resolver tells who asks: an *identity.Resolver. It replaces what attrs holds.
type Resolver interface {
	Resolve(f *identity.Facts, attrs map[string]string) error
}

// Call is what hooks are told of a call.
type Call struct {
	// Method is the full method, "/package.Service/Method": the route.
	Method string
	// Request is the message of a unary call; nil for a stream, of which none has
	// arrived yet.
	Request any
}

// Config says how calls are limited. Only Limiter is required. All hooks may be
// called from any number of goroutines at once, and none may keep what it is given.
type Config struct {
	// Limiter decides. Required.
	Limiter Limiter
	// Domain is the set of rules; "" means "default". While it has no rule at all,
	// calls pass, Observe sees the error unknown_domain, and Log a warning.
	Domain string
	// Identity tells who asks, of metadata instead of headers. Nil believes the
	// socket: the client is its peer.
	Identity Resolver
	// Attributes adds facts, or changes them. Nil adds none.
	Attributes func(ctx context.Context, call Call, attrs map[string]string)
	// Cost is what a call spends, 0 to 10^9; 0 means 1, as does a nil Cost.
	Cost func(ctx context.Context, call Call) int64
	// Skip says which calls are not limited, such as health checks. Nil skips none.
	Skip func(ctx context.Context, call Call) bool
	// OnDeny returns the error of a denied call in place of RESOURCE_EXHAUSTED. The
	// metadata is set already. v is valid until it returns. Nil from it admits.
	OnDeny func(ctx context.Context, call Call, v *tallygate.Verdict) error
	// OnError returns the error of a call without a verdict. err is a
	// *tallygate.Error or an *identity.SourceError. Nil from it admits the call
	// uncounted.
	OnError func(ctx context.Context, call Call, err error) error
	// Observe sees each decision before it is carried out; v is nil where err is
	// not. Nil observes none.
	Observe func(ctx context.Context, call Call, v *tallygate.Verdict, err error)
	// ReportOnly counts and observes, and lets every call pass without metadata.
	ReportOnly bool
	// ResetSeconds makes x-ratelimit-reset the seconds left, not the epoch second.
	ResetSeconds bool
	// NoIETF leaves out ratelimit and ratelimit-policy.
	NoIETF bool
	// RetryJitter spreads the told wait by up to this part of it, 0 to 0.1, later
	// only. It needs Rand.
	RetryJitter float64
	// Rand returns numbers in [0, 1), safe for concurrent use, such as rand.Float64 of
	// math/rand/v2.
	Rand func() float64
	// Log is warned, at most once a minute, while calls pass since Domain has no rule.
	// Nil means slog.Default.
	Log *slog.Logger
}
