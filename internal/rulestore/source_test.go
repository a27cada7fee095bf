package rulestore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// fixed is a reader of what a test puts there.
type fixed struct {
	set     rulestore.Set
	changes rulestore.Changes
	// took is what each request takes on now, of which the store's clock is ahead.
	now         *time.Time
	took, ahead time.Duration
}

func (f *fixed) ask() time.Time {
	if f.now == nil {
		return time.Time{}
	}
	middle := f.now.Add(f.took / 2)
	*f.now = f.now.Add(f.took)
	return middle.Add(f.ahead)
}

func (f *fixed) Whole(context.Context) (rulestore.Set, error) {
	set := f.set
	set.Now = f.ask()
	return set, nil
}

func (f *fixed) Since(context.Context, int64) (rulestore.Changes, error) {
	changes := f.changes
	changes.Now = f.ask()
	return changes, nil
}

func TestOffsetIsThatOfTheQuickestRecentAnswer(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	reader := &fixed{now: &now}
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: reader, Now: func() time.Time { return now }, WholeEvery: 24 * time.Hour})
	for i, step := range []struct{ took, ahead, pause, want time.Duration }{
		{2 * time.Second, 5 * time.Second, time.Second, 5 * time.Second},
		{10 * time.Millisecond, 300 * time.Millisecond, time.Second, 300 * time.Millisecond},
		{time.Second, 700 * time.Millisecond, time.Second, 300 * time.Millisecond}, // slow: it says little
		{time.Second, -time.Hour, time.Second, -time.Hour},                         // a clock was set: slow or not
		{9 * time.Millisecond, 301 * time.Millisecond, time.Hour, 301 * time.Millisecond},
		{time.Second, 400 * time.Millisecond, time.Second, 400 * time.Millisecond}, // the others are old
	} {
		reader.took, reader.ahead = step.took, step.ahead
		if _, err := source.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := source.Offset(); got != step.want {
			t.Errorf("after answer %d: offset %v, want %v", i+1, got, step.want)
		}
		now = now.Add(step.pause)
	}
}

// The key of an override may be spelt otherwise, or be another row's: what was there
// before goes.
func TestSourceTellsWhatIsGone(t *testing.T) {
	t.Parallel()
	row := func(key string, version int64) rulestore.Override {
		text, err := json.Marshal(map[string]any{"rule": "r", "key": key, "burst": 5})
		if err != nil {
			t.Fatal(err)
		}
		return rulestore.Override{Rule: "r", ID: rulestore.KeyID([]string{"ip"}, []string{key}), Key: []string{key}, Body: text, Version: version}
	}
	reader := &fixed{set: rulestore.Set{Revision: 1, Overrides: []rulestore.Override{row("192.0.2.1", 1), row("192.0.2.2", 1), row("192.0.2.3", 1)}}}
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: reader})
	first, err := source.Next(t.Context())
	if err != nil || first.Set == nil || len(first.Set.Overrides) != 3 {
		t.Fatalf("got %+v, %v", first, err)
	}
	tombstone := row("192.0.2.2", 2)
	tombstone.Deleted = true
	reader.changes = rulestore.Changes{Revision: 2, Overrides: []rulestore.Override{row("::ffff:192.0.2.1", 2), tombstone}}
	second, err := source.Next(t.Context())
	if err != nil || second.Delta == nil {
		t.Fatalf("got %+v, %v", second, err)
	}
	want := []rules.Ref{{Rule: "r", Key: []string{"192.0.2.1"}}, {Rule: "r", Key: []string{"192.0.2.2"}}}
	same := func(a, b rules.Ref) bool { return a.Rule == b.Rule && slices.Equal(a.Key, b.Key) }
	if !slices.EqualFunc(second.Delta.Gone, want, same) || len(second.Delta.Overrides) != 1 || second.Delta.Overrides[0].Key[0] != "::ffff:192.0.2.1" {
		t.Errorf("got %+v", second.Delta)
	}
	if hash := rulestore.Digest(nil, []rulestore.Override{row("192.0.2.3", 1), row("::ffff:192.0.2.1", 2)}); second.Version.Content != hash {
		t.Errorf("the sum that follows changes is %s, that of all rows %s", second.Version.Content, hash)
	}
}

const (
	scaleRules     = 1_000
	scaleOverrides = 100_000
	scaleHeapMB    = 45 // of all that follows a database
)

