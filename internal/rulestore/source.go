package rulestore

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/rules"
)

// WholeEvery is how often all that is followed is compared with the database: what
// somebody changed there without a new revision takes effect within it.
const WholeEvery = time.Minute

// SourceConfig says what to read.
type SourceConfig struct {
	// Reader is asked. Required.
	Reader Reader
	// WholeEvery is the time between two comparisons with a reader that does not tell
	// the digest of all there is, and with one that does after the digest was another
	// one; 0 means WholeEvery.
	WholeEvery time.Duration
	// Now is this process's clock; nil means time.Now.
	Now func() time.Time
	// Log is told what should not happen; nil means none.
	Log *slog.Logger
}

// Source has a rules.Watcher work from a store: everything once, then what changed,
// and where that does not lead to what there is, what differs from everything. Each reset is passed on once. Load and
// Next are for one goroutine at a time; the other methods may be called at any time.
type Source struct {
	cfg SourceConfig

	// Of the last load.
	held     held
	compared time.Time // zero before the first
	// doubted is when the digest last said that something else is there: where everything
	// does not help, it is not read again at once.
	doubted time.Time

	revision atomic.Int64
	clock    Clock
}

var _ rules.Feed = (*Source)(nil)

// NewSource returns a source that has read nothing yet.
func NewSource(cfg SourceConfig) *Source {
	if cfg.WholeEvery == 0 {
		cfg.WholeEvery = WholeEvery
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg}
}

// Revision returns that of the last load; 0 before the first.
func (s *Source) Revision() int64 { return s.revision.Load() }

// Offset returns by how much the store's clock is ahead of this process's, as the
// quickest of the last answers told it; 0 before the first one.
func (s *Source) Offset() time.Duration { return s.clock.Offset() }

// Load implements rules.Source: everything, each time.
func (s *Source) Load(ctx context.Context) (rules.Set, rules.Problems, rules.Version, error) {
	set, resets, err := s.whole(ctx, Changes{})
	if err != nil {
		return rules.Set{}, nil, rules.Version{}, err
	}
	live := s.begin(set)
	live.Resets = resetsOf(resets)
	return live, s.held.bad.list(), s.version(), nil
}

// Next implements rules.Feed.
func (s *Source) Next(ctx context.Context) (rules.Update, error) {
	if s.compared.IsZero() {
		set, problems, version, err := s.Load(ctx)
		if err != nil {
			return rules.Update{}, err
		}
		return rules.Update{Set: &set, Problems: problems, Version: version}, nil
	}
	changes, err := s.changes(ctx)
	if err != nil {
		return rules.Update{}, err
	}
	if changes.Revision == s.held.revision && len(changes.Rules) == 0 && len(changes.Overrides) == 0 {
		return rules.Update{}, nil
	}
	delta := s.held.take(changes)
	s.revision.Store(s.held.revision)
	return rules.Update{Delta: &delta, Problems: s.held.bad.list(), Version: s.version()}, nil
}

func (s *Source) version() rules.Version {
	return rules.Version{Content: s.held.sum.String(), Revision: s.held.revision}
}

// begin takes over everything.
func (s *Source) begin(set Set) rules.Set {
	delta, bad := readRows(set.Rules, set.Overrides)
	s.held = hold(&set, bad)
	s.compared = s.cfg.Now()
	s.revision.Store(set.Revision)
	return rules.Set{Rules: delta.Rules, Candidates: delta.Candidates, Overrides: delta.Overrides, Unread: delta.Unread}
}

// changes returns what changed since the last load. Where the reader tells the digest
// of all there is, each answer is the comparison of everything.
func (s *Source) changes(ctx context.Context) (Changes, error) {
	changes, err := s.since(ctx)
	switch {
	case err != nil:
		return Changes{}, err
	case changes.Revision < s.held.revision:
		s.cfg.Log.Warn("the database of the rules is an older one than before; taking what is in it",
			"revision", changes.Revision, "before", s.held.revision)
		return s.compare(ctx, changes)
	case changes.Forgotten:
		return s.compare(ctx, changes)
	case changes.Hash != "" && s.held.with(&changes) != changes.Hash:
		if now := s.cfg.Now(); s.doubted.IsZero() || now.Sub(s.doubted) >= s.cfg.WholeEvery {
			s.doubted = now
			return s.compare(ctx, changes)
		}
	case changes.Hash != "":
		s.compared = s.cfg.Now()
	case s.cfg.Now().Sub(s.compared) >= s.cfg.WholeEvery:
		return s.compare(ctx, changes)
	}
	return changes, nil
}

// compare returns how everything differs from what was passed on, of which known is
// what changes were told.
func (s *Source) compare(ctx context.Context, known Changes) (Changes, error) {
	set, resets, err := s.whole(ctx, known)
	if err != nil {
		return Changes{}, err
	}
	changes := s.held.differing(&set)
	changes.Resets = resets
	if set.Revision == s.held.revision && len(changes.Rules)+len(changes.Overrides) > 0 {
		s.cfg.Log.Warn("somebody changed rules in the database without a new revision", "revision", set.Revision)
	}
	s.compared = s.cfg.Now()
	return changes, nil
}

// whole reads everything, and the resets up to there that were not passed on. Those that
// are not among the known ones are asked for after it, so that none between the two is
// missed; those that came later are for the next time.
func (s *Source) whole(ctx context.Context, known Changes) (Set, []Reset, error) {
	asked := s.cfg.Now()
	set, err := s.cfg.Reader.Whole(ctx)
	if err != nil {
		return Set{}, nil, err
	}
	s.clock.Heard(asked, s.cfg.Now(), set.Now)
	if s.compared.IsZero() || set.Revision <= s.held.revision {
		return set, nil, nil
	}
	if known.Revision < set.Revision {
		if known, err = s.since(ctx); err != nil {
			return Set{}, nil, err
		}
	}
	late := func(r Reset) bool { return r.Revision > set.Revision }
	return set, slices.DeleteFunc(known.Resets, late), nil
}

func (s *Source) since(ctx context.Context) (Changes, error) {
	asked := s.cfg.Now()
	changes, err := s.cfg.Reader.Since(ctx, s.held.revision)
	if err == nil {
		s.clock.Heard(asked, s.cfg.Now(), changes.Now)
	}
	return changes, err
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
		loop.Pause(ctx, followPause)
	}
}
