package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/envoyconfig"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/file"
	"github.com/tallygate/tallygate/internal/rulestore/postgres"
	"github.com/tallygate/tallygate/internal/rulestore/remote"
	"github.com/tallygate/tallygate/internal/rulestore/sqlite"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/yaml"
)

// The forms of the setting rules.
const (
	fileScheme   = "file:"
	envoyScheme  = "envoy:"
	sqliteScheme = "sqlite:"
	// legacyFile is the rules file of earlier versions in the working folder, taken
	// over once.
	legacyFile = "rules.yaml"
)

// resyncEvery is how often a pod asks its control plane what changed, give or take a
// tenth, so that pods that start together do not ask together.
const resyncEvery = 5 * time.Second

// ruleStore is where the rules of record are: a database, or the control plane in
// front of one.
type ruleStore struct {
	ruleBook
	// hints tell when something changed; nil where there are none.
	hints rulestore.Waiter
	// control is the control plane, nil for a database.
	control *remote.Client
	close   func() error
}

// ruleBook is all that commands ask of it.
type ruleBook interface { //nolint:interfacebloat // it is all that a database of rules does
	rulestore.Reader
	rulestore.Writer
	rulestore.Records
	rulestore.Overrides
	rulestore.Historian
	rulestore.Auditor
}

// openRuleStore opens the database or file that the settings name.
func openRuleStore(ctx context.Context, v *values, now func() time.Time, log *slog.Logger) (*ruleStore, error) {
	where := v.String("rules")
	if source := sourceOf(v); source != nil {
		s := file.New(file.Config{Source: source, Now: now})
		return &ruleStore{ruleBook: s, hints: s, close: func() error { return nil }}, nil
	}
	if path, ok := strings.CutPrefix(where, sqliteScheme); ok {
		s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Now: now})
		if err != nil {
			return nil, err
		}
		return &ruleStore{ruleBook: s.DB, hints: s.DB, close: s.Close}, nil
	}
	s, err := postgres.Open(ctx, postgres.Config{URL: where, Now: now, Log: log})
	if err != nil {
		return nil, err
	}
	return &ruleStore{ruleBook: s.DB, hints: s.DB, close: s.Close}, nil
}

// sourceOf is what reads the rules of the settings where they are files; else nil.
func sourceOf(v *values) rules.Source {
	where := v.String("rules")
	if path, ok := strings.CutPrefix(where, fileScheme); ok {
		return yaml.File(path)
	}
	if path, ok := strings.CutPrefix(where, envoyScheme); ok {
		read, options := envoyOptions(v)
		return envoyconfig.NewSource(envoyconfig.SourceConfig{Path: path, Read: read, Options: options})
	}
	return nil
}

// remoteRules reports whether the rules are behind a control plane.
func remoteRules(where string) bool {
	return strings.HasPrefix(where, "http://") || strings.HasPrefix(where, "https://")
}

// openBook opens what the setting names for a command: a database, a file, or the
// control plane in front of one.
func openBook(ctx context.Context, v *values, now func() time.Time) (*ruleStore, error) {
	where := v.String("rules")
	if remoteRules(where) {
		return openRemote(v, where)
	}
	return openRuleStore(ctx, v, now, slog.New(slog.DiscardHandler))
}

// readRules reads the rules of a setting once, for a command that only looks.
func readRules(ctx context.Context, v *values) (rules.Set, rules.Problems, error) {
	where := v.String("rules")
	if source := sourceOf(v); source != nil {
		set, problems, _, err := source.Load(ctx)
		return set, problems, err
	}
	if path, ok := strings.CutPrefix(where, sqliteScheme); ok && missing(path) {
		return rules.Set{}, nil, fmt.Errorf("there is no database %s (--rules names another)", path)
	}
	store, err := openBook(ctx, v, time.Now)
	if err != nil {
		return rules.Set{}, nil, err
	}
	all, err := store.Whole(ctx)
	if err = errors.Join(err, store.close()); err != nil {
		return rules.Set{}, nil, err
	}
	set, problems := all.Live()
	return set, problems, nil
}

// firstRules fills a database in which nothing ever was: from the rules file of an
// earlier version, or with examples. A faulty file stops the start: what was left
// out of it now would never come.
func firstRules(ctx context.Context, store *ruleStore, log *slog.Logger) (examples bool, err error) {
	now, err := store.Whole(ctx)
	if err != nil || now.Revision > 0 {
		return false, err
	}
	by := rulestore.Author{Who: "tallygate serve", Why: "imported from " + legacyFile}
	var set rules.Set
	if missing(legacyFile) {
		examples, by.Why = true, "examples of a first start"
		set, _ = yaml.Parse(yaml.Example())
	} else {
		var problems rules.Problems
		set, problems, _, err = yaml.File(legacyFile).Load(ctx)
		if err == nil {
			err = problems.Err()
		}
		if err != nil {
			return false, fmt.Errorf("%s cannot be imported; mend it (tallygate rules lint %s), move it away, or go on using it with --rules file:%s: %w", legacyFile, legacyFile, legacyFile, err)
		}
	}
	plan, err := now.Toward(set, false)
	if err != nil || len(plan.Steps) == 0 {
		return false, err
	}
	_, err = store.Apply(ctx, by, plan.Changes()...)
	if rulestore.CodeOf(err) == rulestore.Conflict {
		return false, nil // another process that starts now was first
	}
	if err == nil && !examples {
		log.Info("rules imported once; from now on the database counts, not the file",
			"file", legacyFile, "rules", len(set.Rules), "overrides", len(set.Overrides))
	}
	return examples, err
}

// rulesURL checks the setting rules.
func rulesURL(value string) error {
	for _, scheme := range []string{sqliteScheme, fileScheme, envoyScheme, "postgres://", "postgresql://", "http://", "https://"} {
		if rest, ok := strings.CutPrefix(value, scheme); ok && rest != "" {
			return nil
		}
	}
	mean, scheme := "", ""
	switch filepath.Ext(value) {
	case ".yaml", ".yml", ".json":
		scheme = fileScheme
	case ".db", ".sqlite":
		scheme = sqliteScheme
	}
	if scheme != "" && !strings.Contains(value, "://") {
		mean = fmt.Sprintf("; did you mean %q?", scheme+value)
	}
	return fmt.Errorf("%q is none of sqlite:PATH, file:PATH, envoy:DIR, postgres://…, https://…%s", maskURL(value), mean)
}
