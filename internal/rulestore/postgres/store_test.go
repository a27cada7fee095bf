package postgres_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tallygate/tallygate/internal/pgtest"
	"github.com/tallygate/tallygate/internal/rulestore/postgres"
	"github.com/tallygate/tallygate/internal/rulestore/rulestoretest"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
)

func TestMain(m *testing.M) {
	os.Exit(rulestoretest.Main(runner{m}, func(url string) (*sqldb.DB, error) {
		s, err := postgres.Open(context.Background(), postgres.Config{URL: url})
		if err != nil {
			return nil, err
		}
		return s.DB, nil
	}))
}

// runner runs the tests with the server they share.
type runner struct{ *testing.M }

func (r runner) Run() int { return pgtest.Main(r.M) }

// migrated makes the tables of the template.
func migrated(url string) error {
	s, err := postgres.Open(context.Background(), postgres.Config{URL: url})
	if err != nil {
		return err
	}
	return s.Close()
}

// open opens a store; it is closed with the test.
func open(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// raw opens a database without a store.
func raw(t testing.TB, url string) *sql.DB {
	t.Helper()
	conf, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*conf)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	rulestoretest.Run(t, func(t *testing.T) rulestoretest.Harness {
		t.Helper()
		url := pgtest.Database(t, migrated)
		return rulestoretest.Harness{
			Store: open(t, url).DB,
			Again: func(tb testing.TB) *sqldb.DB { tb.Helper(); return open(tb, url).DB },
			SQL:   func(tb testing.TB) *sql.DB { tb.Helper(); return raw(tb, url) },
			Name:  url,
		}
	})
}
