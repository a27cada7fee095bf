package rls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/headers"
)

// Decider decides checks; a *tallygate.Limiter.
type Decider interface {
	Decide(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) error
	// Valid says with which error Decide would refuse a check for what it asks.
	Valid(check tallygate.Check) error
}

// Config says what is served and how.
type Config struct {
	// Limiter decides. Required.
	Limiter Decider
	// Authorize says whether a bearer token may ask for checks, "" for a request
	// without one. Nil means that anybody may.
	Authorize func(token string) bool
	// TLS has the gRPC server speak TLS; nil means plain HTTP/2.
	TLS *tls.Config

	// Imported says whether the rules of a domain were made of envoyproxy/ratelimit's
	// configuration: then its descriptors have the attribute that says which keys they
	// have (see package envoyconfig), and an empty value is one of its own. Nil means
	// that none were. It is asked for each request.
	Imported func(domain string) bool
	// PerDescriptor decides each descriptor by itself, as envoyproxy/ratelimit charges
	// them: one that passes is spent although another denies. The default is all or
	// nothing over the request. It costs one call of the store a descriptor.
	PerDescriptor bool
	// CountDenied counts every hit, also of what is denied and of what is beside it, as
	// envoyproxy/ratelimit does: see tallygate.Check. It costs a second call of the
	// store where a fixed window denies, and no pod answers by itself.
	CountDenied bool
	// ErrorOnFailure answers UNAVAILABLE where a rule that fails closed had no answer
	// of the store, for Envoy's failure_mode_deny to decide. The default is OVER_LIMIT.
	ErrorOnFailure bool
	// Headers are the response headers to add; nil means none: Envoy builds
	// X-RateLimit-* from the statuses by itself, if it is told to.
	Headers *headers.Style
	// Body adds a problem of RFC 9457 as raw_body to each denial.
	Body bool
	// Metadata adds dynamic_metadata that says which rule denied.
	Metadata bool
	// Reflection has the gRPC server describe its services to whoever asks.
	Reflection bool

	// MaxInflight bounds the requests under way; more get RESOURCE_EXHAUSTED at once.
	// 0 means 4096.
	MaxInflight int
	// MaxStreams bounds the requests under way on one connection; a client waits with
	// more. 0 means 1024.
	MaxStreams int
	// MaxAge is after how long a connection is asked to reconnect, so that new pods get
	// their share. 0 means 30 minutes, below 0 never.
	MaxAge time.Duration
	// Drain is how long the server goes on taking requests after it has said by its
	// health that it is not serving. 0 means not at all.
	Drain time.Duration
	// Finish is how long requests under way may take after that. 0 means 10 s.
	Finish time.Duration
	// Log gets panics, at most once a second why a request could not be answered, and at
	// most once a minute that requests pass since their domain has no rule.
	// Nil means none.
	Log *slog.Logger
}

// The bounds of one request.
const (
	maxRequestBytes = 4 << 20
	maxDescriptors  = tallygate.MaxSets
	// maxEntries is what one descriptor may have: a rule matches 16 attributes and
	// counts by 4, and more than this no rule can ask for.
	maxEntries = 64
	// maxNameBytes bounds a domain.
	maxNameBytes = 128
)

// validate checks c and fills in the defaults.
func (c *Config) validate() error {
	switch {
	case c.Limiter == nil:
		return errors.New("rls: Config.Limiter is required")
	case c.MaxInflight < 0:
		return fmt.Errorf("rls: MaxInflight %d is below 0", c.MaxInflight)
	case c.MaxStreams < 0:
		return fmt.Errorf("rls: MaxStreams %d is below 0", c.MaxStreams)
	case c.Drain < 0 || c.Finish < 0:
		return fmt.Errorf("rls: Drain %v and Finish %v are 0 or more", c.Drain, c.Finish)
	case c.Headers != nil && (c.Headers.Jitter < 0 || c.Headers.Jitter > headers.MaxJitter):
		return fmt.Errorf("rls: jitter %v is not within 0 and %v", c.Headers.Jitter, headers.MaxJitter)
	}
	if c.MaxInflight == 0 {
		c.MaxInflight = 4096
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = 1024
	}
	if c.MaxAge == 0 {
		c.MaxAge = 30 * time.Minute
	}
	if c.Finish == 0 {
		c.Finish = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
