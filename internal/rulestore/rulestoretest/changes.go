package rulestoretest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

func testRule(t *testing.T, h Harness) {
	first := h.apply(t, put("a", 10, 0))
	if r := first.Results[0]; r.Version != 1 || r.Rule.ID != "a" || r.Rule.LiveVersion != 1 || r.Before != nil || !strings.Contains(string(r.After), `"burst":10`) {
		t.Errorf("got %+v", r)
	}
	if r := h.rule(t, "a"); r.Version != 1 || r.Revision != first.Revision || !strings.Contains(string(r.Live), `"burst":10`) || r.ChangedAt.IsZero() {
		t.Errorf("got %+v", r)
	}
	second := h.apply(t, put("a", 20, 1))
	if second.Revision <= first.Revision || second.Results[0].Version != 2 {
		t.Errorf("got %+v after %+v", second, first)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionShadow, Rule: "a", IfMatch: 2})
	if r := h.rule(t, "a"); !strings.Contains(string(r.Live), `"mode":"shadow"`) || r.LiveVersion != 3 || r.Previous != 2 {
		t.Errorf("got %s, %+v", r.Live, r)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionEnforce, Rule: "a", IfMatch: 3})
	if r := h.rule(t, "a"); !strings.Contains(string(r.Live), `"mode":"enforce"`) {
		t.Errorf("got %s", r.Live)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 4})
	_, err := h.Store.Rule(t.Context(), "a")
	wantCode(t, err, rulestore.NotFound)
	changes, err := h.Store.Since(t.Context(), second.Revision)
	if err != nil || len(changes.Rules) != 1 || !changes.Rules[0].Deleted || changes.Rules[0].Version != 5 || changes.Rules[0].Live != nil {
		t.Errorf("got %+v, %v; want a tombstone", changes, err)
	}
	if set := h.whole(t); len(set.Rules) != 0 || set.Revision != changes.Revision {
		t.Errorf("got %+v", set)
	}
	// A version is never used twice.
	if again := h.apply(t, put("a", 30, 0)); again.Results[0].Version != 6 {
		t.Errorf("got %+v", again)
	}
}

func testCandidate(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0))
	change := func(action rulestore.Action, percent int) rulestore.Rule {
		t.Helper()
		c := rulestore.Change{Action: action, Rule: "a", IfMatch: h.rule(t, "a").Version, Percent: percent}
		if action == rulestore.ActionPropose || action == rulestore.ActionPut {
			c.Body = bucket("a", 20)
		}
		h.apply(t, c)
		return h.rule(t, "a")
	}
	r := change(rulestore.ActionPropose, 0)
	if c := r.Candidate; c.Stage != rulestore.StageShadow || c.Percent != 0 || !strings.Contains(string(c.Body), `"burst":20`) || c.Since.IsZero() ||
		!strings.Contains(string(r.Live), `"burst":10`) || r.LiveVersion != 1 {
		t.Errorf("proposed: %+v", r)
	}
	if c := change(rulestore.ActionCanary, 5).Candidate; c.Stage != rulestore.StageCanary || c.Percent != 5 {
		t.Errorf("canary: %+v", c)
	}
	if c := change(rulestore.ActionCanary, 0).Candidate; c.Stage != rulestore.StageShadow || c.Percent != 0 {
		t.Errorf("canary 0: %+v", c)
	}
	r = change(rulestore.ActionPromote, 0)
	if r.Candidate.Body != nil || !strings.Contains(string(r.Live), `"burst":20`) || r.Previous != 1 || r.LiveVersion != 5 {
		t.Errorf("promoted: %+v", r)
	}
	// Put replaces the live version and leaves the candidate.
	change(rulestore.ActionPropose, 0)
	if r = change(rulestore.ActionPut, 0); r.Candidate.Body == nil {
		t.Errorf("put dropped the candidate: %+v", r)
	}
	for _, action := range []rulestore.Action{rulestore.ActionRollback, rulestore.ActionDelete} {
		if r, err := h.Store.Apply(t.Context(), by(), rulestore.Change{Action: action, Rule: "a", IfMatch: h.rule(t, "a").Version}); err != nil || r.Results[0].Rule.Candidate.Body != nil {
			t.Errorf("%s: %+v, %v", action, r, err)
		}
	}
}

