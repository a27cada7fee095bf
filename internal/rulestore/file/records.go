package file

import (
	"context"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Rule returns a rule, or NotFound.
func (s *Store) Rule(ctx context.Context, id string) (rulestore.Rule, error) {
	set, err := s.Whole(ctx)
	if err != nil {
		return rulestore.Rule{}, err
	}
	for _, r := range set.Rules {
		if r.ID == id {
			return r, nil
		}
	}
	return rulestore.Rule{}, notThere(id, nil)
}

// Override returns the override of a key in any spelling, or NotFound.
func (s *Store) Override(ctx context.Context, rule string, key []string) (rulestore.Override, error) {
	set, err := s.Whole(ctx)
	if err != nil {
		return rulestore.Override{}, err
	}
	var by []string
	for _, r := range set.Rules {
		if r.ID == rule {
			by = r.Identity()
		}
	}
	id := rulestore.KeyID(by, key)
	for _, o := range set.Overrides {
		if o.Rule == rule && o.ID == id {
			return o, nil
		}
	}
	return rulestore.Override{}, notThere(rule, key)
}

// Overrides returns a page of the file's overrides.
func (s *Store) Overrides(ctx context.Context, page rulestore.OverridePage) ([]rulestore.Override, error) {
	limit, err := rulestore.PageLimit(page.Limit)
	if err != nil {
		return nil, err
	}
	set, err := s.Whole(ctx)
	if err != nil {
		return nil, err
	}
	var out []rulestore.Override
	for _, o := range set.Overrides {
		after := o.Rule > page.After.Rule || o.Rule == page.After.Rule && o.ID > page.After.ID
		if after && (page.Rule == "" || page.Rule == o.Rule) && len(out) < limit {
			out = append(out, o)
		}
	}
	return out, nil
}

// History returns the one version that a file has of a rule.
func (s *Store) History(ctx context.Context, rule string, before int64, limit int) ([]rulestore.Version, error) {
	if _, err := rulestore.PageLimit(limit); err != nil {
		return nil, err
	}
	v, err := s.Version(ctx, rule, 1)
	if err != nil || before == 1 {
		return nil, err
	}
	return []rulestore.Version{v}, nil
}

// Version returns a rule as it stands in the file, which is version 1.
func (s *Store) Version(ctx context.Context, rule string, version int64) (rulestore.Version, error) {
	r, err := s.Rule(ctx, rule)
	if err != nil {
		return rulestore.Version{}, err
	}
	if version != 1 {
		return rulestore.Version{}, &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Message: "a rules file has version 1 only"}
	}
	return rulestore.Version{Rule: r, Action: rulestore.ActionPut, Author: rulestore.Author{Who: "the rules file"}}, nil
}

// Audit returns nothing: a file does not know who changed it.
func (s *Store) Audit(_ context.Context, filter rulestore.AuditFilter) ([]rulestore.Entry, error) {
	_, err := rulestore.PageLimit(filter.Limit)
	return nil, err
}

// Apply refuses: the file is edited.
func (s *Store) Apply(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	return rulestore.Applied{}, readOnly()
}

// DryRun refuses like Apply.
func (s *Store) DryRun(context.Context, rulestore.Author, ...rulestore.Change) (rulestore.Applied, error) {
	return rulestore.Applied{}, readOnly()
}

func readOnly() error {
	return &rulestore.Error{
		Code:    rulestore.ReadOnly,
		Message: "the rules are in a file: edit it, it is read again within a second; to change rules through the API start with --rules sqlite:… or postgres://…",
	}
}

func notThere(rule string, key []string) error {
	return &rulestore.Error{Code: rulestore.NotFound, Rule: rule, Key: key, Message: "is not there"}
}
