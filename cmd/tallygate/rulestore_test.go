package main_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tallygate "github.com/tallygate/tallygate/cmd/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/pgtest"
)

// An existing rules file is taken over once, and never looked at again.
func TestImport(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "rules.yaml", "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5))+"overrides:\n  - {rule: r, key: k, burst: 7}\n")
	s := serveAt(t)
	if log := s.stderr.String(); !strings.Contains(log, "rules imported once") || !strings.Contains(log, "rules.yaml") {
		t.Errorf("the log does not say so:\n%s", log)
	}
	if r := s.ask(t, "r", 0); r.Verdict != "allow" || r.Entries[0].Limit != 7 {
		t.Errorf("%+v, want the override's 7", r)
	}
	if strings.Contains(s.stdout.String(), "example") {
		t.Errorf("examples beside an import:\n%s", s.stdout)
	}
	write(t, "rules.yaml", "rules: []\n")
	again := serveAt(t)
	if r := again.ask(t, "r", 0); r.Verdict != "allow" || strings.Contains(again.stderr.String(), "imported") {
		t.Errorf("%+v, log:\n%s", r, again.stderr)
	}
}

// A faulty rules file is not taken over in part: what was left out would be lost.
func TestImportOfFaults(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "rules.yaml", "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5))+ruleLine("bad", "algorithm: foo"))
	code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--admin", "")
	if code != 1 || !strings.Contains(stderr, "rules.yaml cannot be imported") || !strings.Contains(stderr, "foo") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	write(t, "rules.yaml", "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5)))
	if s := serveAt(t); !strings.Contains(s.stderr.String(), "rules imported once") {
		t.Errorf("mended, it is not imported:\n%s", s.stderr)
	}
}

// Servers that start together in one folder share the database that one of them
// has filled.
func TestFirstStartsTogether(t *testing.T) {
	t.Chdir(t.TempDir())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s := serveAt(t)
			if !strings.Contains(s.stdout.String(), "4 rules") {
				t.Errorf("got\n%s%s", s.stdout, s.stderr)
			}
		})
	}
	wg.Wait()
}

// Both databases, from the command line: apply, list, get, history, diff, delete,
// and a server that follows.
func TestRulesInDatabases(t *testing.T) {
	t.Parallel()
	for _, database := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"sqlite", func(t *testing.T) string { t.Helper(); return "sqlite:" + filepath.Join(t.TempDir(), "t.db") }},
		{"postgres", func(t *testing.T) string { t.Helper(); return pgtest.Database(t, nil) }},
	} {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			testRulesCommands(t, database.url(t))
		})
	}
}

func testRulesCommands(t *testing.T, url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "r.yaml")
	rules := func(want int, args ...string) string {
		t.Helper()
		code, stdout, stderr := run(t, nil, append([]string{"rules"}, append(args, "--rules", url)...)...)
		if code != want {
			t.Fatalf("rules %v: exit %d, want %d\n%s%s", args, code, want, stdout, stderr)
		}
		return stdout + stderr
	}
	has := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("no %q in\n%s", part, text)
			}
		}
	}
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 5))+ruleLine("b", tokenBucket(1, 3600, 6))+"overrides:\n  - {rule: a, key: vip, burst: 50}\n")
	has(rules(0, "apply", file, "--dry-run"), "+ rule a", "+ burst: 5", "+ override of a for vip", "3 to add, 0 to change, 0 to delete")
	has(rules(1, "apply", file), "Change this? [y/N]", "nothing was changed")
	has(rules(0, "apply", file, "--yes", "--who", "kim", "--why", "a start"), "done, at revision")
	has(rules(0, "apply", file, "--yes"), "0 to add, 0 to change, 0 to delete")

	s := serveAt(t, "--rules", url)
	if r := s.ask(t, "a", 0); r.Verdict != "allow" || r.Entries[0].Limit != 5 {
		t.Errorf("%+v", r)
	}
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	has(rules(0, "apply", file, "--yes", "--why", "more"), "~ rule a", "~ burst: 5 → 9", "1 rule and 1 override are not in the file and stay")
	start := time.Now()
	await.That(t, "the change in force", func() bool { return s.ask(t, "a", 0).Entries[0].Limit == 9 })
	t.Logf("in force after %s", time.Since(start))

	has(rules(0, "list"), "RULE", "token_bucket", "enforce")
	has(rules(0, "get", "a"), `"burst": 9`)
	var got struct {
		Version int64
		Live    struct{ Burst int64 }
	}
	if err := json.Unmarshal([]byte(rules(0, "get", "a", "-o", "json")), &got); err != nil || got.Version != 2 || got.Live.Burst != 9 {
		t.Errorf("got %+v, %v", got, err)
	}
	has(rules(0, "history", "a"), "VERSION", "kim", "a start", "more")
	has(rules(0, "diff", "a"), "version 1 to 2", "~ burst: 5 → 9")
	has(rules(0, "diff", "a", "--to", "1"), "version 0 to 1", "+ burst: 5")
	has(rules(1, "get", "never"), `rule "never": is not there`)

	write(t, file, "rules:\n"+ruleLine("a", "algorithm: foo"))
	has(rules(1, "apply", file, "--yes"), "foo", "1 error")
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	has(rules(0, "apply", file, "--yes", "--prune"), "- rule b", "- override of a for vip", "0 to add, 0 to change, 2 to delete")
	await.That(t, "b gone", func() bool { return s.ask(t, "b", 0).Code == "unknown_rule" })
	has(rules(1, "delete", "a"), "Delete rule a and its overrides? [y/N]", "nothing was changed")
	has(rules(0, "delete", "a", "--yes"), "rule a is deleted")
	has(rules(0, "history", "a", "-o", "json"), `"action": "delete"`)
	await.That(t, "a gone", func() bool { return s.ask(t, "a", 0).HTTP == http.StatusNotFound })
}

// The question before a change takes yes for an answer.
func TestApplyAsks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "r.yaml")
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 5)))
	var out, errs bytes.Buffer
	m := &tallygate.Main{}
	code := m.Run(t.Context(), []string{"rules", "apply", file, "--rules", "sqlite:" + filepath.Join(dir, "t.db")}, strings.NewReader("y\n"), &out, &errs, nil)
	if code != 0 || !strings.Contains(out.String(), "done, at revision") {
		t.Errorf("exit %d, %s%s", code, &out, &errs)
	}
}

// A database that cannot be reached is an error without its password.
func TestRulesDatabaseAway(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"serve", "--http", "127.0.0.1:0", "--admin", ""}, {"rules", "list"}} {
		code, stdout, stderr := run(t, nil, append(args, "--rules", "postgres://kim:s3cret@127.0.0.1:1/db?connect_timeout=1")...)
		if code != 1 || !strings.Contains(stderr, "127.0.0.1") || strings.Contains(stdout+stderr, "s3cret") {
			t.Errorf("%v: exit %d, %s%s", args, code, stdout, stderr)
		}
	}
}
