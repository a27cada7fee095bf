package sqldb

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// rowsAtOnce is how many rows a statement asks for or writes: with one for each, a
// bulk of 100,000 overrides is as many round trips, with the lock of all writers held.
// SQLite takes 32,766 parameters, and a row has ten at most.
const rowsAtOnce = 512

// notedAtMost is how many lines wait to be written: sorted, many lie beside each other
// in the table's index.
const notedAtMost = 32 * rowsAtOnce

// overrides are what a transaction knows of those that it changes.
type overrides struct {
	// wishes are the changes of overrides, by their places; places those of each rule.
	wishes []wish
	places map[string][]int
	// bases are the rules they are of, now their rows as they are by now, by rule and ID;
	// those that never were have version 0.
	bases map[string]*rulestore.Base
	now   map[string]map[string]rulestore.Override
	// unwritten are rows of now, each once; entries are lines of the audit, in order.
	unwritten []rulestore.OverrideName
	waits     map[rulestore.OverrideName]bool
	entries   [][]any
}

// wish is a change of an override, read.
type wish struct {
	rule string
	key  []string
	// of and body are what it is to be, if it is no lift.
	of   rules.Override
	body []byte
	err  error // what is wrong with it, for when its turn comes
}

// readOverrides reads what changes there are of overrides.
func readOverrides(changes []rulestore.Change) overrides {
	o := overrides{
		wishes: make([]wish, len(changes)), places: map[string][]int{}, bases: map[string]*rulestore.Base{},
		now: map[string]map[string]rulestore.Override{}, waits: map[rulestore.OverrideName]bool{},
	}
	for i, c := range changes {
		w := &o.wishes[i]
		switch c.Action { //nolint:exhaustive // the others are of rules
		case rulestore.ActionOverride:
			w.of, w.body, w.err = rulestore.ReadOverride(c)
			w.rule, w.key = w.of.Rule, w.of.Key
		case rulestore.ActionLift:
			w.rule, w.key = c.Rule, c.Key
		default:
			continue
		}
		if w.err == nil {
			o.places[w.rule] = append(o.places[w.rule], i)
		}
	}
	return o
}

// override makes, replaces or removes one.
func (w *writer) override(ctx context.Context, place int, c rulestore.Change) (rulestore.Result, error) {
	wish := &w.wishes[place]
	if wish.err != nil {
		return rulestore.Result{}, wish.err
	}
	next := rulestore.Override{Rule: wish.rule, Key: wish.key, Body: wish.body}
	base, err := w.base(ctx, wish.rule)
	if err != nil {
		return rulestore.Result{}, err
	}
	next.ID = rulestore.KeyID(base.Identity(), wish.key)
	now, err := w.known(ctx, place, next.ID, base)
	if err != nil {
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
		next = now
		next.Version, next.Deleted = now.Version+1, true
		delete(w.patterns, now.Rule) // counted again if need be
		return w.keep(ctx, c.Action, now, next)
	}
	if err := base.Fits(&wish.of); err != nil {
		return rulestore.Result{}, about(err, next)
	}
	if current == 0 && rules.IsPattern(base.Identity(), next.Key) {
		if err := w.onePatternMore(ctx, next.Rule, base); err != nil {
			return rulestore.Result{}, about(err, next)
		}
	}
	next.Version = now.Version + 1
	return w.keep(ctx, c.Action, now, next)
}

// base returns the rule that overrides are of.
func (w *writer) base(ctx context.Context, id string) (*rulestore.Base, error) {
	if base := w.bases[id]; base != nil {
		return base, nil
	}
	rule, err := w.find(ctx, id)
	if err != nil {
		return nil, err
	}
	base := rule.Base()
	w.bases[id] = &base
	return &base, nil
}

// known returns the row of an override as it is by now.
func (w *writer) known(ctx context.Context, place int, id string, base *rulestore.Base) (rulestore.Override, error) {
	rule := w.wishes[place].rule
	if now, known := w.now[rule][id]; known {
		return now, nil
	}
	if err := w.fetch(ctx, place, rule, base); err != nil {
		return rulestore.Override{}, err
	}
	return w.now[rule][id], nil
}

