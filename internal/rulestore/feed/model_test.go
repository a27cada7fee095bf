package feed_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// watcher is one that asks from time to time, and keeps a copy.
type watcher struct {
	mirror rulestore.Set
	resets []int64 // revisions of the resets it was told
}

// ask asks the hub and follows the answer.
func (w *watcher) ask(t *rapid.T, h *feed.Hub) {
	since := w.mirror.Revision
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/v1/changes?since=%d", since), nil))
	var a wire.Answer
	if err := a.Decode(json.NewDecoder(recorder.Body)); err != nil || recorder.Code != http.StatusOK {
		t.Fatalf("%d %s", recorder.Code, recorder.Body)
	}
	list, overrides, resets := a.Rules, a.Overrides, a.Resets
	if a.Whole {
		w.mirror = rulestore.Set{Revision: a.Revision, Hash: a.Hash, Rules: list, Overrides: overrides}
	} else {
		w.mirror = wire.Merge(w.mirror, rulestore.Changes{Revision: a.Revision, Rules: list, Overrides: overrides})
	}
	if got := w.mirror; got.Hash != a.Hash || got.Revision != a.Revision || got.Hash != h.Set().Hash {
		t.Fatalf("since %d (whole %v) the copy is %+v; want %+v", since, a.Whole, got, h.Set())
	}
	for _, reset := range resets {
		if reset.Revision > since {
			w.resets = append(w.resets, reset.Revision)
		}
	}
}

// Whoever asks, however rarely, has the set after each answer, and is told each reset
// that is remembered once.
func TestRandomHistoriesOfAHub(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := newDatabase()
		d.put("a", 1)
		keep := rapid.IntRange(1, 12).Draw(t, "keep")
		h, err := feed.NewHub(feed.HubConfig{Reader: d, Waiter: d, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		h.Start()
		defer h.Close()
		caught := func(revision int64) {
			for late := time.Now().Add(10 * time.Second); h.Revision() != revision; time.Sleep(10 * time.Microsecond) {
				if time.Now().After(late) {
					t.Fatalf("the hub is at %d, want %d", h.Revision(), revision)
				}
			}
		}
		caught(1)
		watchers := make([]watcher, 3)
		var resets []int64
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		for version := int64(2); version < 25; version++ {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				caught(d.remove(name.Draw(t, "rule"), version))
			case 1:
				revision := d.reset("a", "k")
				resets = append(resets, revision)
				caught(revision)
			case 2:
				d.put(name.Draw(t, "rule"), version) // the hub may see two at once
				caught(d.put(name.Draw(t, "rule"), version))
			case 3, 4:
				watchers[rapid.IntRange(0, 2).Draw(t, "watcher")].ask(t, h)
			default:
				caught(d.put(name.Draw(t, "rule"), version))
			}
			watchers[0].ask(t, h) // always up to date
		}
		if !slices.Equal(watchers[0].resets, resets) {
			t.Fatalf("told of resets at %v, want %v", watchers[0].resets, resets)
		}
		for i := range watchers {
			watchers[i].ask(t, h)
			if got := watchers[i].resets; !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Fatalf("told of resets at %v: one twice", got)
			}
		}
	})
}
