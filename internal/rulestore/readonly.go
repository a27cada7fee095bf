package rulestore

import (
	"context"
	"slices"
)

// ReadOnly is rules of record that can be read here and are changed elsewhere: it
// answers what a database would from what a reader has, and refuses every change.
// It has one version of each rule and no audit.
type ReadOnly struct {
	// Reader has the rules. Required.
	Reader Reader
	// Why says where to change them.
	Why string
}

// Whole implements Reader.
func (s ReadOnly) Whole(ctx context.Context) (Set, error) { return s.Reader.Whole(ctx) }

// Since implements Reader.
func (s ReadOnly) Since(ctx context.Context, revision int64) (Changes, error) {
	return s.Reader.Since(ctx, revision)
}

// Rule implements Records.
func (s ReadOnly) Rule(ctx context.Context, id string) (Rule, error) {
	set, err := s.Reader.Whole(ctx)
	if err != nil {
		return Rule{}, err
	}
	i := slices.IndexFunc(set.Rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return Rule{}, notThere(id, nil)
	}
	return set.Rules[i], nil
}

// Override implements Records.
func (s ReadOnly) Override(ctx context.Context, rule string, key []string) (Override, error) {
	set, err := s.Reader.Whole(ctx)
	if err != nil {
		return Override{}, err
	}
	var by []string
	for _, r := range set.Rules {
		if r.ID == rule {
			by = r.Identity()
		}
	}
	id := KeyID(by, key)
	for _, o := range set.Overrides {
		if o.Rule == rule && o.ID == id {
			return o, nil
		}
	}
	return Override{}, notThere(rule, key)
}

// Overrides implements the interface of its name.
func (s ReadOnly) Overrides(ctx context.Context, page OverridePage) ([]Override, error) {
	limit, err := PageLimit(page.Limit)
	if err != nil {
		return nil, err
	}
	set, err := s.Reader.Whole(ctx)
	if err != nil {
		return nil, err
	}
	var out []Override
	for _, o := range set.Overrides {
		after := o.Rule > page.After.Rule || o.Rule == page.After.Rule && o.ID > page.After.ID
		if after && (page.Rule == "" || page.Rule == o.Rule) && len(out) < limit {
			out = append(out, o)
		}
	}
	return out, nil
}

// History returns the one version that is known here.
func (s ReadOnly) History(ctx context.Context, rule string, before int64, limit int) ([]Version, error) {
	if _, err := PageLimit(limit); err != nil {
		return nil, err
	}
	r, err := s.Rule(ctx, rule)
	if err != nil || before > 0 && before <= r.Version {
		return nil, err
	}
	return []Version{{Rule: r, Action: ActionPut, Author: Author{Who: "unknown here", Why: s.Why}}}, nil
}

// Version returns the one that is known here, or NotFound.
func (s ReadOnly) Version(ctx context.Context, rule string, version int64) (Version, error) {
	list, err := s.History(ctx, rule, 0, 1)
	if err != nil {
		return Version{}, err
	}
	if list[0].Version != version {
		return Version{}, &Error{Code: NotFound, Rule: rule, Message: "is known here in one version only; " + s.Why}
	}
	return list[0], nil
}

// Audit returns nothing: who changes rules elsewhere is known there.
func (s ReadOnly) Audit(_ context.Context, filter AuditFilter) ([]Entry, error) {
	_, err := PageLimit(filter.Limit)
	return nil, err
}

// Apply refuses.
func (s ReadOnly) Apply(context.Context, Author, ...Change) (Applied, error) {
	return Applied{}, &Error{Code: Elsewhere, Message: s.Why}
}

// DryRun refuses like Apply.
func (s ReadOnly) DryRun(context.Context, Author, ...Change) (Applied, error) {
	return Applied{}, &Error{Code: Elsewhere, Message: s.Why}
}

func notThere(rule string, key []string) error {
	return &Error{Code: NotFound, Rule: rule, Key: key, Message: "is not there"}
}
