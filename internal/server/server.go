// Package server is the HTTP service: the check API and what a platform needs to
// run it.
//
//	POST /v1/ratelimit:check   a check or a batch of them; a denial is 200 too
//	GET  /v1/ratelimit:forward whether a gateway may let its request through
//	POST /v1/ratelimit:reserve a check whose cost is an estimate, set aside
//	POST /v1/ratelimit:commit  what it really cost
//	POST /v1/ratelimit:cancel  nothing of it was used
//	GET  /healthz              the process lives
//	GET  /readyz               rules are loaded and it is not stopping
//	GET  /version              what runs
//
// Handlers are plain net/http. A request is read (check.go), decoded strictly
// (scan.go, decode.go), decided by the limiter and encoded (encode.go); what a gateway
// asks by headers alone is forward.go; every error becomes a problem of RFC 9457 in one
// place (problem.go). A [Server] has no goroutine but those of [Server.Serve], which end
// with it.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/sampled"
	"github.com/tallygate/tallygate/internal/unlimited"
)

// Decider decides checks; a *tallygate.Limiter.
type Decider interface {
	Decide(ctx context.Context, check tallygate.Check, v *tallygate.Verdict) error
}

// Config says what a [Server] serves and how.
type Config struct {
	// Limiter decides. Required. One that is a Reserver and a Committer as well, as the
	// library's is, also serves reservations.
	Limiter Decider
	// Ready says whether rules were loaded once. Nil means always.
	Ready func() bool
	// Authorize says whether a bearer token may ask for checks; it is called for each
	// request, "" for one without. Nil means that anybody may.
	Authorize func(token string) bool
	// JSON answers POST /json, the twin of Envoy's rate limit service; nil means that
	// there is none.
	JSON http.Handler
	// TLS has the server speak TLS; nil means plain HTTP.
	TLS *tls.Config
	// Forward has gateways ask by GET /v1/ratelimit:forward. Nil means that there is no
	// such endpoint.
	Forward *Forward
	// Style is how client headers are written.
	Style headers.Style
	// MaxInflight bounds the check requests under way; more get 503 at once. 0
	// means 4096: at 5 ms a check that is 800,000 a second.
	MaxInflight int
	// Drain is how long the server goes on taking requests after it has said that
	// it is not ready, so that balancers notice. 0 means not at all.
	Drain time.Duration
	// Finish is how long requests under way may take after that. 0 means 10 s.
	Finish time.Duration
	// Version is what GET /version answers.
	Version Version
	// Log gets the HTTP server's own errors, and is warned while gateways ask for a
	// domain without rules, or are not trusted. Nil means none.
	Log *slog.Logger
}

// The limits of the HTTP server, against clients that are slow on purpose.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = time.Minute
	maxHeaderBytes    = 16 << 10
)

// Server answers HTTP. Create it with [New]; safe for concurrent use.
type Server struct {
	limiter Decider
	// reservations is nil where the limiter has none.
	reservations reservations
	ready        func() bool
	authorize    func(token string) bool
	json         http.Handler
	tls          *tls.Config
	style        headers.Style
	gateways     *Forward
	// silent tells that there is nothing to limit by what gateways ask for.
	silent *unlimited.Notice
	// strangers tells of gateways that are not trusted.
	strangers   *sampled.Log
	maxInflight int64
	drain       time.Duration
	finish      time.Duration
	version     Version
	http        *http.Server

	inflight  atomic.Int64
	shed      atomic.Int64
	untrusted atomic.Int64
	draining  atomic.Bool
	exchanges sync.Pool
	forwards  sync.Pool
	// contentJSON is one header value for all answers, so that none allocates it.
	contentJSON []string
}

// New returns a server that is not listening yet.
func New(config Config) (*Server, error) {
	switch {
	case config.Limiter == nil:
		return nil, errors.New("server: Config.Limiter is required")
	case config.Forward != nil && config.Forward.Identity == nil:
		return nil, errors.New("server: Forward.Identity is required: without it no gateway is trusted")
	case config.MaxInflight < 0:
		return nil, fmt.Errorf("server: MaxInflight %d is below 0", config.MaxInflight)
	case config.Style.Jitter < 0 || config.Style.Jitter > headers.MaxJitter:
		return nil, fmt.Errorf("server: jitter %v is not within 0 and %v", config.Style.Jitter, headers.MaxJitter)
	}
	s := &Server{
		limiter:     config.Limiter,
		ready:       config.Ready,
		authorize:   config.Authorize,
		json:        config.JSON,
		tls:         config.TLS,
		style:       config.Style,
		gateways:    config.Forward,
		maxInflight: int64(config.MaxInflight),
		drain:       config.Drain,
		finish:      config.Finish,
		version:     config.Version,
		contentJSON: []string{"application/json"},
	}
	s.reservations, _ = config.Limiter.(reservations)
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s.silent, s.strangers = unlimited.To(log), sampled.New(log)
	if s.ready == nil {
		s.ready = func() bool { return true }
	}
	if s.maxInflight == 0 {
		s.maxInflight = 4096
	}
	if s.finish == 0 {
		s.finish = 10 * time.Second
	}
	s.exchanges.New = func() any { return &exchange{body: make([]byte, 0, firstBody)} }
	s.forwards.New = func() any { return &forwarded{attrs: make(map[string]string, firstAttrs)} }
	s.http = newHTTP(s.Handler(), log)
	if s.gateways != nil {
		s.http.MaxHeaderBytes = maxForwardHeaders
	}
	return s, nil
}

// newHTTP is net/http's server with the bounds that hold on every port. What it has
// to say goes to log.
func newHTTP(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// Shed returns how many requests were refused since too many were under way.
func (s *Server) Shed() int64 { return s.shed.Load() }

// Untrusted returns how many questions of gateways were refused since they came from
// none of the trusted proxies.
func (s *Server) Untrusted() int64 { return s.untrusted.Load() }

// Handler returns all endpoints, without a listener.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/ratelimit:check", s.check)
	if s.gateways != nil {
		mux.HandleFunc("/v1/ratelimit:forward", s.forward)
	}
	if s.reservations != nil {
		mux.HandleFunc("/v1/ratelimit:reserve", s.reserve)
		mux.HandleFunc("/v1/ratelimit:commit", s.commit)
		mux.HandleFunc("/v1/ratelimit:cancel", s.cancel)
	}
	mux.HandleFunc("/healthz", s.healthz)
	mux.HandleFunc("/readyz", s.readyz)
	mux.HandleFunc("/version", s.versionz)
	if s.json != nil {
		mux.Handle("/json", s.json)
	}
	mux.HandleFunc("/", s.notFound)
	return mux
}

// Serve answers on l until ctx ends or Close is called. When ctx ends it is not
// ready at once, goes on for Config.Drain, then takes no more connections and
// returns when all requests under way are answered. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(l) }()
	select {
	case err := <-served:
		return stopped(err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	wait := time.NewTimer(s.drain)
	defer wait.Stop()
	select {
	case err := <-served:
		return stopped(err)
	case <-wait.C:
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.finish)
	defer cancel()
	if err := s.http.Shutdown(finish); err != nil {
		err = fmt.Errorf("requests were still under way after %s: %w", s.finish, err)
		return errors.Join(err, s.http.Close())
	}
	return stopped(<-served)
}

// Close ends Serve at once: requests under way are cut off. It may be called at
// any time, more than once.
func (s *Server) Close() error {
	s.draining.Store(true)
	return s.http.Close()
}

// stopped is nil for the error of a server that was told to stop.
func stopped(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
