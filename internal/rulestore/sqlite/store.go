// Package sqlite keeps the rules of record in one file, for a single machine:
// several processes on it may share the file, and it must not lie on a network
// file system. Writers go through one connection whose transactions are immediate,
// so that none begins as a reader and fails with BUSY when it wants to write;
// readers have connections of their own and never wait for a writer (WAL).
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// busy is how long a writer waits for one of another process: SQLite's lock is
	// not fair, and 50 writers in turn take less than a second.
	busy = 10 * time.Second
	// poll is how often a wait looks for changes of other processes; it costs one
	// read of one cached page.
	poll = 500 * time.Millisecond
	// readers bounds the connections for reading: each has a page cache of 2 MB.
	readers = 4
	// writeCacheKB is the page cache of the connection that writes: a bulk of 100,000
	// overrides is in an index at 1,000 places at once.
	writeCacheKB, readCacheKB = 16_000, 2_000
)

// Store is a database in a file. See package rulestore for what it can.
type Store struct{ *sqldb.DB }

// Config says which file.
type Config struct {
	// Path is the file; it is made if it is not there, its folder is not. Required.
	Path string
	// Now is the clock of changes; nil means time.Now.
	Now func() time.Time
}

// Open opens the file and brings its tables up to date.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Path == "" {
		return nil, errors.New("sqlite: the path is empty")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	write, err := pool(cfg.Path, "immediate", 1, writeCacheKB)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, write); err != nil {
		if _, missing := os.Stat(filepath.Dir(cfg.Path)); errors.Is(missing, fs.ErrNotExist) { // SQLite's words name no cause
			err = fmt.Errorf("there is no folder %s: make it, or name another file", filepath.Dir(cfg.Path))
		}
		return nil, fmt.Errorf("%s: %w", cfg.Path, errors.Join(err, write.Close()))
	}
	read, err := pool(cfg.Path, "deferred", readers, readCacheKB)
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	return &Store{sqldb.New(sqldb.Config{
		Write: write, Read: read,
		Lock:  `SELECT revision FROM revision WHERE id = 1`, // the transaction is immediate: it has the lock
		Busy:  isBusy,
		Table: table,
		Poll:  poll, Now: cfg.Now,
	})}, nil
}

// table returns rows as values. Their parameters have no names, as $1 is one: SQLite
// looks through all names for each.
func table(_ int, rows [][]any) (query string, params []any) {
	row := "(" + strings.Repeat("?,", len(rows[0])-1) + "?)"
	for _, cells := range rows {
		params = append(params, cells...)
	}
	return "VALUES " + strings.Repeat(row+",", len(rows)-1) + row, params
}

// isBusy reports whether an error is that of a writer whose turn did not come.
func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xFF == sqlite3.SQLITE_BUSY // the upper bits tell which kind
}

// pool opens connections that all have the settings of name.
func pool(path, lock string, most, cacheKB int) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(name(path, lock, cacheKB))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// name is what the driver calls a file by, with the settings that are a
// connection's and not the file's.
func name(path, lock string, cacheKB int) string {
	settings := url.Values{
		// busy_timeout first: the change to WAL needs a lock, too. FULL: what was
		// answered survives a loss of power.
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()), "journal_mode(WAL)", "synchronous(FULL)",
			fmt.Sprintf("cache_size(-%d)", cacheKB), // below 0 it is kB, not pages
		},
		"_txlock": {lock},
	}
	full := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: settings.Encode()}
	return full.String()
}

// migrate makes or changes the tables. Two processes may start at once: who comes
// second finds a table there, and looks again.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		if _, err = provider.Up(ctx); err == nil || try == 5 || ctx.Err() != nil {
			return err
		}
	}
}
