package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/admin/token"
)

// gate is what decides checks, behind whatever port they come by.
type gate struct {
	pod     string
	log     *slog.Logger
	tokens  *token.File // nil for none
	rules   *followed
	limiter *tallygate.Limiter

	closers []func() error
}

// front is the ports by which checks come.
type front interface {
	serve(ctx context.Context) error
	close() error
	tell(m *Main)
}

// openGate opens rules, store and limiter of the settings.
func (m *Main) openGate(ctx context.Context, v *values, stderr io.Writer) (g *gate, err error) {
	if err := v.followsItself(); err != nil {
		return nil, err
	}
	g = &gate{pod: podID(v)}
	g.log = newLog(v, g.pod, stderr)
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	if g.tokens, err = openTokens(v, g.log); err != nil {
		return g, err
	}
	if g.rules, err = m.watchRules(ctx, v, g.log); err != nil {
		return g, fmt.Errorf("rules: %w", err)
	}
	g.onClose(g.rules.Close)
	counts, closer, err := m.openStore(ctx, v, g.pod, g.log)
	if err != nil {
		return g, fmt.Errorf("store: %w", err)
	}
	g.onClose(closer.Close)
	g.limiter, err = tallygate.New(tallygate.Config{
		Rules: g.rules.Watcher, Store: counts, Deadline: v.Duration("store-deadline"),
		Pod: g.pod, ShowKey: showKey(v), ReservationSecret: []byte(v.String("key-hash")), Now: g.rules.now, Log: g.log,
	})
	if err != nil {
		return g, err
	}
	g.onClose(g.limiter.Close)
	leave, err := countPods(ctx, v, g.pod, counts, g.limiter, g.log)
	if err != nil {
		return g, fmt.Errorf("pods: %w", err)
	}
	g.onClose(func() error { leave(); return nil })
	return g, nil
}

func (g *gate) onClose(closer func() error) { g.closers = append(g.closers, closer) }

// Close takes it apart, the last that was opened first.
func (g *gate) Close() error { return closeAll(g.closers) }
