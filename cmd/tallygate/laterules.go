package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/internal/rulestore"
)

// reopenEvery is the pause between two attempts to open a database of rules.
const reopenEvery = 2 * time.Second

// lateRules is a database of rules that may not be there yet: a pod that starts
// while it is away must work from its last good snapshot. Its goroutine, if there
// is one, ends with Close.
type lateRules struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex // guards what follows
	opened chan struct{}
	store  *ruleStore // nil until opened is closed
	err    error      // of the last attempt
}

// connectRules opens a database; where that fails it goes on trying, and every
// question gets the last error until then.
func connectRules(ctx context.Context, log *slog.Logger, open func(context.Context) (*ruleStore, error)) *ruleStore {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lateRules{cancel: cancel, done: make(chan struct{}), opened: make(chan struct{})}
	first, err := open(ctx)
	if err == nil {
		cancel()
		return first
	}
	l.err = err
	go l.try(background, log, open)
	return &ruleStore{ruleBook: l, hints: l, close: l.Close}
}

func (l *lateRules) try(ctx context.Context, log *slog.Logger, open func(context.Context) (*ruleStore, error)) {
	defer close(l.done)
	for {
		loop.Pause(ctx, spread(reopenEvery))
		if ctx.Err() != nil {
			return
		}
		s, err := open(ctx)
		l.mu.Lock()
		l.store, l.err = s, err
		l.mu.Unlock()
		if err == nil {
			close(l.opened)
			log.Info("the database of the rules can be reached")
			return
		}
	}
}

// Close ends the attempts and closes the database.
func (l *lateRules) Close() error {
	l.cancel()
	<-l.done
	if l.store != nil {
		return l.store.close()
	}
	return nil
}

func (l *lateRules) get() (*ruleStore, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store, l.err
}

// ask asks the database, once it is there.
func ask[T any](l *lateRules, question func(*ruleStore) (T, error)) (T, error) {
	s, err := l.get()
	if err != nil {
		var none T
		return none, err
	}
	return question(s)
}

// Whole implements rulestore.Reader.
func (l *lateRules) Whole(ctx context.Context) (rulestore.Set, error) {
	return ask(l, func(s *ruleStore) (rulestore.Set, error) { return s.Whole(ctx) })
}

// Since implements rulestore.Reader.
func (l *lateRules) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	return ask(l, func(s *ruleStore) (rulestore.Changes, error) { return s.Since(ctx, revision) })
}

// Wait implements rulestore.Waiter: it waits for the database first.
func (l *lateRules) Wait(ctx context.Context, since int64) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.opened:
	}
	s, err := l.get()
	if err != nil {
		return err
	}
	return s.hints.Wait(ctx, since)
}

// Apply implements rulestore.Writer.
func (l *lateRules) Apply(ctx context.Context, by rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	return ask(l, func(s *ruleStore) (rulestore.Applied, error) { return s.Apply(ctx, by, changes...) })
}

// DryRun implements rulestore.Writer.
func (l *lateRules) DryRun(ctx context.Context, by rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	return ask(l, func(s *ruleStore) (rulestore.Applied, error) { return s.DryRun(ctx, by, changes...) })
}

// Rule implements rulestore.Records.
func (l *lateRules) Rule(ctx context.Context, id string) (rulestore.Rule, error) {
	return ask(l, func(s *ruleStore) (rulestore.Rule, error) { return s.Rule(ctx, id) })
}

// Override implements rulestore.Records.
func (l *lateRules) Override(ctx context.Context, rule string, key []string) (rulestore.Override, error) {
	return ask(l, func(s *ruleStore) (rulestore.Override, error) { return s.Override(ctx, rule, key) })
}

// Overrides implements rulestore.Overrides.
func (l *lateRules) Overrides(ctx context.Context, page rulestore.OverridePage) ([]rulestore.Override, error) {
	return ask(l, func(s *ruleStore) ([]rulestore.Override, error) { return s.Overrides(ctx, page) })
}

// History implements rulestore.Historian.
func (l *lateRules) History(ctx context.Context, rule string, before int64, limit int) ([]rulestore.Version, error) {
	return ask(l, func(s *ruleStore) ([]rulestore.Version, error) { return s.History(ctx, rule, before, limit) })
}

// Version implements rulestore.Historian.
func (l *lateRules) Version(ctx context.Context, rule string, version int64) (rulestore.Version, error) {
	return ask(l, func(s *ruleStore) (rulestore.Version, error) { return s.Version(ctx, rule, version) })
}

// Audit implements rulestore.Auditor.
func (l *lateRules) Audit(ctx context.Context, filter rulestore.AuditFilter) ([]rulestore.Entry, error) {
	return ask(l, func(s *ruleStore) ([]rulestore.Entry, error) { return s.Audit(ctx, filter) })
}
