package kept_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/kept"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// history is a reader of sets, of which it is at one.
type history struct {
	at     atomic.Int64 // the revision
	sets   map[int64]rulestore.Set
	hashes bool // whether changes tell the digest
	wholes atomic.Int64
}

func (h *history) Whole(context.Context) (rulestore.Set, error) {
	h.wholes.Add(1)
	return h.sets[h.at.Load()], nil
}

func (h *history) Since(_ context.Context, revision int64) (rulestore.Changes, error) {
	now := h.sets[h.at.Load()]
	c := rulestore.Changes{Revision: now.Revision}
	if h.hashes {
		c.Hash = now.Hash
	}
	for _, r := range now.Rules {
		if r.Revision > revision {
			c.Rules = append(c.Rules, r)
		}
	}
	for _, o := range now.Overrides {
		if o.Revision > revision {
			c.Overrides = append(c.Overrides, o)
		}
	}
	for _, o := range h.sets[revision].Overrides {
		if !slices.ContainsFunc(now.Overrides, func(n rulestore.Override) bool { return n.ID == o.ID }) {
			c.Overrides = append(c.Overrides, rulestore.Override{Rule: o.Rule, ID: o.ID, Key: o.Key, Deleted: true})
		}
	}
	return c, nil
}

// drawHistory makes sets that follow from each other, of one rule and some overrides.
func drawHistory(t *rapid.T) *history {
	h := &history{sets: map[int64]rulestore.Set{}, hashes: rapid.Bool().Draw(t, "changes tell the digest")}
	before := set(1, 2)
	before.Overrides = nil
	before.Hash = rulestore.Digest(before.Rules, nil)
	h.sets[1] = before
	h.at.Store(1)
	for revision := int64(2); revision < 12; revision++ {
		change := rulestore.Changes{Revision: revision}
		if rapid.Bool().Draw(t, "the rule") {
			change.Rules = []rulestore.Rule{set(revision, 1).Rules[0]}
		}
		for _, key := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-e]`), 0, 3, rapid.ID).Draw(t, "keys") {
			change.Overrides = append(change.Overrides, rulestore.Override{
				Rule: "rule-000", Key: []string{key}, ID: `["` + key + `"]`, Body: []byte(`{"rule":"rule-000"}`), Version: revision, Revision: revision,
				Deleted: rapid.Bool().Draw(t, "gone"),
			})
		}
		before = wire.Merge(before, change)
		h.sets[revision] = before
	}
	return h
}

// However changes and writes fall, the file follows, and everything is asked for once.
func TestTheFileFollowsChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		waits := rapid.SliceOfN(rapid.IntRange(0, 3), 11, 11).Draw(rt, "waits")
		path := filepath.Join(dir, fmt.Sprint(rapid.Uint64().Draw(rt, "file")))
		defer func() { _ = os.Remove(path) }()
		synctest.Test(t, func(t *testing.T) {
			s := keep(t, h, path, func(c *kept.Config) { c.Every = time.Second })
			if _, err := s.Whole(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked := int64(1)
			for revision := int64(2); revision < 12; revision++ {
				h.at.Store(revision)
				if waits[revision-1] == 0 {
					continue // the next question is about more than one change
				}
				if _, err := s.Since(t.Context(), asked); err != nil {
					t.Fatal(err)
				}
				asked = revision
				time.Sleep(time.Duration(waits[revision-1]-1) * time.Second)
			}
			closed(t, s)
			if got, _, err := kept.Decode(source, read(t, path)); err != nil || got.Revision != asked || got.Hash != h.sets[asked].Hash {
				t.Errorf("revision %d, %v; want %d", got.Revision, err, asked)
			}
			if got := h.wholes.Load(); got != 1 {
				t.Errorf("%d questions for everything, want 1", got)
			}
		})
	})
}

// Where the file is another one, or changes do not lead to what there is, everything is
// asked for anew.
func TestTheFileIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		spoil func(path string, h *history) error
	}{
		{"the file is gone", func(path string, _ *history) error { return os.Remove(path) }},
		{"the file is damaged", func(path string, _ *history) error { return os.Truncate(path, 200) }},
		{"changed by hand before", func(_ string, h *history) error {
			hand := set(2, 3)
			hand.Rules[2].Revision = 1 // no change tells of it
			hand.Hash = rulestore.Digest(hand.Rules, hand.Overrides)
			h.sets[2] = hand
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			h := &history{sets: map[int64]rulestore.Set{1: set(1, 2), 2: set(2, 2)}, hashes: true}
			h.at.Store(1)
			synctest.Test(t, func(t *testing.T) {
				s := keep(t, h, path, func(c *kept.Config) { c.Every = time.Second })
				defer s.Close()
				if _, err := s.Whole(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if err := tt.spoil(path, h); err != nil {
					t.Fatal(err)
				}
				h.at.Store(2)
				if _, err := s.Since(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got, _, err := kept.Decode(source, read(t, path)); err != nil || got.Hash != h.sets[2].Hash || h.wholes.Load() != 2 {
					t.Errorf("revision %d after %d questions for everything, %v", got.Revision, h.wholes.Load(), err)
				}
			})
		})
	}
}

// What is on disk is not in memory as well.
func TestRowsAreNotHeld(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	r := &reader{set: set(1, 50)}
	s := keep(t, r, path, nil)
	if _, err := s.Whole(t.Context()); err != nil {
		t.Fatal(err)
	}
	row := weak.Make(&r.set.Rules[0])
	r.put(2, 1)
	deadline := time.Now().Add(10 * time.Second)
	for row.Value() != nil {
		if time.Now().After(deadline) {
			t.Fatal("rows that were read are still in memory")
		}
		runtime.GC()
		runtime.Gosched()
	}
	closed(t, s)
}