// fetch reads the rows of the changes of a rule's overrides, from the one at a place on.
func (w *writer) fetch(ctx context.Context, place int, rule string, base *rulestore.Base) error {
	places := w.places[rule]
	for len(places) > 0 && places[0] < place {
		places = places[1:]
	}
	w.places[rule] = places // nobody asks for those before any more
	rows := w.now[rule]
	if rows == nil {
		rows = map[string]rulestore.Override{}
		w.now[rule] = rows
	}
	var ids [][]any
	for _, at := range places[:min(len(places), rowsAtOnce)] {
		id := rulestore.KeyID(base.Identity(), w.wishes[at].key)
		if _, known := rows[id]; !known {
			rows[id] = rulestore.Override{}
			ids = append(ids, []any{id})
		}
	}
	query, args := w.table(1, ids)
	found, err := list(ctx, w.tx, scanOverride, queryOverridesIn+"("+query+")", append([]any{rule}, args...)...)
	for _, o := range found {
		rows[o.ID] = o
	}
	return err
}

// onePatternMore refuses a pattern beyond those that a rule may have. They are counted
// once a transaction: a bulk may hold all of them.
func (w *writer) onePatternMore(ctx context.Context, rule string, base *rulestore.Base) error {
	count, counted := w.patterns[rule]
	if !counted {
		if err := w.flush(ctx); err != nil {
			return err
		}
		all, err := list(ctx, w.tx, scanOverride, queryOverridesOf, rule)
		if err != nil {
			return err
		}
		count = rulestore.Patterns(base.Identity(), all)
	}
	w.patterns[rule] = count + 1
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

// keep notes what became of an override, to be written with others.
func (w *writer) keep(ctx context.Context, action rulestore.Action, now, next rulestore.Override) (rulestore.Result, error) {
	next.Revision, next.ChangedAt = w.revision, w.at
	w.now[next.Rule][next.ID] = next
	if name := (rulestore.OverrideName{Rule: next.Rule, ID: next.ID}); !w.waits[name] {
		w.waits[name] = true
		w.unwritten = append(w.unwritten, name)
	}
	result := rulestore.Result{Version: next.Version, Override: next}
	if now.Exists() {
		result.Before = now.Body
	}
	if next.Exists() {
		result.After = next.Body
	}
	if err := w.audit(action, next.Rule, next.Key, result); err != nil || len(w.entries) < notedAtMost {
		return result, err
	}
	return result, w.flush(ctx)
}

// forget drops what is known of a rule that changes, and of its overrides.
func (w *writer) forget(rule string) {
	delete(w.patterns, rule)
	delete(w.bases, rule)
	delete(w.now, rule)
}

// audit notes a line of the audit, to be written with others.
func (w *writer) audit(action rulestore.Action, rule string, key []string, r rulestore.Result) error {
	text, err := keyText(key)
	w.entries = append(w.entries, []any{
		w.revision, toMS(w.at), w.by.Who, w.by.Why, string(action), rule, text, r.Version, string(r.Before), string(r.After),
	})
	return err
}

// flush writes what was noted.
func (w *writer) flush(ctx context.Context) error {
	slices.SortFunc(w.unwritten, func(a, b rulestore.OverrideName) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.ID, b.ID))
	})
	rows := make([][]any, len(w.unwritten))
	for i, name := range w.unwritten {
		o := w.now[name.Rule][name.ID]
		key, err := keyText(o.Key)
		if err != nil {
			return err
		}
		rows[i] = []any{o.Rule, o.ID, key, string(o.Body), o.Version, o.Revision, o.Deleted, toMS(o.ChangedAt)}
	}
	if err := w.insert(ctx, putOverrides, rows, replaceOverrides); err != nil {
		return err
	}
	if err := w.insert(ctx, addEntries, w.entries, ""); err != nil {
		return err
	}
	w.unwritten, w.entries = w.unwritten[:0], w.entries[:0]
	clear(w.waits)
	return nil
}

// insert writes rows, in their order.
func (w *writer) insert(ctx context.Context, into string, rows [][]any, end string) error {
	for some := range slices.Chunk(rows, rowsAtOnce) {
		query, args := w.table(0, some)
		if _, err := w.tx.ExecContext(ctx, into+query+end, args...); err != nil {
			return err
		}
	}
	return nil
}
