// Package rulestoretest is the suite that every store of rules of record must
// pass: what each change does, random histories against a model, writers at the
// same time, commits that come late, rows written by others, and a writer that is
// killed.
package rulestoretest

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
)

// Harness is one database for one test.
type Harness struct {
	// Store is a store on an empty database.
	Store *sqldb.DB
	// Again opens one more store on it, as another process would.
	Again func(testing.TB) *sqldb.DB
	// SQL opens the database without a store, for who writes by hand. Its
	// transactions take the lock of the database at their first write at the latest.
	SQL func(testing.TB) *sql.DB
	// Name is what a child process opens it by; see Main.
	Name string
}

// Run runs the suite. open gives each test a database of its own.
func Run(t *testing.T, open func(*testing.T) Harness) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Harness){
		"changes of a rule":                    testRule,
		"candidates":                           testCandidate,
		"rollbacks":                            testRollback,
		"what may be a candidate":              testCandidateRules,
		"a candidate on trial":                 testTrial,
		"overrides that do not fit any more":   testMisfits,
		"patterns":                             testPatterns,
		"a reset gives numbers anew":           testReset,
		"resets are passed on once":            testResetsOnce,
		"the store's clock":                    testClock,
		"overrides":                            testOverrides,
		"many overrides go with their rule":    testManyGo,
		"keys":                                 testKeys,
		"resets":                               testResets,
		"refusals":                             testRefusals,
		"bulks are all or nothing":             testBulk,
		"a large bulk":                         testLargeBulk,
		"writers that wait are told":           testBusy,
		"dry runs":                             testDryRun,
		"history and audit":                    testAudit,
		"pages":                                testPages,
		"revisions stand above the clock":      testRevisions,
		"rows of others":                       testRows,
		"random histories":                     testModel,
		"50 writers with one If-Match":         testOneWins,
		"50 writers of 50 rules":               testAllWin,
		"a commit that comes late":             testLateCommit,
		"readers see one moment":               testOneMoment,
		"a wait ends with a change":            testWait,
		"a wait ends with another store's":     testWaitElsewhere,
		"a watcher follows":                    testFollow,
		"a row changed by hand is found":       testByHand,
		"a writer that is killed":              testKilled,
		"a database that is older than it was": testOlder,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// by is the author of most changes.
func by() rulestore.Author { return rulestore.Author{Who: "kim", Why: "a test"} }

// bucket is the body of a rule.
func bucket(id string, burst int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(
		`{"id":%q,"match":{"plan":"free"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":%d}`, id, burst))
}

// override is the body of an override.
func override(rule, key string, burst int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"key":%q,"rule":%q,"burst":%d}`, key, rule, burst))
}

func put(id string, burst int, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionPut, IfMatch: ifMatch, Body: bucket(id, burst)}
}

// apply makes changes that must succeed.
func (h *Harness) apply(t testing.TB, changes ...rulestore.Change) rulestore.Applied {
	t.Helper()
	applied, err := h.Store.Apply(t.Context(), by(), changes...)
	if err != nil {
		t.Fatalf("%+v: %v", changes, err)
	}
	return applied
}

// whole returns everything.
func (h *Harness) whole(t testing.TB) rulestore.Set {
	t.Helper()
	set, err := h.Store.Whole(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// rule returns a rule that must be there.
func (h *Harness) rule(t testing.TB, id string) rulestore.Rule {
	t.Helper()
	r, err := h.Store.Rule(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// audit returns all entries of a filter.
func (h *Harness) audit(t testing.TB, f rulestore.AuditFilter) []rulestore.Entry {
	t.Helper()
	f.Limit = rulestore.MaxPage
	entries, err := h.Store.Audit(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// byHand runs a statement by hand.
func byHand(t testing.TB, db interface {
	Exec(query string, args ...any) (sql.Result, error)
}, query string, args ...any,
) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// wantCode fails the test unless err has that code.
func wantCode(t testing.TB, err error, want rulestore.Code) {
	t.Helper()
	if got := rulestore.CodeOf(err); got != want {
		t.Errorf("got error %v (code %q), want code %q", err, got, want)
	}
}
