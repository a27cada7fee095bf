package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/rls"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/metrics"
)

// doors are the two ports that answer checks: HTTP, and gRPC for Envoy.
type doors struct {
	http *server.Server
	rls  *rls.Server

	httpListener net.Listener
	rlsListener  net.Listener // nil for none
}

// openDoors makes both servers and listens, so that a wrong setting or a port in use
// is told before anything answers.
func (m *Main) openDoors(ctx context.Context, v *values, g *gate) (*doors, error) {
	style, err := styleOf(v)
	if err != nil {
		return nil, err
	}
	who, err := newAsker(v, g.log)
	if err != nil {
		return nil, err
	}
	authorize := authorizer(v, g.tokens)
	d := &doors{}
	if d.rls, err = newRLS(v, g, authorize, style); err != nil {
		return nil, err
	}
	g.onClose(d.rls.Close) // also where it never serves, and has goroutines all the same
	secure, err := listenerTLS(v, "http", g.log)
	if err != nil {
		return nil, err
	}
	d.http, err = server.New(server.Config{
		Limiter: g.limiter,
		// The watcher has started, so rules were loaded before anything listens.
		Ready:       nil,
		Authorize:   authorize,
		JSON:        d.rls.Handler(),
		Forward:     &server.Forward{Identity: who.who, Route: who.route, Domain: newDomain(v, g).name},
		TLS:         secure,
		Style:       style,
		MaxInflight: v.Int("max-inflight"),
		Drain:       v.Duration("drain"),
		Version:     version(),
		Log:         g.log,
	})
	if err != nil {
		return nil, err
	}
	if d.httpListener, err = new(net.ListenConfig).Listen(ctx, "tcp", v.String("http")); err != nil {
		return nil, fmt.Errorf("%w; --http (TALLYGATE_HTTP) sets another address", err)
	}
	if d.rlsListener, err = listenRLS(ctx, v, g.log); err != nil {
		return nil, errors.Join(err, d.httpListener.Close())
	}
	return d, nil
}

// styleOf is how client headers are written.
func styleOf(v *values) (headers.Style, error) {
	reset, err := headers.ParseReset(v.String("reset-style"))
	if err != nil {
		return headers.Style{}, err
	}
	ietf, err := headers.ParseIETF(v.String("ietf-headers"))
	return headers.Style{Reset: reset, IETF: ietf, Jitter: v.Float64("retry-jitter"), Rand: rand.Float64}, err
}

// authorizer says whose tokens may ask for checks; nil where anybody may. Checks are of
// all domains, so that a token of one domain is none of these.
func authorizer(v *values, tokens *token.File) func(shown string) bool {
	if !v.Bool("http-token-required") {
		return nil
	}
	return func(shown string) bool {
		t, ok := tokens.Find(shown)
		return ok && t.Domain == "" && (t.Role == token.Check || t.Role == token.Admin)
	}
}

// serve answers on both until ctx ends and both have drained, or one has failed.
func (d *doors) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- d.http.Serve(ctx, d.httpListener) }()
	if d.rlsListener == nil {
		return <-ended
	}
	go func() { ended <- d.rls.Serve(ctx, d.rlsListener) }()
	first := <-ended
	if first != nil {
		stop() // one door that fails closes the other
	}
	return errors.Join(first, <-ended)
}

// close cuts off what is under way on both.
func (d *doors) close() error { return errors.Join(d.http.Close(), d.rls.Close()) }

// closeListeners is for doors that never served.
func (d *doors) closeListeners() error {
	err := d.httpListener.Close()
	if d.rlsListener != nil {
		err = errors.Join(err, d.rlsListener.Close())
	}
	return err
}

// collectors are the figures of both ports.
func (d *doors) collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.NewShedCollector(d.shed), metrics.NewUntrustedCollector(d.http.Untrusted), metrics.NewRLSCollector(rlsCounts(d.rls))}
}

// tell tells a test where it answers.
func (d *doors) tell(m *Main) {
	if m.GRPCListening != nil && d.rlsListener != nil {
		m.GRPCListening(d.rlsListener.Addr().String())
	}
	if m.Listening != nil {
		m.Listening(d.httpListener.Addr().String())
	}
}

// shed is how many requests were refused since too many were under way.
func (d *doors) shed() int64 { return d.http.Shed() + d.rls.Stats().Shed }
