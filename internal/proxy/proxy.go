package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/httplimit"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/pressure"
	"github.com/tallygate/tallygate/internal/sampled"
)

// Proxy is a reverse proxy with a limiter. Create it with [New].
type Proxy struct {
	config  Config
	guard   *guard // nil where back-pressure is off
	limited http.Handler
	reverse *httputil.ReverseProxy
	idle    interface{ CloseIdleConnections() }
	http    *http.Server
	// ours are the headers that only the proxy writes, in net/http's spelling.
	ours []string
	// began is when the clock of the guard was 0.
	began time.Time

	// framed says that the upstream speaks HTTP/2 only.
	framed bool

	inflight atomic.Int64
	underWay *crowd
	counts   counts
	// untold is the good answers in a row that told no cost.
	untold atomic.Int64
	// The lines of log that a request may cause.
	failing, unfit, badCost, noHeader sampled.Gate
}

// counts are the figures of [Stats].
type counts struct {
	overloaded, unreachable, timeouts, broken, canceled, badCosts, missingCosts, lostCosts atomic.Int64
}

// Stats are figures since the start.
type Stats struct {
	// Inflight is the requests under way.
	Inflight int64
	// Overloaded is the requests refused since too many were under way, Shed those that
	// back-pressure did not admit.
	Overloaded, Shed int64
	// Unreachable and Timeouts are the requests that the upstream did not answer, Broken
	// those whose answer it broke off.
	Unreachable, Timeouts, Broken int64
	// Canceled is the requests whose client went before there was an answer.
	Canceled int64
	// BadCosts is the answers whose cost header was no cost, MissingCosts those without
	// one, so that the estimate stood; LostCosts those whose cost the store did not take.
	BadCosts, MissingCosts, LostCosts int64
}

// Pressure is what back-pressure does now.
type Pressure struct {
	// Overloaded says that the upstream is, by its last answers.
	Overloaded bool
	// Factors is what each priority admits of what passed before, in thousandths, the
	// lowest priority first. Priorities of rules without a shed_floor are not there.
	Factors []pressure.Factor
	// Shed is the requests that were not admitted since the start.
	Shed int64
}

// New returns a proxy that is not listening yet.
func New(c Config) (*Proxy, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &Proxy{config: c, underWay: newCrowd(), ours: append(headers.CanonicalNames(), headerRequestID), began: c.Now(), framed: c.Upstream.Scheme == "h2c"}
	if c.Rules != nil && !c.Limit.ReportOnly {
		p.guard = newGuard(c.Rules, c.LatencyTarget)
	}
	limit := c.Limit
	limit.Limiter = &decider{proxy: p, limiter: c.Limit.Limiter}
	p.limited = httplimit.Handler(limit)(http.HandlerFunc(p.forward))
	transport := c.transport()
	p.idle = transport
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		ModifyResponse: p.answered,
		ErrorHandler:   p.unanswered,
		Transport:      transport,
		BufferPool:     new(buffers),
		ErrorLog:       slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn), // [tail.Read] and unanswered say it better
	}
	p.http = p.server()
	return p, nil
}

// server has bounds on what a client may withhold, and none on how long an answer
// takes: that may be a stream. See [stalling] for clients that do not read.
func (p *Proxy) server() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           p,
		Protocols:         &protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         p.config.TLS,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			SendPingTimeout:      idleTimeout,
			WriteByteTimeout:     p.config.StallTimeout,
		},
		ErrorLog: slog.NewLogLogger(p.config.Log.Handler(), slog.LevelWarn),
	}
}

// Stats returns the figures of now.
func (p *Proxy) Stats() Stats {
	return Stats{
		Inflight: p.inflight.Load(), Overloaded: p.counts.overloaded.Load(), Shed: p.Pressure().Shed,
		Unreachable: p.counts.unreachable.Load(), Timeouts: p.counts.timeouts.Load(),
		Broken: p.counts.broken.Load(), Canceled: p.counts.canceled.Load(),
		BadCosts: p.counts.badCosts.Load(), MissingCosts: p.counts.missingCosts.Load(), LostCosts: p.counts.lostCosts.Load(),
	}
}

// Pressure returns what back-pressure does now; nothing where it is off.
func (p *Proxy) Pressure() Pressure {
	if p.guard == nil {
		return Pressure{}
	}
	return p.guard.look(p.elapsed())
}

// elapsed is the time on the guard's clock.
func (p *Proxy) elapsed() time.Duration { return max(0, p.config.Now().Sub(p.began)) }

// Serve answers on l until ctx ends or Close is called. When ctx ends it goes on for
// Config.Drain, then takes no more connections, gives requests under way Config.Finish
// and cuts off what is left: streams among them, which would never end. It closes l, and
// is called once.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	if p.config.TLS != nil {
		own := p.config.TLS.Clone()
		own.NextProtos = []string{"h2", "http/1.1"}
		l = tls.NewListener(l, own)
	}
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer p.idle.CloseIdleConnections()
	defer p.underWay.end() // hijacked ones, of which net/http knows nothing
	defer cut()
	p.http.BaseContext = func(net.Listener) context.Context { return requests }
	served := make(chan error, 1)
	go func() { served <- p.http.Serve(l) }()
	select {
	case err := <-served:
		return stopped(err)
	case <-ctx.Done():
	}
	wait := time.NewTimer(p.config.Drain)
	defer wait.Stop()
	select {
	case err := <-served:
		return stopped(err)
	case <-wait.C:
	}
	finish, cancel := context.WithTimeout(requests, p.config.Finish)
	defer cancel()
	if err := p.http.Shutdown(finish); err != nil {
		err = fmt.Errorf("requests were still under way after %s: %w", p.config.Finish, err)
		return errors.Join(err, p.http.Close())
	}
	return stopped(<-served)
}

// Close ends Serve at once: requests under way are cut off. It may be called at any
// time, more than once.
func (p *Proxy) Close() error { return p.http.Close() }

// stopped is nil for the error of a server that was told to stop.
func stopped(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