func testRollback(t *testing.T, h Harness) {
	for i, burst := range []int{10, 20, 30} {
		h.apply(t, put("a", burst, int64(i)))
	}
	back := func() rulestore.Change {
		return rulestore.Change{Action: rulestore.ActionRollback, Rule: "a", IfMatch: h.rule(t, "a").Version}
	}
	for _, want := range []string{`"burst":20`, `"burst":10`} {
		h.apply(t, back())
		if r := h.rule(t, "a"); !strings.Contains(string(r.Live), want) {
			t.Errorf("got %s, want %s", r.Live, want)
		}
	}
	_, err := h.Store.Apply(t.Context(), by(), back())
	wantCode(t, err, rulestore.Invalid)
	// With a candidate it is the candidate that goes.
	h.apply(t, rulestore.Change{Action: rulestore.ActionPropose, Body: bucket("a", 99), IfMatch: 5})
	h.apply(t, back())
	if r := h.rule(t, "a"); r.Candidate.Body != nil || !strings.Contains(string(r.Live), `"burst":10`) {
		t.Errorf("got %+v", r)
	}
}

func testOverrides(t *testing.T, h Harness) {
	ctx := t.Context()
	h.apply(t, rulestore.Change{Action: rulestore.ActionPut, Body: json.RawMessage(
		`{"id":"a","covers_all":true,"identity":["ip"],"algorithm":"token_bucket","rate":1,"burst":10}`)})
	at := h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "203.0.113.9", 20)})
	// Two spellings of one address are one override.
	other := []string{"::ffff:203.0.113.9"}
	if o, err := h.Store.Override(ctx, "a", other); err != nil || o.Version != 1 || !slices.Equal(o.Key, []string{"203.0.113.9"}) {
		t.Errorf("got %+v, %v", o, err)
	}
	_, err := h.Store.Apply(ctx, by(), rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", other[0], 30)})
	wantCode(t, err, rulestore.Conflict)
	h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", other[0], 30), IfMatch: 1})
	if set := h.whole(t); len(set.Overrides) != 1 || !strings.Contains(string(set.Overrides[0].Body), `"burst":30`) {
		t.Errorf("got %+v", set)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionLift, Rule: "a", Key: []string{"203.0.113.9"}, IfMatch: 2})
	_, err = h.Store.Override(ctx, "a", other)
	wantCode(t, err, rulestore.NotFound)
	changes, err := h.Store.Since(ctx, at.Revision)
	if err != nil || len(changes.Overrides) != 1 || !changes.Overrides[0].Deleted || changes.Overrides[0].Version != 3 || len(changes.Overrides[0].Key) != 1 {
		t.Errorf("got %+v, %v; want a tombstone with its key", changes, err)
	}
	if again := h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "203.0.113.9", 20)}); again.Results[0].Version != 4 {
		t.Errorf("got %+v", again)
	}
	// Its overrides go with a rule.
	h.apply(t, rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 1})
	if set := h.whole(t); len(set.Overrides) != 0 {
		t.Errorf("got %+v", set.Overrides)
	}
	if lifts := h.audit(t, rulestore.AuditFilter{Action: rulestore.ActionLift}); len(lifts) != 2 || lifts[0].After != nil || lifts[0].Before == nil {
		t.Errorf("got %+v", lifts)
	}
}

