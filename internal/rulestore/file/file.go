// Package file serves a rules file, or a folder of them, as rules of record that nobody writes through
// an API: the file is edited, and read again within a second. It has no history
// and no audit; who kept the file's versions has them.
package file

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// Every is how often the file is looked at.
const Every = time.Second

// Config says what to serve.
type Config struct {
	// Source reads the file. Required.
	Source rules.Source
	// Every is the time between two looks; 0 means Every.
	Every time.Duration
	// Now is the clock that overrides end by; nil means time.Now.
	Now func() time.Time
}

// Store reads one file. It starts no goroutine and is safe for concurrent use.
type Store struct {
	rulestore.ReadOnly
	file *lines
}

// Wait implements rulestore.Waiter: it looks at the file again and again.
func (s *Store) Wait(ctx context.Context, since int64) error { return s.file.wait(ctx, since) }

// lines is the file as lines of a database.
type lines struct {
	every time.Duration
	now   func() time.Time

	mu      sync.Mutex // guards what follows
	source  rules.Source
	version rules.Version
	set     rulestore.Set
	before  rulestore.Set // what the file said before
}

// New returns a store that has read nothing yet.
func New(cfg Config) *Store {
	if cfg.Every == 0 {
		cfg.Every = Every
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{file: &lines{every: cfg.Every, now: cfg.Now, source: cfg.Source}}
	s.ReadOnly = rulestore.ReadOnly{
		Reader: s.file,
		Why:    "the rules are in a file: edit it, it is read again within a second; to change rules through the API start with --rules sqlite:… or postgres://…",
	}
	return s
}

// Whole returns what the file says. An error means that it cannot be read, or is
// faulty as a whole; a faulty rule is a row that cannot be read.
func (s *lines) Whole(ctx context.Context) (rulestore.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set, _, version, err := s.source.Load(ctx)
	if err != nil {
		return rulestore.Set{}, err
	}
	if version != s.version {
		next, err := s.rows(set, version)
		if err != nil {
			return rulestore.Set{}, err
		}
		s.before, s.set, s.version = s.set, next, version
	}
	out := s.set
	out.Now = s.now()
	return out, nil
}

// unreadable stands for what is in the file and has faults.
const unreadable = `{"faulty in the file": true}`

// rows are the lines of a database that says the same as the file.
func (s *lines) rows(set rules.Set, version rules.Version) (rulestore.Set, error) {
	out := rulestore.Set{Revision: max(version.Revision, s.set.Revision+1)}
	at := time.UnixMilli(version.Revision).UTC()
	identity := map[string][]string{}
	for _, r := range set.Rules {
		body, err := json.Marshal(r)
		if err != nil {
			return out, err
		}
		identity[r.ID] = r.Identity
		out.Rules = append(out.Rules, rulestore.Rule{ID: r.ID, Version: 1, LiveVersion: 1, Revision: out.Revision, Live: body, ChangedAt: at})
	}
	for _, o := range set.Overrides {
		body, err := json.Marshal(o)
		if err != nil {
			return out, err
		}
		out.Overrides = append(out.Overrides, rulestore.Override{
			Rule: o.Rule, Key: o.Key, ID: rulestore.KeyID(identity[o.Rule], o.Key), Body: body, Version: 1, Revision: out.Revision, ChangedAt: at,
		})
	}
	for _, ref := range set.Unread {
		if ref.Key != nil {
			out.Overrides = append(out.Overrides, rulestore.Override{
				Rule: ref.Rule, Key: ref.Key, ID: rulestore.KeyID(identity[ref.Rule], ref.Key), Body: json.RawMessage(unreadable), Version: 1, Revision: out.Revision, ChangedAt: at,
			})
			continue
		}
		out.Rules = append(out.Rules, rulestore.Rule{ID: ref.Rule, Version: 1, LiveVersion: 1, Revision: out.Revision, Live: json.RawMessage(unreadable), ChangedAt: at})
	}
	out.Sort()
	out.Rules = slices.CompactFunc(out.Rules, func(a, b rulestore.Rule) bool { return a.ID == b.ID })
	out.Overrides = slices.CompactFunc(out.Overrides, func(a, b rulestore.Override) bool { return a.Rule == b.Rule && a.ID == b.ID })
	out.Hash = rulestore.Digest(out.Rules, out.Overrides)
	return out, nil
}

// Since returns everything where anything changed, the lines that are gone as
// tombstones: a file does not say what changed.
func (s *lines) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	set, err := s.Whole(ctx)
	if err != nil {
		return rulestore.Changes{}, err
	}
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	out := rulestore.Changes{Revision: set.Revision, Now: set.Now}
	if revision >= set.Revision {
		return out, nil
	}
	if revision != before.Revision { // an older state, of which nothing is known
		out.Revision = min(out.Revision, revision-1)
		return out, nil
	}
	out.Rules = append(out.Rules, set.Rules...)
	for _, r := range before.Rules {
		if _, found := slices.BinarySearchFunc(set.Rules, r.ID, byID); !found {
			out.Rules = append(out.Rules, rulestore.Rule{ID: r.ID, Version: r.Version + 1, Revision: set.Revision, Deleted: true, ChangedAt: set.Now})
		}
	}
	out.Overrides = append(out.Overrides, set.Overrides...)
	for _, o := range before.Overrides {
		if !slices.ContainsFunc(set.Overrides, func(n rulestore.Override) bool { return n.Rule == o.Rule && n.ID == o.ID }) {
			o.Deleted, o.Revision, o.Version = true, set.Revision, o.Version+1
			out.Overrides = append(out.Overrides, o)
		}
	}
	return out, nil
}

func byID(r rulestore.Rule, id string) int {
	switch {
	case r.ID < id:
		return -1
	case r.ID > id:
		return 1
	default:
		return 0
	}
}

// wait looks at the file again and again until it says something else.
func (s *lines) wait(ctx context.Context, since int64) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		if set, err := s.Whole(ctx); err == nil && set.Revision != since {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
