package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Apply implements rulestore.Writer.
func (d *DB) Apply(ctx context.Context, by rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	return d.write(ctx, by, changes, true)
}

// DryRun implements rulestore.Writer.
func (d *DB) DryRun(ctx context.Context, by rulestore.Author, changes ...rulestore.Change) (rulestore.Applied, error) {
	applied, err := d.write(ctx, by, changes, false)
	applied.Revision = 0
	return applied, err
}

func (d *DB) write(ctx context.Context, by rulestore.Author, changes []rulestore.Change, keep bool) (rulestore.Applied, error) {
	if err := by.Check(); err != nil {
		return rulestore.Applied{}, err
	}
	if n := len(changes); n == 0 || n > rulestore.MaxChanges {
		return rulestore.Applied{}, &rulestore.Error{Code: rulestore.Invalid, Message: fmt.Sprintf("a bulk has 1 to %d changes, not %d", rulestore.MaxChanges, n)}
	}
	changes = slices.Clone(changes)
	for i := range changes {
		if c := &changes[i]; c.Rule == "" && c.Action != rulestore.ActionOverride { // whose body is read for it
			c.Rule = idOf(c.Body)
		}
	}
	w := writer{table: d.cfg.Table, by: by, patterns: map[string]int{}, overrides: readOverrides(changes)} // before the lock that all wait for
	done, err := d.turn(ctx)
	if err != nil {
		return rulestore.Applied{}, err
	}
	defer done()
	tx, last, err := d.lock(ctx)
	if err != nil {
		return rulestore.Applied{}, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	w.tx, w.at = tx, d.cfg.Now().UTC().Truncate(time.Millisecond)
	w.revision = max(last+1, w.at.UnixMilli())
	applied := rulestore.Applied{Revision: w.revision, Results: make([]rulestore.Result, len(changes))}
	for i, c := range changes {
		if applied.Results[i], err = w.change(ctx, i, c); err != nil {
			return rulestore.Applied{}, placed(err, i, c)
		}
	}
	if err := w.flush(ctx); err != nil || !keep {
		return applied, err
	}
	return applied, d.commit(ctx, tx, w.revision)
}

// turnWithin is how long a writer of this process waits for those before it, as long
// as both databases have one wait for those of other processes.
const turnWithin = 10 * time.Second

// turn waits until no other writer of this process is at work: they would only hold
// connections until the database lets them in. done ends the turn.
func (d *DB) turn(ctx context.Context) (done func(), err error) {
	late := time.NewTimer(turnWithin)
	defer late.Stop()
	select {
	case d.writing <- struct{}{}:
		return func() { <-d.writing }, nil
	case <-late.C:
		return nil, rulestore.ErrBusy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lock begins the transaction and returns the last revision once no writer of another
// process is at work.
func (d *DB) lock(ctx context.Context) (tx *sql.Tx, last int64, err error) {
	tx, err = d.cfg.Write.BeginTx(ctx, nil)
	if err == nil {
		if err = tx.QueryRowContext(ctx, d.cfg.Lock).Scan(&last); err != nil {
			_ = tx.Rollback() // it wrote nothing
		}
	}
	if err != nil && d.cfg.Busy(err) {
		err = fmt.Errorf("%w: %w", rulestore.ErrBusy, err)
	}
	return tx, last, err
}

// commit makes a transaction count, under its revision.
func (d *DB) commit(ctx context.Context, tx *sql.Tx, revision int64) error {
	if _, err := tx.ExecContext(ctx, setRevision, revision); err != nil {
		return err
	}
	if d.cfg.Notify != "" {
		if _, err := tx.ExecContext(ctx, d.cfg.Notify, strconv.FormatInt(revision, 10)); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	d.Hint()
	return nil
}

// placed names the change that an error is of.
func placed(err error, index int, c rulestore.Change) error {
	if e, ok := errors.AsType[*rulestore.Error](err); ok {
		e.Index = index
		if e.Rule == "" {
			e.Rule = cmp.Or(c.Rule, idOf(c.Body))
		}
		if e.Key == nil {
			e.Key = c.Key
		}
	}
	return err
}

// writer makes the changes of one transaction.
type writer struct {
	tx       *sql.Tx
	table    func(after int, rows [][]any) (string, []any)
	by       rulestore.Author
	at       time.Time
	revision int64
	patterns map[string]int // of the rules that were given one
	overrides
}

func (w *writer) change(ctx context.Context, place int, c rulestore.Change) (rulestore.Result, error) {
	switch c.Action {
	case rulestore.ActionPut, rulestore.ActionPropose, rulestore.ActionCanary, rulestore.ActionPromote,
		rulestore.ActionRollback, rulestore.ActionShadow, rulestore.ActionEnforce, rulestore.ActionDelete:
		return w.rule(ctx, c)
	case rulestore.ActionOverride, rulestore.ActionLift:
		return w.override(ctx, place, c)
	case rulestore.ActionReset:
		return rulestore.Result{}, w.reset(ctx, c)
	}
	return rulestore.Result{}, &rulestore.Error{Code: rulestore.Invalid, Message: "there is no action " + strconv.Quote(string(c.Action))}
}

// rule changes a rule.
func (w *writer) rule(ctx context.Context, c rulestore.Change) (rulestore.Result, error) {
	now, err := w.find(ctx, c.Rule)
	if err != nil {
		return rulestore.Result{}, err
	}
	var before rulestore.Version
	if c.Action == rulestore.ActionRollback && now.Previous > 0 {
		before, err = scanVersion(w.tx.QueryRowContext(ctx, queryVersion, c.Rule, now.Previous))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return rulestore.Result{}, err
		}
	}
	next, warnings, err := rulestore.Next(now, before, c, w.at)
	if err != nil {
		return rulestore.Result{}, err
	}
	next.Revision = w.revision
	if err := w.flush(ctx); err != nil { // what follows reads the rows
		return rulestore.Result{}, err
	}
	if c.Action == rulestore.ActionDelete {
		if err := w.liftAll(ctx, c.Rule); err != nil {
			return rulestore.Result{}, err
		}
	}
	w.forget(next.ID) // what is one key, and what a pattern, is its identity's to say
	values := columns(&next)
	if _, err := w.tx.ExecContext(ctx, putRule, values...); err != nil {
		return rulestore.Result{}, err
	}
	if _, err := w.tx.ExecContext(ctx, addVersion, append(values, string(c.Action), w.by.Who, w.by.Why)...); err != nil {
		return rulestore.Result{}, err
	}
	misfits, err := w.misfits(ctx, c.Action, &now, &next)
	if err != nil {
		return rulestore.Result{}, err
	}
	result := rulestore.Result{Version: next.Version, Rule: next, Warnings: append(warnings, misfits...)}
	if result.Before, err = now.State(); err != nil {
		return result, err
	}
	if result.After, err = next.State(); err != nil {
		return result, err
	}
	return result, w.audit(c.Action, c.Rule, nil, result)
}

// misfits warns of the overrides that do not fit what a change put into force or on
// trial.
func (w *writer) misfits(ctx context.Context, action rulestore.Action, now, next *rulestore.Rule) ([]string, error) {
	what, body := "this version", next.Live
	switch action {
	case rulestore.ActionPropose:
		what, body = "the candidate", next.Candidate.Body
	case rulestore.ActionPut, rulestore.ActionPromote, rulestore.ActionRollback:
		if !now.Exists() || next.LiveVersion == now.LiveVersion {
			return nil, nil // no overrides, or the same numbers as before
		}
	case rulestore.ActionCanary, rulestore.ActionShadow, rulestore.ActionEnforce, rulestore.ActionDelete,
		rulestore.ActionOverride, rulestore.ActionLift, rulestore.ActionReset:
		return nil, nil
	}
	all, err := list(ctx, w.tx, scanOverride, queryOverridesOf, next.ID)
	if err != nil {
		return nil, err
	}
	if warning := rulestore.Misfits(what, body, all); warning != "" {
		return []string{warning}, nil
	}
	return nil, nil
}

// find returns a rule or its tombstone; with the id alone where there is none.
func (w *writer) find(ctx context.Context, id string) (rulestore.Rule, error) {
	r, err := scanRule(w.tx.QueryRowContext(ctx, queryRule, id))
	if errors.Is(err, sql.ErrNoRows) {
		return rulestore.Rule{ID: id}, nil
	}
	return r, err
}

// reset adds an event to the feed, and forgets those that are long over.
func (w *writer) reset(ctx context.Context, c rulestore.Change) error {
	if err := rulestore.CheckReset(c); err != nil {
		return err
	}
	if c.Rule != "" {
		rule, err := w.find(ctx, c.Rule)
		if err != nil {
			return err
		}
		if !rule.Exists() {
			return &rulestore.Error{Code: rulestore.NotFound, Message: "there is no such rule"}
		}
	}
	key, err := keyText(c.Key)
	if err != nil {
		return err
	}
	if _, err := w.tx.ExecContext(ctx, pruneResets, toMS(w.at.Add(-rulestore.ResetsKept))); err != nil {
		return err
	}
	if _, err := w.tx.ExecContext(ctx, addReset, c.Rule, key, w.revision, toMS(w.at)); err != nil {
		return err
	}
	return w.audit(c.Action, c.Rule, c.Key, rulestore.Result{})
}

// idOf returns the rule that a body names, as far as it can be read.
func idOf(body json.RawMessage) string {
	var named struct{ ID, Rule string }
	_ = json.Unmarshal(body, &named) // what cannot be read is refused with its faults
	return cmp.Or(named.ID, named.Rule)
}