// A rule with many overrides can be deleted in a time that its author waits for.
func testManyGo(t *testing.T, h Harness) {
	const many = 50_000
	h.apply(t, put("a", 10, 0), put("b", 10, 0))
	kept := h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("b", "k", 20)})
	db := h.SQL(t)
	start := time.Now()
	_, err := db.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)
		INSERT INTO overrides (rule_id, key_id, key_json, body, version, revision, deleted, changed_at_ms)
		SELECT 'a', '["k' || i || '"]', '["k' || i || '"]', '{"rule":"a","key":"k' || i || '","burst":30}', 7, $1, FALSE, 0 FROM n`, kept.Revision)
	if err != nil {
		t.Fatal(err)
	}
	// One statement wrote them; the measure is how long that took on this machine.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Since(start)+3*time.Second)
	defer cancel()
	gone, err := h.Store.Apply(ctx, by(), rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if set := h.whole(t); len(set.Overrides) != 1 || set.Overrides[0].Rule != "b" {
		t.Errorf("%d overrides are left", len(set.Overrides))
	}
	var lifted, told int
	err = db.QueryRowContext(t.Context(), `SELECT
		(SELECT count(*) FROM overrides WHERE rule_id = 'a' AND deleted AND version = 8 AND revision = $1 AND changed_at_ms > 0),
		(SELECT count(*) FROM audit WHERE rule_id = 'a' AND action = 'lift' AND version = 8 AND revision = $1 AND at_ms > 0
			AND who = 'kim' AND why = 'a test' AND became = '' AND was LIKE '%"burst":30%')`, gone.Revision).Scan(&lifted, &told)
	if err != nil || lifted != many || told != many {
		t.Errorf("%d were lifted and %d told of, %v; want %d", lifted, told, err, many)
	}
}

// Keys are anything a client sends: long, with NUL, in several parts.
func testKeys(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), rulestore.Change{Action: rulestore.ActionPut, Body: json.RawMessage(
		`{"id":"two","covers_all":true,"identity":["user","route"],"algorithm":"token_bucket","rate":1,"burst":10}`)})
	long := strings.Repeat("k", 4096)
	for _, tt := range []struct {
		rule string
		key  []string
	}{
		{"a", []string{long}},
		{"a", []string{long[1:] + "l"}},
		{"a", []string{"a\x00b"}},
		{"a", []string{"<ü>"}},
		{"two", []string{"a", "b,c"}},
		{"two", []string{"a,b", "c"}},
	} {
		body, err := json.Marshal(map[string]any{"rule": tt.rule, "key": tt.key, "burst": 7})
		if err != nil {
			t.Fatal(err)
		}
		h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: body}, rulestore.Change{Action: rulestore.ActionReset, Rule: tt.rule, Key: tt.key})
		if o, err := h.Store.Override(t.Context(), tt.rule, tt.key); err != nil || !slices.Equal(o.Key, tt.key) {
			t.Errorf("%.20q: got %.20q, %v", tt.key, o.Key, err)
		}
		if entries := h.audit(t, rulestore.AuditFilter{Rule: tt.rule, Key: tt.key}); len(entries) != 2 {
			t.Errorf("%.20q: %d audit rows, want 2", tt.key, len(entries))
		}
	}
	set := h.whole(t)
	if live, problems := set.Live(); len(live.Overrides) != 6 || len(problems) > 0 {
		t.Errorf("%d overrides, %v", len(live.Overrides), problems)
	}
	body, err := json.Marshal(map[string]any{"rule": "a", "key": long + "k", "burst": 7})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Store.Apply(t.Context(), by(), rulestore.Change{Action: rulestore.ActionOverride, Body: body})
	wantCode(t, err, rulestore.Invalid)
}

func testResets(t *testing.T, h Harness) {
	made := h.apply(t, put("a", 10, 0))
	h.apply(t, rulestore.Change{Action: rulestore.ActionReset, Rule: "a", Key: []string{"k"}}, rulestore.Change{Action: rulestore.ActionReset, Key: []string{"k", "l"}})
	changes, err := h.Store.Since(t.Context(), made.Revision)
	if err != nil || len(changes.Resets) != 2 || changes.Resets[0].Rule != "a" || !slices.Equal(changes.Resets[1].Key, []string{"k", "l"}) ||
		changes.Resets[0].Revision != changes.Revision || len(changes.Rules) != 0 {
		t.Errorf("got %+v, %v", changes, err)
	}
	if entries := h.audit(t, rulestore.AuditFilter{Key: []string{"k"}}); len(entries) != 1 || entries[0].Action != rulestore.ActionReset {
		t.Errorf("got %+v", entries)
	}
	// What is long over leaves the feed with the next reset.
	byHand(t, h.SQL(t), `UPDATE resets SET at_ms = $1`, time.Now().Add(-2*rulestore.ResetsKept).UnixMilli())
	h.apply(t, rulestore.Change{Action: rulestore.ActionReset, Key: []string{"m"}})
	if changes, err := h.Store.Since(t.Context(), 0); err != nil || len(changes.Resets) != 1 {
		t.Errorf("got %+v, %v", changes.Resets, err)
	}
}

func testRefusals(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), put("w", 10, 0), rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "k", 5)})
	before := h.whole(t)
	for name, tt := range map[string]struct {
		change rulestore.Change
		want   rulestore.Code
	}{
		"put of one that is there":     {put("a", 11, 0), rulestore.Conflict},
		"put with an old version":      {put("a", 11, 7), rulestore.Conflict},
		"put of one that is not there": {put("b", 11, 1), rulestore.NotFound},
		"put of another":               {rulestore.Change{Action: rulestore.ActionPut, Rule: "b", Body: bucket("a", 1)}, rulestore.Invalid},
		"put with a fault":             {rulestore.Change{Action: rulestore.ActionPut, Body: json.RawMessage(`{"id":"b","burst":0}`)}, rulestore.Invalid},
		"put without a body":           {rulestore.Change{Action: rulestore.ActionPut, Rule: "b"}, rulestore.Invalid},
		"delete of nothing":            {rulestore.Change{Action: rulestore.ActionDelete, Rule: "b"}, rulestore.NotFound},
		"delete with an old version":   {rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 2}, rulestore.Conflict},
		"delete without a version":     {rulestore.Change{Action: rulestore.ActionDelete, Rule: "a"}, rulestore.Conflict},
		"promote of nothing":           {rulestore.Change{Action: rulestore.ActionPromote, Rule: "a", IfMatch: 1}, rulestore.Invalid},
		"canary of nothing":            {rulestore.Change{Action: rulestore.ActionCanary, Rule: "a", IfMatch: 1, Percent: 5}, rulestore.Invalid},
		"propose for nothing":          {rulestore.Change{Action: rulestore.ActionPropose, Body: bucket("b", 1)}, rulestore.NotFound},
		"rollback to nothing":          {rulestore.Change{Action: rulestore.ActionRollback, Rule: "a", IfMatch: 1}, rulestore.Invalid},
		"override of no rule":          {rulestore.Change{Action: rulestore.ActionOverride, Body: override("b", "k", 1)}, rulestore.NotFound},
		"override that does not fit":   {rulestore.Change{Action: rulestore.ActionOverride, Body: json.RawMessage(`{"rule":"a","key":"l","limit":1}`)}, rulestore.Invalid},
		"override with an old version": {rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "k", 1), IfMatch: 2}, rulestore.Conflict},
		"lift of nothing":              {rulestore.Change{Action: rulestore.ActionLift, Rule: "a", Key: []string{"l"}}, rulestore.NotFound},
		"reset of no key":              {rulestore.Change{Action: rulestore.ActionReset, Rule: "a"}, rulestore.Invalid},
		"reset of no rule":             {rulestore.Change{Action: rulestore.ActionReset, Rule: "b", Key: []string{"k"}}, rulestore.NotFound},
		"no action":                    {rulestore.Change{Rule: "a", IfMatch: 1}, rulestore.Invalid},
	} {
		_, err := h.Store.Apply(t.Context(), by(), put("w", 11, 1), tt.change)
		if got := rulestore.CodeOf(err); got != tt.want {
			t.Errorf("%s: got %v (%q), want %q", name, err, got, tt.want)
			continue
		}
		if e := new(rulestore.Error); !as(err, &e) || e.Index != 1 || e.Message == "" {
			t.Errorf("%s: got %+v", name, e)
		}
	}
	for name, author := range map[string]rulestore.Author{
		"nobody": {}, "a long name": {Who: strings.Repeat("k", 257)}, "a line break": {Who: "kim", Why: "a\nb"}, "a NUL": {Who: "k\x00"},
	} {
		_, err := h.Store.Apply(t.Context(), author, put("b", 1, 0))
		if rulestore.CodeOf(err) != rulestore.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := h.Store.Apply(t.Context(), by())
	wantCode(t, err, rulestore.Invalid)
	var conflict *rulestore.Error
	if _, err := h.Store.Apply(t.Context(), by(), put("a", 11, 7)); !as(err, &conflict) || conflict.Current != 1 {
		t.Errorf("got %v, want the current version", err)
	}
	if after := h.whole(t); after.Hash != before.Hash || after.Revision != before.Revision {
		t.Error("a refusal changed something")
	}
}

func testBulk(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0))
	_, err := h.Store.Apply(t.Context(), by(), put("b", 1, 0), put("c", 1, 0), put("a", 11, 9), put("d", 1, 0))
	var e *rulestore.Error
	if !as(err, &e) || e.Index != 2 || e.Rule != "a" || e.Code != rulestore.Conflict {
		t.Errorf("got %+v", err)
	}
	if set := h.whole(t); len(set.Rules) != 1 || set.Rules[0].Version != 1 {
		t.Errorf("got %+v", set.Rules)
	}
	if n := len(h.audit(t, rulestore.AuditFilter{})); n != 1 {
		t.Errorf("%d audit rows, want that of the first put", n)
	}
	// Changes see those before them, and have one revision.
	applied := h.apply(t, put("b", 1, 0), put("b", 2, 1), rulestore.Change{Action: rulestore.ActionOverride, Body: override("b", "k", 5)},
		rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 1})
	changes, err := h.Store.Since(t.Context(), applied.Revision-1)
	if err != nil || len(changes.Rules) != 2 || len(changes.Overrides) != 1 || changes.Revision != applied.Revision {
		t.Errorf("got %+v, %v", changes, err)
	}
	if entries := h.audit(t, rulestore.AuditFilter{}); len(entries) != 5 || entries[0].Revision != applied.Revision || entries[3].Revision != applied.Revision {
		t.Errorf("got %+v", entries)
	}
}

func testDryRun(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0))
	before := h.whole(t)
	would, err := h.Store.DryRun(t.Context(), by(), put("a", 20, 1), put("b", 1, 0))
	if err != nil || would.Revision != 0 || len(would.Results) != 2 || would.Results[0].Version != 2 || !strings.Contains(string(would.Results[0].After), `"burst":20`) {
		t.Errorf("got %+v, %v", would, err)
	}
	_, err = h.Store.DryRun(t.Context(), by(), put("a", 20, 2))
	wantCode(t, err, rulestore.Conflict)
	if after := h.whole(t); after.Hash != before.Hash || after.Revision != before.Revision || len(h.audit(t, rulestore.AuditFilter{})) != 1 {
		t.Errorf("a dry run left %+v", after)
	}
	all, err := h.Store.DryRun(t.Context(), by(), rulestore.Change{Action: rulestore.ActionPut, Body: json.RawMessage(
		`{"id":"all","covers_all":true,"identity":["ip"],"algorithm":"token_bucket","rate":1,"burst":10}`)})
	if err != nil || len(all.Results[0].Warnings) == 0 {
		t.Errorf("got %+v, %v; want a warning", all, err)
	}
}
