package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
	"github.com/tallygate/tallygate/internal/tlsfiles"
	"github.com/tallygate/tallygate/metrics"
)

// Bounds of scrapes: more at a time, or slower ones, are refused.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// startGoverning starts what is beside the checks of a server: its control plane, if
// the rules are here, its reports, and the admin port. stop ends all of it.
func (m *Main) startGoverning(ctx context.Context, v *values, g *gate, stdout io.Writer, figures ...prometheus.Collector) (stop func(), err error) {
	var closers []func() error
	stop = func() { _ = closeAll(closers) } // none of them has an error
	cfg := m.adminConfig(g.tokens, g.log)
	cfg.Looker, cfg.Resetter, cfg.Alone = g.limiter, g.limiter, v.String("store") == "memory"
	cfg.Metrics = scrapes(g.log, append(figures, metrics.NewCollector(g.limiter))...)
	sink := g.rules.reports
	if g.rules.store == nil {
		elsewhere(&cfg, v.String("rules"), g.rules)
	} else {
		p, err := m.startPlane(g.rules, g.log)
		if err != nil {
			return nil, err
		}
		closers = append(closers, p.Close)
		book(&cfg, g.rules.store)
		p.serve(&cfg, showKey(v))
		sink = p.registry
	}
	stopReports, err := m.startReports(g, sink)
	if err != nil {
		stop()
		return nil, err
	}
	closers = append(closers, stopReports)
	stopAdmin, err := m.startAdmin(ctx, v, cfg, g.log, stdout)
	if err != nil {
		stop()
		return nil, err
	}
	closers = append(closers, func() error { stopAdmin(); return nil })
	return stop, nil
}

// adminConfig is what all admin ports have in common.
func (m *Main) adminConfig(tokens *token.File, log *slog.Logger) admin.Config {
	cfg := admin.Config{Version: version().Version, Now: m.Now, Log: log}
	if tokens != nil {
		cfg.Tokens = tokens
	}
	return cfg
}

// book gives the API the rules of record.
func book(cfg *admin.Config, rules ruleBook) {
	cfg.Reader, cfg.Writer, cfg.Records, cfg.Historian, cfg.Auditor = rules, rules, rules, rules, rules
}

// elsewhere gives the API of a pod the rules it works from, to read.
func elsewhere(cfg *admin.Config, where string, f *followed) {
	cfg.ControlPlane = maskURL(where)
	book(cfg, rulestore.ReadOnly{Reader: &wire.Copy{Reader: f.reader}, Why: "the rules are at " + cfg.ControlPlane + ": change them there"})
}

// scrapes answers GET /metrics.
func scrapes(log *slog.Logger, list ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(list...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	})
}

// openTokens opens the file of tokens; nil where the settings name none.
func openTokens(v *values, log *slog.Logger) (*token.File, error) {
	path := v.String("tokens-file")
	if path == "" {
		return nil, nil //nolint:nilnil // no tokens is a good answer
	}
	f, err := token.Open(token.Config{Path: path, Log: log})
	if err != nil {
		return nil, fmt.Errorf("tokens-file: %w", err)
	}
	return f, nil
}

// listenerTLS makes the TLS of a listener, "http" or "admin". Nil means none.
func listenerTLS(v *values, of string, log *slog.Logger) (*tls.Config, error) {
	files := tlsfiles.Files{Cert: v.String(of + "-cert-file"), Key: v.String(of + "-key-file"), CA: v.String(of + "-client-ca-file")}
	if files.Cert == "" {
		return nil, nil //nolint:nilnil // no TLS settings is a good answer
	}
	conf, err := tlsfiles.Server(tlsfiles.Config{Files: files, Log: log})
	if err != nil {
		return nil, usagef("%s-cert-file, %s-key-file and %s-client-ca-file: %w", of, of, of, err)
	}
	return conf, nil
}

// startAdmin starts the listener for operators and returns how to stop it. Its
// goroutine ends with stop.
func (m *Main) startAdmin(ctx context.Context, v *values, cfg admin.Config, log *slog.Logger, stdout io.Writer) (stop func(), err error) {
	address := v.String("admin")
	if address == "" {
		return func() {}, nil
	}
	if cfg.TLS, err = listenerTLS(v, "admin", log); err != nil {
		return nil, err
	}
	api, err := admin.New(cfg)
	if err != nil {
		return nil, err
	}
	listener, err := listenAdmin(ctx, address, cfg.Tokens != nil)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && v.origin["admin"] == "default":
		// The second pod on a machine is most often one of a first try.
		log.Warn("no admin API and no metrics: the admin port is in use; set --admin", "address", address)
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("admin: %w", err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := api.Serve(serving, listener); err != nil {
			log.Error("the admin port is closed", "error", err)
		}
	}()
	scheme := "http"
	if cfg.TLS != nil {
		scheme = "https"
	}
	_, _ = fmt.Fprintf(stdout, "admin API and metrics on %s://%s (/v1/openapi.json, /metrics)\n", scheme, listener.Addr())
	if m.AdminListening != nil {
		m.AdminListening(listener.Addr().String())
	}
	return func() { cancel(); <-done }, nil
}

// listenAdmin listens on an address; without tokens on one of this machine alone,
// also where it is given by name.
func listenAdmin(ctx context.Context, address string, tokens bool) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w; --admin (TALLYGATE_ADMIN) sets another address", err)
	}
	if tokens {
		return listener, nil
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return nil, errors.Join(notLoopback(address), listener.Close())
	}
	return listener, nil
}

func notLoopback(address string) error {
	return fmt.Errorf("%q is not this machine alone, and there are no tokens: name a --tokens-file (tallygate token new), or listen on 127.0.0.1, ::1 or localhost", address)
}
