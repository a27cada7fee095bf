package kept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
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

// maxChanged bounds the changed rows that wait to be written; with more, all is written
// anew.
const maxChanged = 10_000

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

// Store is a rulestore.Reader that keeps what it read: on disk, and in memory no longer
// than until it is there.
//
//	New ─► Start (one goroutine) ─► Close, which writes what is not written yet
type Store struct {
	cfg  Config
	wake chan struct{} // there is something to write

	failing bool // of the goroutine: the last write did
	loop    loop.Loop

	mu sync.Mutex // guards what follows
	// has says that it is known what is to be kept: what is on disk, or in whole where
	// that is not written yet, and what changed since. It leads to is, whose hash may be
	// unknown.
	has     bool
	is      content
	whole   *rulestore.Set
	changed rulestore.Changes
	onDisk  content

	answered  bool // the reader has answered once
	looked    bool // at the file, and found what follows
	fileErr   error
	writtenAt time.Time
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
	s.takeLocked(set)
	return set, nil
}

// takeLocked takes everything, to be written.
func (s *Store) takeLocked(set rulestore.Set) {
	s.has, s.is, s.whole, s.changed = true, content{set.Revision, set.Hash}, &set, rulestore.Changes{}
	s.wakeUp()
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
	if s.has && changes.Revision > s.is.revision && !changes.Forgotten { // else all of it is asked for next
		s.changeLocked(revision, changes)
	}
	return changes, nil
}

// changeLocked takes what changed since a revision, to be written.
func (s *Store) changeLocked(revision int64, changes rulestore.Changes) {
	gap := revision > s.is.revision
	s.is = content{changes.Revision, changes.Hash}
	s.changed.Rules = append(s.changed.Rules, changes.Rules...)
	s.changed.Overrides = append(s.changed.Overrides, changes.Overrides...)
	if gap || len(s.changed.Rules)+len(s.changed.Overrides) > maxChanged {
		s.forgetLocked()
	}
	s.wakeUp()
}

// forgetLocked drops what was to be written: the goroutine asks for all of it.
func (s *Store) forgetLocked() { s.has, s.whole, s.changed = false, nil, rulestore.Changes{} }

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
	var file rulestore.Set
	file, s.writtenAt, s.fileErr = load(s.cfg.Path, s.cfg.Source)
	now := s.cfg.Now()
	if !s.looked {
		s.looked = true
		switch {
		case errors.Is(s.fileErr, fs.ErrNotExist):
		case s.fileErr != nil:
			s.cfg.Log.Warn("the snapshot of rules on disk is not used", "file", s.cfg.Path, "why", s.fileErr)
		default:
			s.cfg.Log.Warn("the rules of record do not answer; starting with the last good snapshot on disk",
				"error", cause, "file", s.cfg.Path, "age", now.Sub(s.writtenAt).Round(time.Second), "revision", file.Revision)
		}
	}
	if s.fileErr != nil {
		return rulestore.Set{}, fmt.Errorf("%w; and there is no snapshot on disk to start with: %w", cause, s.fileErr)
	}
	s.onDisk = content{file.Revision, file.Hash}
	s.has, s.is = true, s.onDisk
	file.Now = now // ours, as long as we do not know theirs
	return file, nil
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
				s.write(ctx)
			default:
			}
			return
		}
		began := time.Now()
		s.write(ctx)
		rest := time.NewTimer(max(s.cfg.Every, restFactor*time.Since(began)))
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}

// write writes what is to be kept, unless the file has it, and says so once where that
// fails.
func (s *Store) write(ctx context.Context) {
	err := s.ask(ctx)
	if err == nil {
		err = s.replace()
	}
	switch {
	case err == nil && s.failing:
		s.cfg.Log.Info("rules are kept on disk again", "file", s.cfg.Path)
	case err != nil && !s.failing && ctx.Err() == nil:
		s.cfg.Log.Warn("the rules cannot be kept on disk; a restart while their source is away would find none, or old ones",
			"file", s.cfg.Path, "error", err)
	}
	if s.failing = err != nil; s.failing {
		s.wakeUp() // and once more, after the rest
	}
}

// ask asks for everything, where it is not known any more.
func (s *Store) ask(ctx context.Context) error {
	s.mu.Lock()
	has := s.has
	s.mu.Unlock()
	if has {
		return nil
	}
	set, err := s.cfg.Reader.Whole(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has {
		s.takeLocked(set)
	}
	return nil
}

// replace writes the file.
func (s *Store) replace() error {
	s.mu.Lock()
	has, is, whole, changed, was := s.has, s.is, s.whole, s.changed, s.onDisk
	s.mu.Unlock()
	var err error
	if has && is != was {
		is, err = s.put(is, was, whole, changed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, errOtherFile) && s.whole == nil {
		s.forgetLocked()
	}
	if err != nil || !has {
		return err
	}
	s.onDisk = is
	if s.has && s.whole == whole { // else there is another one already, to be written next
		s.whole = nil
		s.changed.Rules = slices.Clone(s.changed.Rules[len(changed.Rules):])
		s.changed.Overrides = slices.Clone(s.changed.Overrides[len(changed.Overrides):])
	}
	return nil
}

// put writes everything, or what is on disk, with the changes after it, and returns what
// the file then is.
func (s *Store) put(is, was content, whole *rulestore.Set, changed rulestore.Changes) (content, error) {
	h := head{Source: s.cfg.Source, Revision: is.revision, WrittenMS: s.cfg.Now().UnixMilli()}
	err := replace(s.cfg.Path, func(file *os.File) (err error) {
		h, err = fill(file, h, func(rule func(*rulestore.Rule), override func(*rulestore.Override)) error {
			if whole == nil {
				return merge(s.cfg.Path, s.cfg.Source, was, changed, rule, override)
			}
			wire.MergeEach(*whole, changed, rule, override)
			return nil
		})
		if err == nil && is.hash != "" && h.Hash != is.hash {
			err = errOtherFile
		}
		return err
	})
	return h.content(), err
}
