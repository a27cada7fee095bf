package rules

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/loop"
)

// Source is where rules come from.
type Source interface {
	// Load returns the whole set, what of it could not be read, and its version.
	// An error means that nothing could be read, or nothing of it can be trusted;
	// the last good snapshot then stays. Load is not called by two goroutines at
	// once, and returns when ctx ends.
	Load(ctx context.Context) (Set, Problems, Version, error)
}

// Version identifies what a Source holds; two are the same only if nothing
// changed. The zero Version is none.
type Version struct {
	// Content is a digest or a name of the content.
	Content string
	// Revision is the least revision its snapshot may have: it orders changes over
	// restarts and between pods. 0 if the source has none.
	Revision int64
}

// ErrClosed is the answer of a Watcher that was closed.
var ErrClosed = errors.New("rules: watcher is closed")

// DefaultEvery is how often a Watcher asks its source.
const DefaultEvery = time.Second

// WatcherConfig says what to watch.
type WatcherConfig struct {
	// Source is asked for rules; one that is a [Feed] for what changed. Required.
	Source Source
	// Every is the time between two loads; 0 means DefaultEvery.
	Every time.Duration
	// Now is the clock that overrides end by, that of who wrote them; nil means
	// time.Now. It is read after each load.
	Now func() time.Time
	// Log gets each problem once per change; nil means none.
	Log *slog.Logger
	// OnChange is called after each swap with the new snapshot and its problems,
	// never twice at once. It must not call the Watcher's methods other than
	// Snapshot. Nil means none.
	OnChange func(*Snapshot, Problems)
}

// Watcher follows a Source and keeps the last good Snapshot. It is safe for
// concurrent use; Snapshot is one atomic load.
//
//	NewWatcher ─► Start (first load, then one goroutine) ─► Close
type Watcher struct {
	cfg     WatcherConfig
	current atomic.Pointer[Snapshot]

	// loading is held from before a load until after its swap.
	loading  sync.Mutex
	compiler *Compiler
	version  Version
	problems Problems
	failure  string // the last load's error, to log it once
	started  bool

	following loop.Loop
}

// NewWatcher returns a Watcher that holds no rules yet. It starts nothing.
func NewWatcher(cfg WatcherConfig) (*Watcher, error) {
	if cfg.Source == nil {
		return nil, errors.New("rules: WatcherConfig.Source is required")
	}
	if cfg.Every < 0 {
		return nil, errors.New("rules: WatcherConfig.Every is negative")
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultEvery
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{cfg: cfg, compiler: NewCompiler(nil)}
	w.current.Store(newSnapshot(0, nil))
	return w, nil
}

// Start loads the rules and then follows them until Close; ctx bounds only the
// first load. If that fails, nothing is started and Start may be called again.
// Started twice, it does nothing.
func (w *Watcher) Start(ctx context.Context) error {
	w.loading.Lock()
	defer w.loading.Unlock()
	switch {
	case w.following.Closed():
		return ErrClosed
	case w.started:
		return nil
	}
	if err := w.loadLocked(ctx); err != nil {
		return err
	}
	w.started = true
	w.following.Start(w.follow)
	return nil
}

// Close stops following and returns when nothing runs any more. The last
// snapshot stays readable. Closed twice, it does nothing.
func (w *Watcher) Close() error {
	w.following.Close()
	w.loading.Lock() // a Start or Reload under way ends first; none begins after
	defer w.loading.Unlock()
	return nil
}

// Snapshot returns the last good snapshot, never nil; before the first load it
// is empty, of revision 0.
func (w *Watcher) Snapshot() *Snapshot { return w.current.Load() }

// Problems returns what is wrong in the source as last loaded.
func (w *Watcher) Problems() Problems {
	w.loading.Lock()
	defer w.loading.Unlock()
	return w.problems
}

// Reload asks the source at once, as after SIGHUP. An error means that the last
// good snapshot stays; problems of single rules are no error.
func (w *Watcher) Reload(ctx context.Context) error {
	w.loading.Lock()
	defer w.loading.Unlock()
	if w.following.Closed() {
		return ErrClosed
	}
	return w.loadLocked(ctx)
}

func (w *Watcher) follow(ctx context.Context) {
	tick := time.NewTicker(w.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.loading.Lock()
			_ = w.loadLocked(ctx) // logged there; the last good snapshot stays
			w.loading.Unlock()
		}
	}
}

// loadLocked asks the source and swaps the snapshot if it changed.
func (w *Watcher) loadLocked(ctx context.Context) error {
	update, err := w.ask(ctx)
	if err != nil {
		if text := err.Error(); text != w.failure && ctx.Err() == nil {
			w.failure = text
			stay := "rules not loaded; the last good ones stay"
			if w.Snapshot().revision == 0 {
				stay = "rules not loaded, and there are none yet"
			}
			w.cfg.Log.Error(stay, "error", text, "revision", w.Snapshot().revision) //nolint:sloglint // one of two constants
		}
		return err
	}
	if w.failure != "" {
		w.failure = ""
		w.cfg.Log.Info("rules can be loaded again")
	}
	var next *Snapshot
	var problems Problems
	switch {
	case update.Set != nil:
		next, problems = w.compiler.Whole(*update.Set, update.Version.Revision, w.cfg.Now())
	case update.Delta != nil:
		next, problems = w.compiler.Change(*update.Delta, update.Version.Revision, w.cfg.Now())
	default:
		return nil
	}
	problems = append(slices.Clip(update.Problems), problems...)
	w.current.Store(next)
	w.version, w.problems = update.Version, problems
	w.log(next, problems)
	if w.cfg.OnChange != nil {
		w.cfg.OnChange(next, problems)
	}
	return nil
}

// log names each problem of a change, once.
func (w *Watcher) log(s *Snapshot, problems Problems) {
	w.cfg.Log.Info("rules loaded", "revision", s.revision, "rules", len(s.rules),
		"faults", len(problems.Faults()), "warnings", len(problems.Warnings()))
	for _, p := range problems {
		level := slog.LevelError
		if p.Warning {
			level = slog.LevelWarn
		}
		told := []any{
			"problem", p.String(), "rule", p.Rule, "field", p.Field, "value", p.Value, "line", p.Line, "column", p.Column,
		}
		if p.Rule != "" { // else it is of the file, such as of a domain's name
			told = append(told, "in_force", s.Rule(p.Rule) != nil)
		}
		w.cfg.Log.Log(context.Background(), level, "rules: problem", told...)
	}
}
