package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
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
	tx, err := d.cfg.Write.BeginTx(ctx, nil)
	if err != nil {
		return rulestore.Applied{}, err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	var last int64
	if err := tx.QueryRowContext(ctx, d.cfg.Lock).Scan(&last); err != nil {
		return rulestore.Applied{}, err
	}
	at := d.cfg.Now().UTC().Truncate(time.Millisecond)
	w := writer{tx: tx, by: by, at: at, revision: max(last+1, at.UnixMilli()), patterns: map[string]int{}}
	applied := rulestore.Applied{Revision: w.revision, Results: make([]rulestore.Result, len(changes))}
	for i, c := range changes {
		if c.Rule == "" {
			c.Rule = idOf(c.Body)
		}
		if applied.Results[i], err = w.change(ctx, c); err != nil {
			return rulestore.Applied{}, placed(err, i, c)
		}
	}
	if !keep {
		return applied, nil
	}
	return applied, d.commit(ctx, tx, w.revision)
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
			e.Rule = c.Rule
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
	by       rulestore.Author
	at       time.Time
	revision int64
	patterns map[string]int // of the rules that were given one
}

func (w *writer) change(ctx context.Context, c rulestore.Change) (rulestore.Result, error) {
	switch c.Action {
	case rulestore.ActionPut, rulestore.ActionPropose, rulestore.ActionCanary, rulestore.ActionPromote,
		rulestore.ActionRollback, rulestore.ActionShadow, rulestore.ActionEnforce, rulestore.ActionDelete:
		return w.rule(ctx, c)
	case rulestore.ActionOverride, rulestore.ActionLift:
		return w.override(ctx, c)
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
	if c.Action == rulestore.ActionDelete {
		if err := w.liftAll(ctx, c.Rule); err != nil {
			return rulestore.Result{}, err
		}
	}
	delete(w.patterns, next.ID) // what is a pattern is its identity's to say
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
	return result, w.audit(ctx, c.Action, c.Rule, nil, result)
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

// override makes, replaces or removes one.
func (w *writer) override(ctx context.Context, c rulestore.Change) (rulestore.Result, error) {
	next := rulestore.Override{Rule: c.Rule, Key: c.Key}
	var err error
	if c.Action == rulestore.ActionOverride {
		if next.Rule, next.Key, next.Body, err = rulestore.ReadOverride(c); err != nil {
			return rulestore.Result{}, err
		}
	}
	rule, err := w.find(ctx, next.Rule)
	if err != nil {
		return rulestore.Result{}, err
	}
	now, err := scanOverride(w.tx.QueryRowContext(ctx, queryOverride, next.Rule, rulestore.KeyID(rule.Identity(), next.Key)))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return rulestore.Result{}, err
	}
	current := now.Version
	if now.Deleted {
		current = 0
	}
	if err := rulestore.Match(current, c.IfMatch); err != nil {
		return rulestore.Result{}, about(err, next)
	}
	if c.Action == rulestore.ActionLift {
		if current == 0 {
			return rulestore.Result{}, &rulestore.Error{Code: rulestore.NotFound, Rule: next.Rule, Key: next.Key, Message: "is not there"}
		}
		return w.lift(ctx, now)
	}
	if err := rule.Fits(next.Body); err != nil {
		return rulestore.Result{}, about(err, next)
	}
	if current == 0 && rules.IsPattern(rule.Identity(), next.Key) {
		if err := w.onePatternMore(ctx, &rule); err != nil {
			return rulestore.Result{}, about(err, next)
		}
	}
	next.ID, next.Version = rulestore.KeyID(rule.Identity(), next.Key), now.Version+1
	return w.keep(ctx, c.Action, now, next)
}

// onePatternMore refuses a pattern beyond those that a rule may have. They are counted
// once a transaction: a bulk may hold all of them.
func (w *writer) onePatternMore(ctx context.Context, rule *rulestore.Rule) error {
	count, counted := w.patterns[rule.ID]
	if !counted {
		all, err := list(ctx, w.tx, scanOverride, queryOverridesOf, rule.ID)
		if err != nil {
			return err
		}
		count = rulestore.Patterns(rule.Identity(), all)
	}
	w.patterns[rule.ID] = count + 1
	return rulestore.CheckPatterns(count)
}

// about names the override that an error is of.
func about(err error, o rulestore.Override) error {
	if e, ok := errors.AsType[*rulestore.Error](err); ok {
		e.Rule, e.Key = o.Rule, o.Key
	}
	return err
}

// liftAll removes the overrides of a rule: they would come back with it. There may be
// 100,000 of them, so that it takes two statements and not some for each.
func (w *writer) liftAll(ctx context.Context, rule string) error {
	at := toMS(w.at)
	if _, err := w.tx.ExecContext(ctx, addLifts, rule, w.revision, at, w.by.Who, w.by.Why, string(rulestore.ActionLift)); err != nil {
		return err
	}
	_, err := w.tx.ExecContext(ctx, liftOverrides, rule, w.revision, at)
	return err
}

func (w *writer) lift(ctx context.Context, now rulestore.Override) (rulestore.Result, error) {
	next := now
	next.Version, next.Deleted = now.Version+1, true
	delete(w.patterns, now.Rule) // counted again if need be
	return w.keep(ctx, rulestore.ActionLift, now, next)
}

// keep stores what became of an override.
func (w *writer) keep(ctx context.Context, action rulestore.Action, now, next rulestore.Override) (rulestore.Result, error) {
	next.Revision, next.ChangedAt = w.revision, w.at
	key, err := keyText(next.Key)
	if err != nil {
		return rulestore.Result{}, err
	}
	_, err = w.tx.ExecContext(ctx, putOverride, next.Rule, next.ID, key, string(next.Body),
		next.Version, next.Revision, next.Deleted, toMS(next.ChangedAt))
	if err != nil {
		return rulestore.Result{}, err
	}
	result := rulestore.Result{Version: next.Version, Override: next}
	if now.Exists() {
		result.Before = now.Body
	}
	if next.Exists() {
		result.After = next.Body
	}
	return result, w.audit(ctx, action, next.Rule, next.Key, result)
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
	return w.audit(ctx, c.Action, c.Rule, c.Key, rulestore.Result{})
}

func (w *writer) audit(ctx context.Context, action rulestore.Action, rule string, key []string, r rulestore.Result) error {
	text, err := keyText(key)
	if err != nil {
		return err
	}
	_, err = w.tx.ExecContext(ctx, addEntry, w.revision, toMS(w.at), w.by.Who, w.by.Why, string(action), rule, text,
		r.Version, string(r.Before), string(r.After))
	return err
}

// idOf returns the rule that a body names, as far as it can be read.
func idOf(body json.RawMessage) string {
	var named struct{ ID, Rule string }
	_ = json.Unmarshal(body, &named) // what cannot be read is refused with its faults
	return cmp.Or(named.ID, named.Rule)
}
