package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// AdminConfig says what an [Admin] serves.
type AdminConfig struct {
	// Metrics answers GET /metrics. Required.
	Metrics http.Handler
	// Log gets the HTTP server's own errors. Nil means none.
	Log *slog.Logger
}

// Admin is the listener for operators, apart from that for checks:
//
//	GET  /metrics   figures for Prometheus
//	GET  /healthz   the process lives
//
// It asks for no token yet: let it listen on loopback only. Create it with
// [NewAdmin]; safe for concurrent use.
type Admin struct {
	http *http.Server
}

// NewAdmin returns a server that is not listening yet.
func NewAdmin(config AdminConfig) (*Admin, error) {
	if config.Metrics == nil {
		return nil, errors.New("server: AdminConfig.Metrics is required")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", config.Metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"ok"}` + "\n")) // the client is gone if this fails
	})
	return &Admin{http: newHTTP(mux, config.Log)}, nil
}

// adminFinish is how long requests under way may take when the server stops: less
// than a scrape may, which nobody misses.
const adminFinish = time.Second

// Serve answers on l until ctx ends, then takes no more connections and returns
// when all requests under way are answered, or cut off after a second. It closes l.
func (a *Admin) Serve(ctx context.Context, l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- a.http.Serve(l) }()
	select {
	case err := <-served:
		return stopped(err)
	case <-ctx.Done():
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminFinish)
	defer cancel()
	if err := a.http.Shutdown(finish); err != nil {
		_ = a.http.Close() // cut off: a scrape is no reason to fail
	}
	return stopped(<-served)
}
