// Package admin is the API of the admin port: rules, candidates and overrides,
// who changed them, what is left for a key, and the pods.
//
//	request ─► bounds ─► who is it ─► may it ─► its pace ─► endpoint ─► store
//	           guard.go  auth.go      access.go pace.go     routes.go
//
// One table (routes.go) is the routes, what each asks of a token, and the OpenAPI
// document. Bodies and parameters are read strictly (read.go); every error becomes
// a problem of RFC 9457 in one place (problem.go). The API keeps nothing but a
// mirror of the rules for lists. It has no goroutine but those of [API.Serve],
// which end with it.
package admin

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/candidate"
	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
	"github.com/tallygate/tallygate/store"
)

// Looker looks at buckets and spends nothing; a *tallygate.Limiter.
type Looker interface {
	Usage(ctx context.Context, domain string, key []string) (tallygate.Usage, error)
	Explain(ctx context.Context, check tallygate.Check) (tallygate.Explanation, error)
}

// Resetter makes keys full again in the store; a *tallygate.Limiter.
type Resetter interface {
	Reset(ctx context.Context, domain, rule string, key []string) (int, error)
}

// Fleet knows the pods; a *fleet.Registry.
type Fleet interface {
	// Report takes what a pod tells. A *fleet.FaultError says what is wrong with it.
	Report(ctx context.Context, report fleet.Report) (fleet.Receipt, error)
	// Pods returns all of them, in a stable order.
	Pods() []fleet.Pod
}

// Prover judges candidates; a *fleet.Supervisor.
type Prover interface {
	// Proven reports whether the candidate of a rule may be promoted, and else why not.
	Proven(rule string) (ok bool, why string)
	// Trial returns how a rule's candidate does, and the keys that it hits hardest.
	Trial(rule string) (candidate.Verdict, []candidate.KeyCount, error)
}

// Tokens knows whose a token is; a *token.File.
type Tokens interface {
	Find(shown string) (token.Token, bool)
}

// Config says what an [API] serves. The parts of the store of rules are required;
// what else is nil is not there, and asking for it gets 404.
type Config struct {
	Reader    rulestore.Reader
	Writer    rulestore.Writer
	Records   rulestore.Records
	Historian rulestore.Historian
	Auditor   rulestore.Auditor

	Looker   Looker
	Resetter Resetter
	// Alone says that the counts are this process's alone: a key can be reset also
	// where the rules are changed elsewhere.
	Alone bool
	Fleet Fleet
	// ControlPlane is the URL of that which this process follows; "" where it follows
	// none. Answers name it, so that it has no secret.
	ControlPlane string
	// Prover judges before a promotion; nil means that nothing is ever proven.
	Prover Prover
	// Recent returns how fast a key spends on a rule, in tokens a second, and
	// whether that is known; nil means that it never is.
	Recent func(domain, rule string, key []string) (perSecond float64, known bool)
	// Changes answers GET /v1/changes: a long poll, which ends by itself.
	Changes http.Handler
	// Metrics answers GET /metrics.
	Metrics http.Handler

	// Tokens says who asks. Nil means that only this machine may, as admin.
	Tokens Tokens
	// Rate and Burst are the pace of one token, or of one address without: requests
	// a second, and at once. 0 means 50 and 200.
	Rate, Burst int64
	// MaxInflight bounds the requests under way, long polls aside; 0 means 256.
	MaxInflight int
	// MaxPolls bounds the long polls under way; 0 means 4096.
	MaxPolls int

	// TLS is that of the listener; nil means none. See package tlsfiles.
	TLS *tls.Config
	// Version is that of the program, for the OpenAPI document.
	Version string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log gets causes that answers do not show; nil means none. It never gets
	// tokens, keys or bodies.
	Log *slog.Logger
}

// The bounds of the HTTP server, as on the port for checks.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = time.Minute
	maxHeaderBytes    = 16 << 10
)

// finishWithin is how long requests under way may take when the server stops: less
// than a long poll may, which its caller repeats.
const finishWithin = time.Second

// API is the admin API. Create it with [New]; safe for concurrent use.
type API struct {
	cfg       Config
	log       *slog.Logger
	now       func() time.Time
	mirror    mirror
	pace      *pace
	requests  chan struct{}
	polls     chan struct{}
	origins   *http.CrossOriginProtection
	document  []byte
	endpoints []endpoint
	mux       *chi.Mux
	// read is how long a request may take to arrive.
	read time.Duration
}

var (
	_ Looker   = (*tallygate.Limiter)(nil)
	_ Resetter = (*tallygate.Limiter)(nil)
	_ Tokens   = (*token.File)(nil)
)

// New returns an API that is not listening yet.
func New(cfg Config) (*API, error) {
	if cfg.Reader == nil || cfg.Writer == nil || cfg.Records == nil || cfg.Historian == nil || cfg.Auditor == nil {
		return nil, errors.New("admin: Config.Reader, Writer, Records, Historian and Auditor are required")
	}
	if cfg.Rate < 0 || cfg.Burst < 0 || cfg.MaxInflight < 0 || cfg.MaxPolls < 0 {
		return nil, errors.New("admin: Config.Rate, Burst, MaxInflight and MaxPolls are not below 0")
	}
	a := &API{cfg: cfg, log: cfg.Log, now: cfg.Now, origins: http.NewCrossOriginProtection(), read: readTimeout}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.now == nil {
		a.now = time.Now
	}
	a.mirror.all = wire.Copy{Reader: cfg.Reader, Now: a.now}
	a.pace = newPace(or(cfg.Rate, 50), or(cfg.Burst, 200), store.MemoryConfig{MaxBuckets: maxPaced, Now: a.now})
	a.requests = make(chan struct{}, or(cfg.MaxInflight, 256))
	a.polls = make(chan struct{}, or(cfg.MaxPolls, 4096))
	a.endpoints = a.table()
	var err error
	if a.document, err = a.describe(); err != nil {
		return nil, err
	}
	a.mux = a.route()
	return a, nil
}

func or[T int | int64](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

// Handler returns all endpoints, without a listener.
func (a *API) Handler() http.Handler { return a.mux }

// Serve answers on l until ctx ends, then takes no more connections and returns
// when all requests under way are answered, or cut off after a second. It closes l.
func (a *API) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           a.mux,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       a.read,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         a.cfg.TLS,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() {
		if a.cfg.TLS != nil {
			served <- server.ServeTLS(l, "", "")
			return
		}
		served <- server.Serve(l)
	}()
	select {
	case err := <-served:
		return stopped(err)
	case <-ctx.Done():
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	if err := server.Shutdown(finish); err != nil {
		_ = server.Close() // cut off: a long poll is no reason to fail
	}
	return stopped(<-served)
}

// stopped is nil for the error of a server that was told to stop.
func stopped(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
