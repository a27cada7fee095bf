package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin"
	"github.com/tallygate/tallygate/metrics"
)

func (m *Main) controlCommand(env []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "control",
		Short: "Run the control plane alone: rules, and what pods report",
		Long: "Run the control plane alone: the admin API, the feed of changes that pods follow with\n" +
			"tallygate serve --rules http://HOST:PORT, their reports, and what stops canaries. It answers no checks.\n\n" +
			"With --store it can also say what is left for a key, and make it full again. Run one for a fleet: pods\n" +
			"go on without it, and what they report is known to the one they report to.",
		Example: "  tallygate control --rules postgres://tallygate@db/tallygate --admin :8090 --tokens-file tokens.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := load(cmd, env)
			if err != nil {
				return err
			}
			if v.String("admin") == "" {
				return usagef("a control plane without an admin port answers nobody; set --admin")
			}
			if remoteRules(v.String("rules")) {
				return usagef("the rules of a control plane are in sqlite:…, postgres://… or file:…, not behind another one")
			}
			if err := beUnhurried(v); err != nil {
				return err
			}
			return m.control(cmd.Context(), v, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addFlags(cmd, controlling)
	return cmd
}

// controlDeadline is how long the control plane waits for the store where store-deadline
// is not set. It answers no checks: who resets a key would rather wait than try again.
const controlDeadline = "1s"

// beUnhurried puts it in the place of the deadline of checks.
func beUnhurried(v *values) error {
	if v.origin["store-deadline"] != "default" {
		return nil
	}
	return v.Set("store-deadline", controlDeadline)
}

// control wires the control plane, serves, and takes it apart in the opposite order.
func (m *Main) control(ctx context.Context, v *values, stdout, stderr io.Writer) (err error) {
	log := newLog(v, "control", stderr)
	tokens, err := openTokens(v, log)
	if err != nil {
		return err
	}
	watcher, err := m.watchRules(ctx, v, log)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	defer func() { err = errors.Join(err, watcher.Close()) }()

	cfg := m.adminConfig(tokens, log)
	closeStore, err := m.lookThrough(ctx, v, watcher, &cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()

	p, err := m.startPlane(watcher, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	book(&cfg, watcher.store)
	p.serve(&cfg, showKey(v))
	stop, err := m.startAdmin(ctx, v, cfg, log, stdout)
	if err != nil {
		return err
	}
	defer stop()
	return m.untilStopped(ctx, watcher, log)
}

// lookThrough lets the API look at the buckets of a store that pods share.
func (m *Main) lookThrough(ctx context.Context, v *values, f *followed, cfg *admin.Config, log *slog.Logger) (closer func() error, err error) {
	if v.String("store") == "memory" {
		cfg.Metrics = scrapes(log)
		return func() error { return nil }, nil
	}
	// A name of its own among those that share the store: two that write one beat would
	// each take the other for a failover that lost spends.
	counts, store, err := m.openStore(ctx, v, "control-"+podID(v), log)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	limiter, err := tallygate.New(tallygate.Config{Rules: f.Watcher, Store: counts, Deadline: v.Duration("store-deadline"), ShowKey: showKey(v), Now: f.now, Log: log})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	var collector prometheus.Collector = metrics.NewCollector(limiter)
	cfg.Looker, cfg.Resetter, cfg.Metrics = limiter, limiter, scrapes(log, collector)
	return func() error { return errors.Join(limiter.Close(), store.Close()) }, nil
}

// untilStopped returns when ctx ends or a signal stops the process.
func (m *Main) untilStopped(ctx context.Context, watcher *followed, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.Reloads:
			watcher.reload(ctx, log)
		case signal := <-m.Signals:
			log.Info("stopping", "signal", signal.String())
			return nil
		}
	}
}
