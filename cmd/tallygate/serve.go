package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/headers"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/rules"
)

func (m *Main) serveCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer checks over HTTP",
		Long: "Answer checks over HTTP. Without settings: counts in this process, rules in the database ./tallygate.db,\n" +
			"which is made if it is not there: with the rules of ./rules.yaml, or with examples.\n\n" +
			"Every flag is also an environment variable (--store-deadline: TALLYGATE_STORE_DEADLINE) and a line of\n" +
			"tallygate.yaml (store_deadline: 5ms). Flags win over the environment, that over the file.\n" +
			"Secrets are no flags: TALLYGATE_STORE_PASSWORD, TALLYGATE_KEY_HASH, or a file named by the same with _FILE.\n\n" +
			"SIGHUP reloads the rules. SIGTERM stops: not ready at once, then after --drain finish what is under way;\n" +
			"a second one stops at once.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := load(cmd, env)
			if err != nil {
				return err
			}
			return m.serve(cmd.Context(), v, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addFlags(cmd, serving)
	return cmd
}

// serve wires everything, serves, and takes it apart in the opposite order.
func (m *Main) serve(ctx context.Context, v *values, stdout, stderr io.Writer) (err error) {
	pod := podID(v)
	log := newLog(v, pod, stderr)
	tokens, err := openTokens(v, log)
	if err != nil {
		return err
	}
	watcher, err := m.watchRules(ctx, v, log)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()

	counts, closer, err := m.openStore(ctx, v, pod, log)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()

	limiter, err := tallygate.New(tallygate.Config{
		Rules: watcher.Watcher, Store: counts, Deadline: v.Duration("store-deadline"),
		Pod: pod, ShowKey: showKey(v), Now: watcher.now, Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()

	leave, err := countPods(ctx, v, pod, counts, limiter, log)
	if err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	defer leave()

	srv, err := newServer(v, limiter, tokens, log)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", v.String("http"))
	if err != nil {
		return fmt.Errorf("%w; --http (TALLYGATE_HTTP) sets another address", err)
	}
	stopAdmin, err := m.startGoverning(ctx, v, pod, watcher, limiter, srv, tokens, log, stdout)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer stopAdmin() // last of all listeners, so that a stop can be watched
	m.announce(v, listener.Addr(), watcher.Snapshot(), watcher.first, stdout)
	return m.run(ctx, srv, listener, watcher.Watcher, log)
}

// newServer makes the HTTP server of the settings.
func newServer(v *values, limiter *tallygate.Limiter, tokens *token.File, log *slog.Logger) (*server.Server, error) {
	secure, err := listenerTLS(v, "http", log)
	if err != nil {
		return nil, err
	}
	var authorize func(string) bool
	if v.Bool("http-token-required") {
		authorize = func(shown string) bool {
			t, ok := tokens.Find(shown)
			return ok && (t.Role == token.Check || t.Role == token.Admin)
		}
	}
	reset, err := headers.ParseReset(v.String("reset-style"))
	if err != nil {
		return nil, err
	}
	ietf, err := headers.ParseIETF(v.String("ietf-headers"))
	if err != nil {
		return nil, err
	}
	return server.New(server.Config{
		Limiter: limiter,
		// The watcher has started, so rules were loaded before anything listens.
		Ready:       nil,
		Authorize:   authorize,
		TLS:         secure,
		Style:       headers.Style{Reset: reset, IETF: ietf, Jitter: v.Float64("retry-jitter"), Rand: rand.Float64},
		MaxInflight: v.Int("max-inflight"),
		Drain:       v.Duration("drain"),
		Version:     version(),
		Log:         log,
	})
}

// run serves until ctx ends or a signal stops it.
func (m *Main) run(ctx context.Context, srv *server.Server, listener net.Listener, watcher *rules.Watcher, log *slog.Logger) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- srv.Serve(serving, listener) }()
	if m.Listening != nil {
		m.Listening(listener.Addr().String())
	}
	stopping := false
	for {
		select {
		case err := <-done:
			return err
		case <-m.Reloads:
			reload(ctx, watcher, log)
		case signal := <-m.Signals:
			if stopping {
				log.Warn("stopping at once")
				return errors.Join(errors.New("stopped before all requests were answered"), srv.Close(), <-done)
			}
			log.Info("stopping; once more stops at once", "signal", signal.String())
			stopping = true
			stop()
		}
	}
}

// reload reads the rules again. What is wrong stays as it was and is logged.
func reload(ctx context.Context, watcher *rules.Watcher, log *slog.Logger) {
	if err := watcher.Reload(ctx); err != nil {
		log.Error("rules stay as they were", "error", err)
		return
	}
	log.Info("rules reloaded", "revision", watcher.Snapshot().Revision(), "problems", len(watcher.Problems()))
}

// now reads the clock.
func (m *Main) now() time.Time {
	if m.Now == nil {
		return time.Now()
	}
	return m.Now()
}

// newLog makes the logger of the settings, which are valid.
func newLog(v *values, pod string, out io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(v.String("log-level"))) // checked by the setting
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(out, options)
	if v.String("log-format") == "json" {
		handler = slog.NewJSONHandler(out, options)
	}
	return slog.New(handler).With("pod", pod)
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}
