// Package postgres keeps the rules of record in PostgreSQL 13 or later. A commit
// sends a NOTIFY, which wakes who waits; it is a hint and no more, since it is lost
// while a connection is away and behind poolers of transactions. The truth is the
// revision row, looked at after each connect and every five seconds.
//
// Two roles are enough: a writer, who owns the tables and whose first start makes
// them, and a reader, who may SELECT from them. See docs/deployment.md.
package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	// channel is that of the hints. The migrations need not know it.
	channel = "tallygate_rules"
	notify  = `SELECT pg_notify('` + channel + `', $1)`
	// poll is how often a wait looks without a hint.
	poll = 5 * time.Second
	// connections bounds those of one process beside the listener's: pods are many.
	connections = 4
	// connectTimeout bounds one attempt to connect; statementTimeout is how long a
	// statement may take, such as the wait for writers before it.
	connectTimeout   = 5 * time.Second
	statementTimeout = 10 * time.Second
	// idleTimeout ends the transaction of a process that stands still: it holds the
	// lock that all writers need.
	idleTimeout = 5 * time.Second
)

// What PostgreSQL says of a statement that took too long: query_canceled, and
// lock_not_available where the URL sets a lock_timeout.
const (
	queryCanceled    = "57014"
	lockNotAvailable = "55P03"
)

// Store is a database. See package rulestore for what it can.
type Store struct {
	*sqldb.DB
	stop context.CancelFunc
	done chan struct{}
}

// Config says which database.
type Config struct {
	// URL is postgres://user:password@host:port/database, with the parameters of libpq.
	// PGPASSFILE and the other variables of libpq hold for what it leaves out. Required.
	URL string
	// Now is the clock of changes; nil means time.Now.
	Now func() time.Time
	// Log is told when the listening connection is lost and found; nil means none.
	Log *slog.Logger
}

// Open connects, brings the tables up to date where they are not, and listens
// until Close. A role that may not change tables can open a database that is up to
// date. Errors show no password.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	conf, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, errors.New("postgres: the URL cannot be read") // the error may show parts of it
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if conf.ConnectTimeout == 0 || conf.ConnectTimeout > connectTimeout {
		conf.ConnectTimeout = connectTimeout
	}
	preset(conf.RuntimeParams, "application_name", "tallygate")
	preset(conf.RuntimeParams, "statement_timeout", ms(statementTimeout))
	preset(conf.RuntimeParams, "idle_in_transaction_session_timeout", ms(idleTimeout))
	db := stdlib.OpenDB(*conf)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	db.SetConnMaxIdleTime(time.Minute)
	if err := migrate(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	listening, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{stop: stop, done: make(chan struct{}), DB: sqldb.New(sqldb.Config{
		Write: db, Read: db,
		Snapshot: sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
		Lock:     `SELECT revision FROM revision WHERE id = 1 FOR UPDATE`,
		Busy:     busy,
		Table:    table,
		Notify:   notify,
		Poll:     poll, Now: cfg.Now,
		Clock: `CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)`,
	})}
	l := listener{conf: conf, hint: s.Hint, log: cfg.Log}
	go func() {
		defer close(s.done)
		l.run(listening)
	}()
	return s, nil
}

// Close ends the listener and closes all connections.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	return s.DB.Close()
}

// busy reports whether a statement waited too long, for the lock of another writer.
func busy(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == queryCanceled || e.Code == lockNotAvailable)
}

func preset(params map[string]string, name, value string) {
	if _, given := params[name]; !given {
		params[name] = value
	}
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// migrate makes or changes the tables, one process at a time. Where they are as
// this program knows them, or newer, it only looks: a reader may do no more.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithDisableGlobalRegistry(true), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	var there int64
	sources := provider.ListSources()
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&there)
	if err == nil && there >= sources[len(sources)-1].Version {
		return nil
	}
	if err := db.PingContext(ctx); err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("the tables are not up to date, and this role cannot change them: %w", err)
	}
	return nil
}
