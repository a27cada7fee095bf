// Package sqldb is a store of rules of record (package rulestore) on an SQL
// database, for the packages sqlite and postgres: their queries are the same, and
// placeholders are $1 in both. A writing transaction locks the one row of table
// revision before it reads anything, so that writers go one after the other and
// revisions commit in their order; a reading one sees one moment.
package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Config says where the rules are. All fields are required but those that say so.
type Config struct {
	// Write and Read are the database, as two pools or one.
	Write, Read *sql.DB
	// Snapshot are the options of a transaction that sees one moment.
	Snapshot sql.TxOptions
	// Lock returns the revision and locks its row until the transaction ends.
	Lock string
	// Table returns rows of the same columns, texts, int64s and bools, as a query and its
	// parameters, which come after so many others.
	Table func(after int, rows [][]any) (query string, params []any)
	// Busy reports whether an error says that another writer holds the lock for long.
	Busy func(error) bool
	// Notify is run in each writing transaction with the revision as text, to wake
	// other processes. Optional.
	Notify string
	// Poll is how often Wait looks without a hint, give or take a fifth.
	Poll time.Duration
	// Now is the clock of changes.
	Now func() time.Time
	// Clock is an expression of the server's clock in Unix ms; "" means that Now is the
	// store's.
	Clock string
}

// DB is the store. It is safe for concurrent use.
type DB struct {
	cfg Config
	// writing has the one writer of this process that is at work.
	writing chan struct{}

	mu   sync.Mutex    // guards hint
	hint chan struct{} // closed by the next Hint
}

var (
	_ rulestore.Reader    = (*DB)(nil)
	_ rulestore.Waiter    = (*DB)(nil)
	_ rulestore.Writer    = (*DB)(nil)
	_ rulestore.Records   = (*DB)(nil)
	_ rulestore.Overrides = (*DB)(nil)
	_ rulestore.Historian = (*DB)(nil)
	_ rulestore.Auditor   = (*DB)(nil)
)

// New returns the store on a database whose tables are there.
func New(cfg Config) *DB {
	return &DB{cfg: cfg, writing: make(chan struct{}, 1), hint: make(chan struct{})}
}

// Close closes the pools. Waits under way end with their contexts.
func (d *DB) Close() error { return errors.Join(d.cfg.Read.Close(), d.cfg.Write.Close()) }

// Hint wakes all Waits: something may have changed.
func (d *DB) Hint() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.hint)
	d.hint = make(chan struct{})
}

// Wait implements rulestore.Waiter.
func (d *DB) Wait(ctx context.Context, since int64) error {
	for {
		d.mu.Lock()
		hint := d.hint // taken before the look, so that no change falls between
		d.mu.Unlock()
		var revision int64
		err := d.cfg.Read.QueryRowContext(ctx, queryRevision).Scan(&revision)
		if err == nil && revision != since {
			return nil
		}
		pause := time.NewTimer(time.Duration(float64(d.cfg.Poll) * (0.8 + 0.4*rand.Float64())))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-hint:
		case <-pause.C: // also where the database was away: the next look may find it
		}
		pause.Stop()
	}
}

// view runs f in a transaction that sees one moment.
func (d *DB) view(ctx context.Context, f func(*sql.Tx) error) error {
	options := d.cfg.Snapshot
	tx, err := d.cfg.Read.BeginTx(ctx, &options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it wrote nothing
	return f(tx)
}

// moment returns the revision, and the store's clock.
func (d *DB) moment(ctx context.Context, tx *sql.Tx) (revision int64, now time.Time, err error) {
	if d.cfg.Clock == "" {
		err = tx.QueryRowContext(ctx, queryRevision).Scan(&revision)
		return revision, d.cfg.Now(), err
	}
	var nowMS int64
	err = tx.QueryRowContext(ctx, `SELECT revision, `+d.cfg.Clock+` FROM revision WHERE id = 1`).Scan(&revision, &nowMS)
	return revision, time.UnixMilli(nowMS), err
}
