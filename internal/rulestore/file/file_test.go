package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/file"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
	"github.com/tallygate/tallygate/rules/yaml"
)

const (
	ruleA    = "  - {id: a, covers_all: true, identity: [ip], algorithm: token_bucket, rate: 1, burst: 5}\n"
	ruleB    = "  - {id: b, covers_all: true, identity: [ip], algorithm: token_bucket, rate: 1, burst: 6}\n"
	faultyB  = "  - {id: b, covers_all: true, identity: [ip], algorithm: foo}\n"
	override = "overrides:\n  - {rule: a, key: '::ffff:192.0.2.1', burst: 9}\n"
)

type book interface { //nolint:interfacebloat // all that a store of rules does
	rulestore.Reader
	rulestore.Waiter
	rulestore.Writer
	rulestore.Records
	rulestore.Overrides
	rulestore.Historian
	rulestore.Auditor
}

func open(t *testing.T, text string) (book, func(string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	return file.New(file.Config{Source: yaml.File(path), Every: 2 * time.Millisecond}), write
}

func whole(t *testing.T, s book) rulestore.Set {
	t.Helper()
	set, err := s.Whole(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// What a pod that follows the file's changes has is what the file says.
func TestFollowed(t *testing.T) {
	t.Parallel()
	s, write := open(t, "rules:\n"+ruleA+ruleB+override)
	now := whole(t, s)
	if len(now.Rules) != 2 || len(now.Overrides) != 1 || now.Hash != rulestore.Digest(now.Rules, now.Overrides) {
		t.Fatalf("got %+v", now)
	}
	for _, text := range []string{"rules:\n" + ruleB, "rules:\n" + ruleA + ruleB + override, "rules: []\n"} {
		write(text)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := s.Wait(ctx, now.Revision); err != nil {
			t.Fatal(err)
		}
		cancel()
		want := whole(t, s)
		changes, err := s.Since(t.Context(), now.Revision)
		if err != nil || want.Revision <= now.Revision {
			t.Fatalf("revision %d after %d, %v", want.Revision, now.Revision, err)
		}
		now = wire.Merge(now, changes)
		if now.Hash != want.Hash || now.Revision != want.Revision {
			t.Errorf("after %q: %+v, want %+v", text, now, want)
		}
	}
}

// A faulty rule is a line that cannot be read, so that its last good version stays.
func TestFaultyRule(t *testing.T) {
	t.Parallel()
	s, write := open(t, "rules:\n"+ruleA+faultyB)
	set := whole(t, s)
	live, problems := set.Live()
	if len(live.Rules) != 1 || len(live.Unread) != 1 || live.Unread[0].Rule != "b" || len(problems) == 0 {
		t.Errorf("got %+v, %v", live, problems)
	}
	write("rules: [\n")
	if _, err := s.Whole(t.Context()); err == nil {
		t.Error("a broken file was read")
	}
}

func TestRecords(t *testing.T) {
	t.Parallel()
	s, _ := open(t, "rules:\n"+ruleA+override)
	ctx := t.Context()
	if r, err := s.Rule(ctx, "a"); err != nil || r.Version != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Rule(ctx, "z"); rulestore.CodeOf(err) != rulestore.NotFound {
		t.Errorf("got %v", err)
	}
	if o, err := s.Override(ctx, "a", []string{"192.0.2.1"}); err != nil || o.Version != 1 {
		t.Errorf("another spelling of the key: %+v, %v", o, err)
	}
	if list, err := s.Overrides(ctx, rulestore.OverridePage{Rule: "a"}); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.History(ctx, "a", 0, 0); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	_, err := s.Apply(ctx, rulestore.Author{Who: "kim"}, rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 1})
	if rulestore.CodeOf(err) != rulestore.Elsewhere {
		t.Errorf("got %v", err)
	}
}
