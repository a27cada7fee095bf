package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Whole implements rulestore.Reader.
func (d *DB) Whole(ctx context.Context) (rulestore.Set, error) {
	var set rulestore.Set
	err := d.view(ctx, func(tx *sql.Tx) (err error) {
		if set.Revision, set.Now, err = d.moment(ctx, tx); err != nil {
			return err
		}
		if set.Rules, err = list(ctx, tx, scanRule, queryRules); err != nil {
			return err
		}
		set.Overrides, err = list(ctx, tx, scanOverride, queryOverrides)
		return err
	})
	set.Sort()
	set.Hash = rulestore.Digest(set.Rules, set.Overrides)
	return set, err
}

// Since implements rulestore.Reader.
func (d *DB) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	var c rulestore.Changes
	err := d.view(ctx, func(tx *sql.Tx) (err error) {
		c.Revision, c.Now, err = d.moment(ctx, tx)
		if err != nil || c.Revision <= revision {
			return err
		}
		if c.Rules, err = list(ctx, tx, scanRule, queryRulesSince, revision); err != nil {
			return err
		}
		if c.Overrides, err = list(ctx, tx, scanOverride, queryOverridesSince, revision); err != nil {
			return err
		}
		c.Resets, err = list(ctx, tx, scanReset, queryResetsSince, revision)
		return err
	})
	return c, err
}

// Rule implements rulestore.Records.
func (d *DB) Rule(ctx context.Context, id string) (rulestore.Rule, error) {
	r, err := scanRule(d.cfg.Read.QueryRowContext(ctx, queryRule, id))
	if errors.Is(err, sql.ErrNoRows) || err == nil && r.Deleted {
		return rulestore.Rule{}, &rulestore.Error{Code: rulestore.NotFound, Rule: id, Message: "is not there"}
	}
	return r, err
}

// Override implements rulestore.Records.
func (d *DB) Override(ctx context.Context, rule string, key []string) (rulestore.Override, error) {
	none := &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Key: key, Message: "there is no override"}
	of, err := d.Rule(ctx, rule)
	if rulestore.CodeOf(err) == rulestore.NotFound {
		return rulestore.Override{}, none
	}
	if err != nil {
		return rulestore.Override{}, err
	}
	o, err := scanOverride(d.cfg.Read.QueryRowContext(ctx, queryOverride, rule, rulestore.KeyID(of.Identity(), key)))
	if errors.Is(err, sql.ErrNoRows) || err == nil && o.Deleted {
		return rulestore.Override{}, none
	}
	return o, err
}

// Overrides implements rulestore.Overrides.
func (d *DB) Overrides(ctx context.Context, page rulestore.OverridePage) ([]rulestore.Override, error) {
	limit, err := rulestore.PageLimit(page.Limit)
	if err != nil {
		return nil, err
	}
	var out []rulestore.Override
	err = d.view(ctx, func(tx *sql.Tx) error {
		out, err = list(ctx, tx, scanOverride, queryOverridesPage, page.Rule, page.After.Rule, page.After.ID, limit)
		return err
	})
	return out, err
}

// History implements rulestore.Historian.
func (d *DB) History(ctx context.Context, rule string, before int64, limit int) ([]rulestore.Version, error) {
	limit, err := rulestore.PageLimit(limit)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	var out []rulestore.Version
	err = d.view(ctx, func(tx *sql.Tx) error {
		out, err = list(ctx, tx, scanVersion, queryHistory, rule, before, limit)
		return err
	})
	if err == nil && len(out) == 0 && before == math.MaxInt64 {
		err = &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Message: "was never there"}
	}
	return out, err
}

// Version implements rulestore.Historian.
func (d *DB) Version(ctx context.Context, rule string, version int64) (rulestore.Version, error) {
	v, err := scanVersion(d.cfg.Read.QueryRowContext(ctx, queryVersion, rule, version))
	if errors.Is(err, sql.ErrNoRows) {
		return v, &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Message: "has no such version"}
	}
	return v, err
}

// Audit implements rulestore.Auditor.
func (d *DB) Audit(ctx context.Context, f rulestore.AuditFilter) ([]rulestore.Entry, error) {
	limit, err := rulestore.PageLimit(f.Limit)
	if err != nil {
		return nil, err
	}
	key, err := keyText(f.Key)
	if err != nil {
		return nil, err
	}
	to, before := int64(math.MaxInt64), int64(math.MaxInt64)
	if !f.To.IsZero() {
		to = f.To.UnixMilli()
	}
	if f.Before != 0 {
		before = f.Before
	}
	var out []rulestore.Entry
	err = d.view(ctx, func(tx *sql.Tx) error {
		out, err = list(ctx, tx, scanEntry, queryAudit, f.Rule, key, f.Who, string(f.Action), toMS(f.From), to, before, limit)
		return err
	})
	return out, err
}
