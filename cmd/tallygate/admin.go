package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/metrics"
)

// Bounds of scrapes: more at a time, or slower ones, are refused.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// startAdmin starts the listener for operators and returns how to stop it. Its
// goroutine ends with stop.
func (m *Main) startAdmin(ctx context.Context, v *values, limiter *tallygate.Limiter, srv *server.Server, log *slog.Logger, stdout io.Writer) (stop func(), err error) {
	address := v.String("admin")
	if address == "" {
		return func() {}, nil
	}
	listener, err := listenLoopback(ctx, address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && v.origin["admin"] == "default":
		// The second pod on a machine is most often one of a first try.
		log.Warn("no metrics: the admin port is in use; set --admin", "address", address)
		return func() {}, nil
	case err != nil:
		return nil, fmt.Errorf("admin: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		metrics.NewCollector(limiter),
		metrics.NewShedCollector(srv.Shed),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	admin, err := server.NewAdmin(server.AdminConfig{
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelError),
			MaxRequestsInFlight: maxScrapes,
			Timeout:             scrapeTimeout,
		}),
		Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := admin.Serve(serving, listener); err != nil {
			log.Error("the admin port is closed", "error", err)
		}
	}()
	_, _ = fmt.Fprintf(stdout, "metrics on http://%s/metrics\n", listener.Addr())
	if m.AdminListening != nil {
		m.AdminListening(listener.Addr().String())
	}
	return func() { cancel(); <-done }, nil
}

// listenLoopback listens on an address of this machine alone, also where it is
// given by name.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() {
		return nil, errors.Join(notLoopback(address), listener.Close())
	}
	return listener, nil
}

func notLoopback(address string) error {
	return fmt.Errorf("%q is not this machine alone: until there are tokens the admin port listens on 127.0.0.1, ::1 or localhost only", address)
}
