package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	driver "modernc.org/sqlite"

	"github.com/tallygate/tallygate/internal/rulestore/rulestoretest"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
)

func TestMain(m *testing.M) {
	os.Exit(rulestoretest.Main(m, func(path string) (*sqldb.DB, error) {
		s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path})
		if err != nil {
			return nil, err
		}
		return s.DB, nil
	}))
}

// open opens the store of a file; it is closed with the test.
func open(t testing.TB, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
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

// raw opens a file without a store.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	connector, err := driver.NewConnector(sqlite.Name(path, "deferred", 2_000))
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	rulestoretest.Run(t, func(t *testing.T) rulestoretest.Harness {
		t.Helper()
		// A name that a URI would take apart.
		path := filepath.Join(t.TempDir(), "a b?c#d%41.db")
		return rulestoretest.Harness{
			Store: open(t, path).DB,
			Again: func(tb testing.TB) *sqldb.DB { tb.Helper(); return open(tb, path).DB },
			SQL:   func(tb testing.TB) *sql.DB { tb.Helper(); return raw(tb, path) },
			Name:  path,
		}
	})
}
