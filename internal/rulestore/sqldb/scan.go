package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// row is *sql.Row or *sql.Rows.
type row interface{ Scan(dest ...any) error }

// ruleRow is a row of table rules, or the first columns of one of versions.
type ruleRow struct {
	rulestore.Rule
	live, candidate      string
	sinceMS, changedAtMS int64
	stage                string
}

// dest are where the columns go.
func (r *ruleRow) dest(more ...any) []any {
	return append([]any{
		&r.ID, &r.Version, &r.Revision, &r.live, &r.LiveVersion, &r.Previous,
		&r.candidate, &r.stage, &r.Candidate.Percent, &r.sinceMS, &r.Deleted, &r.changedAtMS,
	}, more...)
}

// rule is the row as a record.
func (r *ruleRow) rule() rulestore.Rule {
	out := r.Rule
	out.Live, out.Candidate.Body = body(r.live), body(r.candidate)
	out.Candidate.Stage = rulestore.Stage(r.stage)
	out.Candidate.Since, out.ChangedAt = fromMS(r.sinceMS), fromMS(r.changedAtMS)
	return out
}

// columns are a rule's values in the order of ruleColumns.
func columns(r *rulestore.Rule) []any {
	return []any{
		r.ID, r.Version, r.Revision, string(r.Live), r.LiveVersion, r.Previous, string(r.Candidate.Body),
		string(r.Candidate.Stage), r.Candidate.Percent, toMS(r.Candidate.Since), r.Deleted, toMS(r.ChangedAt),
	}
}

func scanRule(from row) (rulestore.Rule, error) {
	var r ruleRow
	err := from.Scan(r.dest()...)
	return r.rule(), err
}

func scanVersion(from row) (rulestore.Version, error) {
	var r ruleRow
	var v rulestore.Version
	err := from.Scan(r.dest(&v.Action, &v.Who, &v.Why)...)
	v.Rule = r.rule()
	return v, err
}

func scanOverride(from row) (rulestore.Override, error) {
	var o rulestore.Override
	var key, text string
	var changedAtMS int64
	err := from.Scan(&o.Rule, &o.ID, &key, &text, &o.Version, &o.Revision, &o.Deleted, &changedAtMS)
	o.Key, o.Body, o.ChangedAt = keyOf(key), body(text), fromMS(changedAtMS)
	return o, err
}

func scanReset(from row) (rulestore.Reset, error) {
	var r rulestore.Reset
	var key string
	var atMS int64
	err := from.Scan(&r.Rule, &key, &r.Revision, &atMS)
	r.Key, r.At = keyOf(key), fromMS(atMS)
	return r, err
}

func scanEntry(from row) (rulestore.Entry, error) {
	var e rulestore.Entry
	var key, was, became string
	var atMS int64
	err := from.Scan(&e.ID, &e.Revision, &atMS, &e.Who, &e.Why, &e.Action, &e.Rule, &key, &e.Version, &was, &became)
	e.Key, e.At, e.Before, e.After = keyOf(key), fromMS(atMS), body(was), body(became)
	return e, err
}

// list reads all rows of a query.
func list[T any](ctx context.Context, tx *sql.Tx, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []T
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, rows.Err()
}

func body(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// keyOf reads a key; one that somebody wrote wrongly is none.
func keyOf(text string) []string {
	var key []string
	if text == "" || json.Unmarshal([]byte(text), &key) != nil {
		return nil
	}
	return key
}

func keyText(key []string) (string, error) {
	if key == nil {
		return "", nil
	}
	text, err := json.Marshal(key)
	return string(text), err
}

// toMS and fromMS keep the zero time.
func toMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