// TestScale logs (-v) what following 1,000 rules and 100,000 overrides costs from the
// rows to the snapshot, and bounds the memory.
func TestScale(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("reads 100,000 overrides")
	}
	before := heapMB()
	reader := &fixed{set: largeSet(t)}
	now := time.Now()
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: reader, Now: func() time.Time { return now }})
	w, err := rules.NewWatcher(rules.WatcherConfig{Source: source, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	began := time.Now()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("first load:           %v", time.Since(began))
	var times []time.Duration
	for i := range int64(21) {
		row := reader.set.Overrides[500]
		row.Version, row.Revision = 2+i, 2+i
		row.Body = body(t, rules.Override{Rule: row.Rule, Key: row.Key, Numbers: rules.Numbers{Burst: 900 + i}})
		reader.changes = rulestore.Changes{Revision: 2 + i, Overrides: []rulestore.Override{row}}
		began = time.Now()
		if err := w.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(began))
		reader.set.Overrides[500], reader.set.Revision = row, row.Revision
	}
	slices.Sort(times)
	t.Logf("change of an override: best %v, median %v", times[0], times[len(times)/2])
	now = now.Add(2 * rulestore.WholeEvery)
	began = time.Now()
	if err := w.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("comparing everything: %v", time.Since(began))
	key := reader.set.Overrides[500].Key[0]
	id := reader.set.Overrides[500].Rule
	reader.set = rulestore.Set{}
	got := heapMB() - before
	t.Logf("heap:                 %d MB", got)
	if got > scaleHeapMB {
		t.Errorf("%d MB of heap, want at most %d", got, scaleHeapMB)
	}
	if lim, _ := w.Snapshot().Rule(id).Effective(key, now); lim.Burst != 920 || w.Snapshot().Revision() != 22 {
		t.Errorf("burst %d at revision %d, want the last change's 920 at 22", lim.Burst, w.Snapshot().Revision())
	}
}

func largeSet(t *testing.T) rulestore.Set {
	t.Helper()
	set := rulestore.Set{Revision: 1}
	for i := range scaleRules {
		id := fmt.Sprintf("rule-%05d", i)
		r := rule(id, 200)
		r.Identity, r.Match, r.CoversAll = []string{"api_key"}, map[string]string{"plan": fmt.Sprint("plan-", i)}, false
		set.Rules = append(set.Rules, rulestore.Rule{ID: id, Live: body(t, r), Version: 1, Revision: 1})
		for j := range scaleOverrides / scaleRules {
			o := rules.Override{
				Rule: id, Key: []string{fmt.Sprintf("acct_%d_%d", i, j)}, Numbers: rules.Numbers{Burst: 400}, Reason: "launch week", Owner: "kim",
			}
			if j%4 == 0 {
				o.ExpiresAt = time.Now().Add(time.Hour).Truncate(time.Second)
			}
			set.Overrides = append(set.Overrides, rulestore.Override{
				Rule: id, Key: o.Key, ID: rulestore.KeyID(r.Identity, o.Key), Body: body(t, o), Version: 1, Revision: 1,
			})
		}
	}
	set.Sort()
	return set
}

func heapMB() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) >> 20
}

// Where the digest says that changes do not lead to what there is, everything is read;
// where that does not help, not again for a while.
func TestSourceComparesByDigest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	row := func(version int64) rulestore.Rule {
		return rulestore.Rule{ID: "a", Version: version, Live: body(t, rule("a", 10*version))}
	}
	whole := func(revision, version int64) rulestore.Set {
		list := []rulestore.Rule{row(version)}
		return rulestore.Set{Revision: revision, Rules: list, Hash: rulestore.Digest(list, nil)}
	}
	reset := func(revision int64) rulestore.Reset {
		return rulestore.Reset{Rule: "a", Key: []string{"k"}, Revision: revision}
	}
	reader := &counting{}
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: reader, Now: func() time.Time { return now }})
	for _, tt := range []struct {
		name    string
		set     rulestore.Set
		changes rulestore.Changes
		after   time.Duration
		wholes  int
		resets  int
	}{
		{"the first load", whole(1, 1), rulestore.Changes{}, 0, 1, 0},
		{"no change, for long", whole(1, 1), rulestore.Changes{Revision: 1, Hash: whole(1, 1).Hash}, time.Hour, 0, 0},
		{"a change", whole(2, 2), rulestore.Changes{Revision: 2, Hash: whole(2, 2).Hash, Rules: []rulestore.Rule{row(2)}}, time.Second, 0, 0},
		{"forgotten", whole(9, 3), rulestore.Changes{Revision: 9, Forgotten: true, Hash: whole(9, 3).Hash, Resets: []rulestore.Reset{reset(8)}}, time.Second, 1, 1},
		{"another digest", whole(9, 4), rulestore.Changes{Revision: 9, Hash: whole(9, 4).Hash}, time.Second, 1, 0},
		{"again, at once", whole(9, 4), rulestore.Changes{Revision: 9, Hash: "of a version to come"}, time.Second, 0, 0},
		{"again, later", whole(9, 4), rulestore.Changes{Revision: 9, Hash: "of a version to come"}, rulestore.WholeEvery, 1, 0},
	} {
		now = now.Add(tt.after)
		before := reader.wholes
		reader.set, reader.changes = tt.set, tt.changes
		update, err := source.Next(t.Context())
		if err != nil || reader.wholes-before != tt.wholes || source.Revision() != tt.set.Revision {
			t.Errorf("%s: %d questions for everything, at revision %d, %v; want %d at %d",
				tt.name, reader.wholes-before, source.Revision(), err, tt.wholes, tt.set.Revision)
		}
		if update.Delta != nil && (update.Version.Content != tt.set.Hash || len(update.Delta.Resets) != tt.resets) {
			t.Errorf("%s: got %+v, want hash %s and %d resets", tt.name, update, tt.set.Hash, tt.resets)
		}
	}
}

// counting counts questions for everything.
type counting struct {
	fixed
	wholes int
}

func (c *counting) Whole(ctx context.Context) (rulestore.Set, error) {
	c.wholes++
	return c.fixed.Whole(ctx)
}
