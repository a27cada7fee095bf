package kept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// DefaultEvery is the least time between two writes.
const DefaultEvery = time.Second

// restFactor times as long as a write took is the pause after it, at least: writing
// large sets must not be all that a pod does.
const restFactor = 10

// Config says what to keep, and where. Reader, Path and Source are required.
type Config struct {
	// Reader is asked.
	Reader rulestore.Reader
	// Path is the file. It is made with rights 0600; its folder is not made.
	Path string
	// Source is whose rules they are, without secrets: see [Identity]. The file of
	// another source is not used.
	Source string
	// Every is the least time between two writes; 0 means DefaultEvery.
	Every time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told what is served from the file and why not; nil means none.
	Log *slog.Logger
}

// Store is a rulestore.Reader that keeps what it read.
//
//	New ─► Start (one goroutine) ─► Close, which writes what is not written yet
type Store struct {
	cfg  Config
	wake chan struct{} // there is something to write

	failing bool // of the goroutine: the last write did
	loop    loop.Loop

	mu        sync.Mutex // guards what follows
	mirror    wire.Mirror
	has       bool // mirror is what the reader has, or had
	answered  bool // the reader has answered once
	looked    bool // at the file, and found what follows
	file      rulestore.Set
	fileErr   error
	writtenAt time.Time
	onDisk    content
}

// content is what a set is told apart by.
type content struct {
	revision int64
	hash     string
}

var _ rulestore.Reader = (*Store)(nil)

// New returns a store that has read nothing yet. It starts nothing.
func New(cfg Config) (*Store, error) {
	switch {
	case cfg.Reader == nil || cfg.Path == "" || cfg.Source == "":
		return nil, errors.New("kept: Config.Reader, Path and Source are required")
	case cfg.Every < 0:
		return nil, errors.New("kept: Config.Every is negative")
	case cfg.Every == 0:
		cfg.Every = DefaultEvery
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{cfg: cfg, wake: make(chan struct{}, 1)}, nil
}

// Start begins to write what is read, until Close. Started twice or after Close, it
// does nothing.
func (s *Store) Start() { s.loop.Start(s.run) }

// Close writes what is not written yet and returns when nothing runs any more.
// Closed twice, it does nothing.
func (s *Store) Close() error {
	s.loop.Close()
	return nil
}

// Whole implements rulestore.Reader. As long as the reader has never answered, its
// failures are answered from the file, if there is a good one.
func (s *Store) Whole(ctx context.Context) (rulestore.Set, error) {
	set, err := s.cfg.Reader.Whole(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return s.fromFileLocked(err)
	}
	s.answeredLocked()
	s.mirror.Replace(set)
	s.has = true
	s.wakeUp()
	return set, nil
}

// Since implements rulestore.Reader. It answers nothing from the file: who has that
// has all there is.
func (s *Store) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	changes, err := s.cfg.Reader.Since(ctx, revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return changes, err
	}
	s.answeredLocked()
	if s.has && s.mirror.Revision() == revision && changes.Revision > revision {
		s.mirror.Apply(changes)
		s.wakeUp()
	}
	return changes, nil
}

// Serving reports whether what was served last is from the file, and when that was
// written.
func (s *Store) Serving() (writtenAt time.Time, fromFile bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writtenAt, s.looked && !s.answered && s.fileErr == nil
}

// fromFileLocked answers from the file, or with why that is not possible.
func (s *Store) fromFileLocked(cause error) (rulestore.Set, error) {
	if s.answered {
		return rulestore.Set{}, cause
	}
	now := s.cfg.Now()
	if !s.looked {
		s.looked = true
		s.file, s.writtenAt, s.fileErr = load(s.cfg.Path, s.cfg.Source)
		switch {
		case errors.Is(s.fileErr, fs.ErrNotExist):
		case s.fileErr != nil:
			s.cfg.Log.Warn("the snapshot of rules on disk is not used", "file", s.cfg.Path, "why", s.fileErr)
		default:
			s.cfg.Log.Warn("the rules of record do not answer; starting with the last good snapshot on disk",
				"error", cause, "file", s.cfg.Path, "age", now.Sub(s.writtenAt).Round(time.Second), "revision", s.file.Revision)
			s.mirror.Replace(s.file)
			s.has, s.onDisk = true, content{s.file.Revision, s.file.Hash}
		}
	}
	if s.fileErr != nil {
		return rulestore.Set{}, fmt.Errorf("%w; and there is no snapshot on disk to start with: %w", cause, s.fileErr)
	}
	set := s.file
	set.Now = now // ours, as long as we do not know theirs
	set.Rules, set.Overrides = slices.Clone(set.Rules), slices.Clone(set.Overrides)
	return set, nil
}

// answeredLocked notes that the reader answers: the file has done its work.
func (s *Store) answeredLocked() {
	if s.answered {
		return
	}
	s.answered = true
	if s.looked && s.fileErr == nil {
		s.cfg.Log.Info("the rules of record answer; the snapshot on disk is not needed any more")
	}
	s.file = rulestore.Set{}
}

func (s *Store) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it will see this change too
	}
}

// run is the store's goroutine.
func (s *Store) run(ctx context.Context) {
	tidy(s.cfg.Path, time.Now())
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			select {
			case <-s.wake:
				s.write()
			default:
			}
			return
		}
		began := time.Now()
		s.write()
		rest := time.NewTimer(max(s.cfg.Every, restFactor*time.Since(began)))
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}

// write writes the set, unless it is what the file has.
func (s *Store) write() {
	s.mu.Lock()
	set := s.mirror.Set()
	is := content{set.Revision, set.Hash}
	same := is == s.onDisk
	s.mu.Unlock()
	if same {
		return
	}
	text, err := encode(s.cfg.Source, set, s.cfg.Now())
	if err == nil {
		err = replace(s.cfg.Path, text)
	}
	switch {
	case err == nil:
		s.mu.Lock()
		s.onDisk = is
		s.mu.Unlock()
		if s.failing {
			s.cfg.Log.Info("rules are kept on disk again", "file", s.cfg.Path)
		}
	case !s.failing:
		s.cfg.Log.Warn("the rules cannot be kept on disk; a restart while their source is away would find none, or old ones",
			"file", s.cfg.Path, "error", err)
	}
	if s.failing = err != nil; s.failing {
		s.wakeUp() // and once more, after the rest
	}
}
