package feed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/pgtest"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/feed"
	"github.com/tallygate/tallygate/internal/rulestore/kept"
	"github.com/tallygate/tallygate/internal/rulestore/postgres"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
	"github.com/tallygate/tallygate/rules"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func body(id string, burst int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"id":%q,"match":{"plan":"free"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":%d}`, id, burst))
}

func apply(t testing.TB, db *sqldb.DB, changes ...rulestore.Change) int64 {
	t.Helper()
	applied, err := db.Apply(t.Context(), rulestore.Author{Who: "kim"}, changes...)
	if err != nil {
		t.Fatal(err)
	}
	return applied.Revision
}

// follower is a pod: a feed's client, its snapshot on disk, its rules.
type follower struct {
	source  *rulestore.Source
	watcher *rules.Watcher
	stop    func()
}

func follow(t testing.TB, url, path string) *follower {
	t.Helper()
	c := client(t, url, nil)
	disk, err := kept.New(kept.Config{Reader: c, Path: path, Source: kept.Identity(c.URL()), Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	disk.Start()
	f := &follower{source: rulestore.NewSource(rulestore.SourceConfig{Reader: disk})}
	if f.watcher, err = rules.NewWatcher(rules.WatcherConfig{Source: f.source, Every: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := f.watcher.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		rulestore.Follow(ctx, c, f.source, f.watcher.Reload)
	}()
	f.stop = func() {
		cancel()
		<-done
		_ = f.watcher.Close()
		_ = disk.Close()
	}
	t.Cleanup(f.stop)
	return f
}

// Whatever changes in a real database, a pod has its digest, by way of hub, HTTP and
// client.
func TestAPodHasWhatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *sqldb.DB{
		"SQLite": func(t *testing.T) *sqldb.DB {
			t.Helper()
			s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "rules.db")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s.DB
		},
		"PostgreSQL": func(t *testing.T) *sqldb.DB {
			t.Helper()
			s, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.Database(t, func(string) error { return nil })})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s.DB
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			apply(t, db, rulestore.Change{Action: rulestore.ActionPut, Body: body("a", 10)})
			h, err := feed.NewHub(feed.HubConfig{Reader: db, Waiter: db})
			if err != nil {
				t.Fatal(err)
			}
			h.Start()
			server := serve(t, h)
			await.That(t, "the hub is ready", h.Ready)
			pod := follow(t, server.URL, filepath.Join(t.TempDir(), "snapshot"))
			override := json.RawMessage(`{"rule":"a","key":"<k>","burst":50}`)
			for i, changes := range [][]rulestore.Change{
				{{Action: rulestore.ActionPut, Body: body("b", 10)}, {Action: rulestore.ActionOverride, Body: override}},
				{{Action: rulestore.ActionPropose, Body: body("a", 5), IfMatch: 1}},
				{{Action: rulestore.ActionCanary, Rule: "a", Percent: 5, IfMatch: 2}},
				{{Action: rulestore.ActionReset, Rule: "a", Key: []string{"k"}}},
				{{Action: rulestore.ActionLift, Rule: "a", Key: []string{"<k>"}, IfMatch: 1}},
				{{Action: rulestore.ActionPromote, Rule: "a", IfMatch: 3}},
				{{Action: rulestore.ActionDelete, Rule: "b", IfMatch: 1}},
			} {
				revision := apply(t, db, changes...)
				await.That(t, fmt.Sprintf("change %d on the pod", i), func() bool { return pod.source.Revision() == revision })
				whole, err := db.Whole(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if got := h.Set().Hash; got != whole.Hash {
					t.Errorf("after change %d the hub has another digest", i)
				}
				set, err := client(t, server.URL, nil).Whole(t.Context())
				if err != nil || set.Hash != whole.Hash {
					t.Errorf("after change %d a new pod gets another digest: %v", i, err)
				}
			}
			if lim, _ := pod.watcher.Snapshot().Rule("a").Effective("k", time.Now()); lim.Burst != 5 {
				t.Errorf("burst %d in force, want the promoted 5", lim.Burst)
			}
		})
	}
}

// The database is killed: pods that run and pods that start have their rules. Then the
// control plane goes as well: a pod that is restarted has its snapshot on disk. Once
// all are back a change arrives.
func TestOutages(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	open := func() *postgres.Store {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: pg.URL("postgres", "postgres")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	db := open()
	first := apply(t, db.DB, rulestore.Change{Action: rulestore.ActionPut, Body: body("a", 10)})
	h := startStoreHub(t, db)
	server := serve(t, h)
	path := filepath.Join(t.TempDir(), "snapshot")
	pod := follow(t, server.URL, path)

	pg.Kill()
	if newcomer := follow(t, server.URL, filepath.Join(t.TempDir(), "snapshot")); newcomer.source.Revision() != first {
		t.Errorf("a pod that starts has revision %d", newcomer.source.Revision())
	}
	await.That(t, "the snapshot on disk", func() bool { _, err := os.Stat(path); return err == nil })
	pod.stop()
	url := server.URL
	_ = h.Close()
	server.Close()
	restarted := follow(t, url, path)
	if restarted.watcher.Snapshot().Rule("a") == nil || restarted.source.Revision() != first {
		t.Fatalf("a pod restarted without a control plane has revision %d", restarted.source.Revision())
	}

	if err := pg.Start(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the database answers", func() bool { _, err := db.Whole(t.Context()); return err == nil })
	second := apply(t, db.DB, rulestore.Change{Action: rulestore.ActionPut, Body: body("a", 20), IfMatch: 1})
	listen(t, url, startStoreHub(t, db))
	// The pod has the rows before its watcher has compiled them.
	await.That(t, "the change in force on the restarted pod", func() bool {
		lim, _ := restarted.watcher.Snapshot().Rule("a").Effective("k", time.Now())
		return lim.Burst == 20
	})
	if got := restarted.source.Revision(); got != second {
		t.Errorf("revision %d, want %d", got, second)
	}
}

func startStoreHub(t testing.TB, db *postgres.Store) *feed.Hub {
	t.Helper()
	h, err := feed.NewHub(feed.HubConfig{Reader: db, Waiter: db, Resync: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	h.Start()
	t.Cleanup(func() { _ = h.Close() })
	await.That(t, "the hub is ready", h.Ready)
	return h
}
