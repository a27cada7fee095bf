package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/fleet"
	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/rules"
)

// followed is the rules that a pod works from, and what feeds them.
type followed struct {
	*rules.Watcher
	// store is where the rules are; nil where a control plane has them.
	store *ruleStore
	// hub follows the store, for this process and for pods; nil where store is.
	hub *feed.Hub
	// reader is what is followed; nil for a file.
	reader rulestore.Reader
	// reports takes this pod's reports; nil where it has no control plane.
	reports fleet.Sink
	// first says that there were no rules and there are examples now.
	first bool
	// now is the clock that overrides end by: that of the rules, not this machine's.
	now func() time.Time

	mu      sync.Mutex // guards changed
	changed []*func()

	closers []func() error
}

// onChange has call called after each change of the rules, until end is.
func (f *followed) onChange(call func()) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = append(f.changed, &call)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changed = slices.DeleteFunc(f.changed, func(c *func()) bool { return c == &call })
	}
}

// tell says that the rules have changed.
func (f *followed) tell(*rules.Snapshot, rules.Problems) {
	f.mu.Lock()
	calls := slices.Clone(f.changed)
	f.mu.Unlock()
	for _, call := range calls {
		(*call)()
	}
}

// Close stops following, the last that was started first.
func (f *followed) Close() error { return closeAll(f.closers) }

// closeAll closes in the opposite order.
func closeAll(closers []func() error) (err error) {
	for _, closer := range slices.Backward(closers) {
		err = errors.Join(err, closer())
	}
	return err
}

func (f *followed) onClose(closer func() error) { f.closers = append(f.closers, closer) }

// watchRules starts to follow the rules of the settings.
func (m *Main) watchRules(ctx context.Context, v *values, log *slog.Logger) (f *followed, err error) {
	f = &followed{now: m.now}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	where := v.String("rules")
	if remoteRules(where) {
		return f, m.watchControl(ctx, v, f, log)
	}
	if f.store, err = m.openFollowed(ctx, v, log); err != nil {
		return f, err
	}
	f.onClose(f.store.close)
	if v.origin["rules"] == "default" {
		if f.first, err = firstRules(ctx, f.store, log); err != nil {
			return f, err
		}
	}
	if f.hub, err = feed.NewHub(feed.HubConfig{Reader: f.store, Waiter: f.store.hints, Now: m.Now, Log: log}); err != nil {
		return f, err
	}
	f.hub.Start()
	f.onClose(f.hub.Close)
	if source := sourceOf(v); source != nil { // itself, so that problems name lines
		if f.Watcher, err = f.startWatcher(ctx, source, 0, log); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w; --rules (TALLYGATE_RULES) names another place", err)
			}
			return f, err
		}
		f.onClose(f.Watcher.Close)
		return f, someUsable(f.Watcher)
	}
	if strings.HasPrefix(where, sqliteScheme) {
		return f, f.follow(ctx, f.hub, f.hub, rules.DefaultEvery, log)
	}
	reader, err := f.keep(v, f.hub, log)
	if err != nil {
		return f, err
	}
	return f, f.follow(ctx, reader, f.hub, rules.DefaultEvery, log)
}

// openFollowed opens a database or file of rules to follow. A database on another
// machine may be away.
func (m *Main) openFollowed(ctx context.Context, v *values, log *slog.Logger) (*ruleStore, error) {
	open := func(ctx context.Context) (*ruleStore, error) { return openRuleStore(ctx, v, m.now, log) }
	if strings.HasPrefix(v.String("rules"), "postgres") {
		return connectRules(ctx, log, open), nil
	}
	return open(ctx)
}

// watchControl follows a control plane.
func (m *Main) watchControl(ctx context.Context, v *values, f *followed, log *slog.Logger) error {
	up, err := openUplinks(v, m.now, log)
	if err != nil {
		return err
	}
	f.onClose(up.Close)
	f.reports = up.reports
	reader, err := f.keep(v, up.feed, log)
	if err != nil {
		return err
	}
	return f.follow(ctx, reader, up.feed, spread(resyncEvery), log)
}

// keep puts the snapshot on disk in front of a reader.
func (f *followed) keep(v *values, reader rulestore.Reader, log *slog.Logger) (rulestore.Reader, error) {
	kept, closer, err := keepRules(v, reader, log)
	if err == nil {
		f.onClose(closer)
	}
	return kept, err
}

// follow starts a watcher on a reader, with hints.
func (f *followed) follow(ctx context.Context, reader rulestore.Reader, hints rulestore.Waiter, every time.Duration, log *slog.Logger) error {
	f.reader = reader
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: reader, Now: f.now, Log: log})
	machine := f.now
	f.now = func() time.Time { return machine().Add(source.Offset()) }
	w, err := f.startWatcher(ctx, source, every, log)
	for end := time.Now().Add(startWithin); err != nil && f.store == nil && time.Now().Before(end); {
		loop.Pause(ctx, startPause) // a control plane that starts now has no rules to tell yet
		w, err = f.startWatcher(ctx, source, every, log)
	}
	if err != nil {
		return err
	}
	f.Watcher = w
	f.onClose(w.Close)
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var waiting sync.WaitGroup
	waiting.Go(func() { rulestore.Follow(following, hints, source, w.Reload) })
	f.onClose(func() error { cancel(); waiting.Wait(); return nil })
	return nil
}

func (f *followed) startWatcher(ctx context.Context, source rules.Source, every time.Duration, log *slog.Logger) (*rules.Watcher, error) {
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: source, Every: every, OnChange: f.tell, Now: f.now, Log: log})
	if err != nil {
		return nil, err
	}
	if err := w.Start(ctx); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// someUsable refuses to start on a file of which not one rule can be used: what was to
// be limited would pass, and only the log would say so. A change of the file while this
// runs leaves the last good rules in force instead.
func someUsable(w *rules.Watcher) error {
	faults := w.Problems().Faults()
	if len(w.Snapshot().Rules()) > 0 || len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("not one rule can be used, for the %s in the log above: mend them (tallygate rules lint FILE shows all), or say that there are none by an empty list, rules: [], and no overrides", count(len(faults), "problem"))
}

// reload asks where the rules are, now. What is wrong stays as it was and is logged.
func (f *followed) reload(ctx context.Context, log *slog.Logger) {
	var err error
	if f.hub != nil {
		err = f.hub.Refresh(ctx)
	}
	if err == nil {
		err = f.Reload(ctx)
	}
	if err != nil {
		log.Error("rules stay as they were", "error", err)
		return
	}
	log.Info("rules reloaded", "revision", f.Snapshot().Revision(), "problems", len(f.Problems()))
}

// startWithin is how long a pod without a snapshot waits for its control plane, asking
// it each startPause, before it gives up.
const (
	startWithin = 3 * time.Second
	startPause  = 250 * time.Millisecond
)

// spread is a time that differs by a tenth from pod to pod, so that pods that start
// together do not ask together.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}
