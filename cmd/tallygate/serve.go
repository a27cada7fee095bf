package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
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
	g, err := m.openGate(ctx, v, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	d, err := m.openDoors(ctx, v, g)
	if err != nil {
		return err
	}
	stopAdmin, err := m.startGoverning(ctx, v, g, stdout, d.collectors()...)
	if err != nil {
		return errors.Join(err, d.closeListeners())
	}
	defer stopAdmin() // last of all listeners, so that a stop can be watched
	m.announce(v, d, g.rules.Snapshot(), g.rules.first, stdout)
	return m.run(ctx, d, g)
}

// run serves until ctx ends or a signal stops it.
func (m *Main) run(ctx context.Context, d front, g *gate) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- d.serve(serving) }()
	d.tell(m)
	stopping := false
	for {
		select {
		case err := <-done:
			return err
		case <-m.Reloads:
			g.rules.reload(ctx, g.log)
		case signal := <-m.Signals:
			if stopping {
				g.log.Warn("stopping at once")
				return errors.Join(errors.New("stopped before all requests were answered"), d.close(), <-done)
			}
			g.log.Info("stopping; once more stops at once", "signal", signal.String())
			stopping = true
			stop()
		}
	}
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
