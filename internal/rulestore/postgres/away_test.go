package postgres_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/pgtest"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/postgres"
	"github.com/tallygate/tallygate/rules"
)

func put(burst int, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionPut, IfMatch: ifMatch, Body: json.RawMessage(
		`{"id":"a","match":{"plan":"free"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":` + strconv.Itoa(burst) + `}`)}
}

func apply(t testing.TB, s *postgres.Store, c rulestore.Change) rulestore.Applied {
	t.Helper()
	applied, err := s.Apply(t.Context(), rulestore.Author{Who: "kim"}, c)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

// A listener whose connection is cut misses what is notified meanwhile; the wait
// still ends, and well before it would by looking alone once it listens again.
func TestListenerIsCut(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, migrated)
	reader, writer := open(t, url), open(t, url)
	since := apply(t, writer, put(1, 0)).Revision
	db := raw(t, url)
	number := func(query string) (n int) {
		if err := db.QueryRow(query + ` FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN tallygate_rules'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for version := int64(1); version <= 2; version++ {
		await.That(t, "both listen", func() bool { return number(`SELECT count(*)`) == 2 })
		number(`SELECT count(pg_terminate_backend(pid))`)
		start := time.Now()
		since2 := apply(t, writer, put(2, version)).Revision
		if err := reader.Wait(t.Context(), since); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the change was seen after %s", took)
		}
		since = since2
	}
}

// While the server is away the last good rules stay; after it is back a change
// arrives by itself.
func TestServerIsAway(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	store := open(t, server.URL("postgres", "postgres"))
	apply(t, store, put(1, 0))
	source := rulestore.NewSource(rulestore.SourceConfig{Reader: store})
	watcher, err := rules.NewWatcher(rules.WatcherConfig{Source: source, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		rulestore.Follow(ctx, store, source, watcher.Reload)
	}()
	defer func() { cancel(); <-done; _ = watcher.Close() }()

	server.Kill()
	if err := watcher.Reload(t.Context()); err == nil || watcher.Snapshot().Rule("a") == nil {
		t.Errorf("got %v; want an error, and the rule still there", err)
	}
	_, err = store.Apply(t.Context(), rulestore.Author{Who: "kim"}, put(2, 1))
	if err == nil || rulestore.CodeOf(err) != "" {
		t.Errorf("got %v; want an error that is no answer", err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	applied := apply(t, store, put(2, 1))
	await.That(t, "the change", func() bool { return watcher.Snapshot().Revision() == applied.Revision })
}

// The two roles of docs/deployment.md: the reader reads and follows, and can change nothing.
func TestRoles(t *testing.T) {
	t.Parallel()
	server := pgtest.New(t)
	if err := server.SQL("postgres",
		`CREATE ROLE tallygate_writer LOGIN`,
		`CREATE ROLE tallygate_reader LOGIN`,
		`CREATE DATABASE tallygate OWNER tallygate_writer`); err != nil {
		t.Fatal(err)
	}
	readerURL := server.URL("tallygate_reader", "tallygate")
	if s, err := postgres.Open(t.Context(), postgres.Config{URL: readerURL}); err == nil {
		_ = s.Close()
		t.Error("a reader could open a database without tables")
	}
	writer := open(t, server.URL("tallygate_writer", "tallygate"))
	if err := server.SQL("tallygate",
		`GRANT SELECT ON ALL TABLES IN SCHEMA public TO tallygate_reader`); err != nil {
		t.Fatal(err)
	}
	reader := open(t, readerURL)
	since := apply(t, writer, put(1, 0)).Revision
	if set, err := reader.Whole(t.Context()); err != nil || len(set.Rules) != 1 {
		t.Errorf("got %+v, %v", set, err)
	}
	if _, err := reader.Apply(t.Context(), rulestore.Author{Who: "kim"}, put(2, 1)); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("got %v, want permission denied", err)
	}
	apply(t, writer, put(2, 1))
	if err := reader.Wait(t.Context(), since); err != nil {
		t.Error(err)
	}
}

// A writer that stands still inside its transaction loses it, so that the others
// wait for seconds and not for ever.
func TestWriterStandsStill(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, migrated)
	store := open(t, url)
	db := raw(t, url+"&idle_in_transaction_session_timeout=1000")
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`SELECT revision FROM revision WHERE id = 1 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	apply(t, store, put(1, 0))
}

// No error shows a password.
func TestErrorsShowNoPassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://kim:s3cret@127.0.0.1:1/db?connect_timeout=1", "postgres://kim:s3cret@127.0.0.1:port/db", "postgres://kim:s3cret@[::1/db",
		"postgres://kim@127.0.0.1:1/db?password=s3cret&connect_timeout=1", "postgres://kim:s3cret@127.0.0.1:1/db?sslmode=s3cret",
	} {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: opened", url)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows it: %v", url, err)
		}
	}
}
