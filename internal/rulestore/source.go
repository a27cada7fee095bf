package rulestore

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/rules"
)

// WholeEvery is how often a [Source] compares all it has with the database: what
// somebody changed there without a new revision takes effect within it.
const WholeEvery = time.Minute

// SourceConfig says what to read.
type SourceConfig struct {
	// Reader is asked. Required.
	Reader Reader
	// WholeEvery is the time between two comparisons; 0 means WholeEvery.
	WholeEvery time.Duration
	// Log is told what should not happen; nil means none.
	Log *slog.Logger
}

// Source has a rules.Watcher work from a store. Pods enforce live versions only;
// candidates and resets are in the store for who knows them.
type Source struct {
	cfg SourceConfig

	// Of the last load, which is one goroutine's at a time.
	set      Set
	live     rules.Set
	problems rules.Problems
	compared time.Time

	revision atomic.Int64
}

var _ rules.Source = (*Source)(nil)

// NewSource returns a source that has read nothing yet.
func NewSource(cfg SourceConfig) *Source {
	if cfg.WholeEvery == 0 {
		cfg.WholeEvery = WholeEvery
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg}
}

// Revision returns that of the last load; 0 before the first. It may be called at
// any time.
func (s *Source) Revision() int64 { return s.revision.Load() }

// Load implements rules.Source: it asks for what changed, and from time to time
// for everything.
func (s *Source) Load(ctx context.Context) (rules.Set, rules.Problems, rules.Version, error) {
	next, err := s.next(ctx)
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	if next.Hash != s.set.Hash {
		s.live, s.problems = next.Live()
	}
	s.set = next
	s.revision.Store(next.Revision)
	return s.live, s.problems, rules.Version{Content: next.Hash, Revision: next.Revision}, nil
}

// next returns the set as it is now.
func (s *Source) next(ctx context.Context) (Set, error) {
	if s.compared.IsZero() || time.Since(s.compared) >= s.cfg.WholeEvery {
		return s.whole(ctx)
	}
	changes, err := s.cfg.Reader.Since(ctx, s.set.Revision)
	switch {
	case err != nil:
		return Set{}, err
	case changes.Revision == s.set.Revision:
		return s.set, nil
	case changes.Revision < s.set.Revision:
		s.cfg.Log.Warn("the database of the rules is an older one than before; taking what is in it",
			"revision", changes.Revision, "before", s.set.Revision)
		return s.whole(ctx)
	default:
		return s.set.After(changes), nil
	}
}

func (s *Source) whole(ctx context.Context) (Set, error) {
	set, err := s.cfg.Reader.Whole(ctx)
	if err != nil {
		return Set{}, err
	}
	if set.Revision == s.set.Revision && set.Hash != s.set.Hash && !s.compared.IsZero() {
		s.cfg.Log.Warn("somebody changed rules in the database without a new revision", "revision", set.Revision)
	}
	s.compared = time.Now()
	return set, nil
}

// followPause is how long Follow leaves a database alone that it could not read.
const followPause = time.Second

// Follow calls reload, such as Watcher.Reload, as soon as the store has another
// revision than the source, until ctx ends. It is a hint on top of the watcher's
// own pace.
func Follow(ctx context.Context, waiter Waiter, source *Source, reload func(context.Context) error) {
	for waiter.Wait(ctx, source.Revision()) == nil {
		if reload(ctx) == nil {
			continue
		}
		pause := time.NewTimer(followPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}
