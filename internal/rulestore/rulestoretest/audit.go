package rulestoretest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

func as(err error, target **rulestore.Error) bool { return errors.As(err, target) }

func testAudit(t *testing.T, h Harness) {
	ctx := t.Context()
	start := time.Now().Add(-time.Second)
	lee := rulestore.Author{Who: "lee", Why: "launch"}
	h.apply(t, put("a", 10, 0))
	if _, err := h.Store.Apply(ctx, lee, put("a", 20, 1)); err != nil {
		t.Fatal(err)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionPropose, Body: bucket("a", 30), IfMatch: 2})
	h.apply(t, rulestore.Change{Action: rulestore.ActionDelete, Rule: "a", IfMatch: 3})
	h.apply(t, put("b", 1, 0), rulestore.Change{Action: rulestore.ActionOverride, Body: override("b", "k", 5)})

	history, err := h.Store.History(ctx, "a", 0, 0)
	if err != nil || len(history) != 4 || !history[0].Deleted || history[0].Action != rulestore.ActionDelete ||
		history[1].Candidate.Body == nil || history[2].Author != lee || !strings.Contains(string(history[3].Live), `"burst":10`) {
		t.Errorf("got %+v, %v", history, err)
	}
	if older, err := h.Store.History(ctx, "a", 3, 1); err != nil || len(older) != 1 || older[0].Version != 2 {
		t.Errorf("got %+v, %v", older, err)
	}
	if v, err := h.Store.Version(ctx, "a", 2); err != nil || v.Author != lee || v.Revision == 0 || v.ChangedAt.IsZero() {
		t.Errorf("got %+v, %v", v, err)
	}
	_, err = h.Store.Version(ctx, "a", 5)
	wantCode(t, err, rulestore.NotFound)
	_, err = h.Store.History(ctx, "never", 0, 0)
	wantCode(t, err, rulestore.NotFound)

	for name, tt := range map[string]struct {
		filter rulestore.AuditFilter
		want   int
	}{
		"all":           {rulestore.AuditFilter{}, 6},
		"of a rule":     {rulestore.AuditFilter{Rule: "b"}, 2},
		"of a key":      {rulestore.AuditFilter{Key: []string{"k"}}, 1},
		"of a person":   {rulestore.AuditFilter{Who: "lee"}, 1},
		"of an action":  {rulestore.AuditFilter{Action: rulestore.ActionPut}, 3},
		"of a time":     {rulestore.AuditFilter{From: start, To: time.Now().Add(time.Second)}, 6},
		"before it all": {rulestore.AuditFilter{To: start}, 0},
		"after it all":  {rulestore.AuditFilter{From: time.Now().Add(time.Minute)}, 0},
	} {
		if got := h.audit(t, tt.filter); len(got) != tt.want {
			t.Errorf("%s: %d entries, want %d", name, len(got), tt.want)
		}
	}
	entry := h.audit(t, rulestore.AuditFilter{Who: "lee"})[0]
	if entry.Why != "launch" || entry.Rule != "a" || entry.Version != 2 || !strings.Contains(string(entry.Before), `"burst":10`) || !strings.Contains(string(entry.After), `"burst":20`) {
		t.Errorf("got %+v", entry)
	}
	if e := h.audit(t, rulestore.AuditFilter{Action: rulestore.ActionPropose})[0]; !strings.Contains(string(e.After), `"stage":"shadow"`) {
		t.Errorf("got %s", e.After)
	}
	if e := h.audit(t, rulestore.AuditFilter{Action: rulestore.ActionDelete})[0]; e.After != nil || e.Before == nil {
		t.Errorf("got %+v", e)
	}
}

func testPages(t *testing.T, h Harness) {
	ctx := t.Context()
	h.apply(t, put("a", 10, 0), put("b", 10, 0))
	var changes []rulestore.Change
	for i := range 7 {
		for _, rule := range []string{"a", "b"} {
			changes = append(changes, rulestore.Change{Action: rulestore.ActionOverride, Body: override(rule, fmt.Sprintf("k%d", i), 5)})
		}
	}
	h.apply(t, changes...)
	seen := map[rulestore.OverrideName]bool{}
	page := rulestore.OverridePage{Limit: 3}
	for {
		list, err := h.Store.Overrides(ctx, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			name := rulestore.OverrideName{Rule: o.Rule, ID: o.ID}
			if seen[name] {
				t.Errorf("%v comes twice", name)
			}
			seen[name], page.After = true, name
		}
		if len(list) < 3 {
			break
		}
	}
	if len(seen) != 14 {
		t.Errorf("%d overrides, want 14", len(seen))
	}
	if list, err := h.Store.Overrides(ctx, rulestore.OverridePage{Rule: "b"}); err != nil || len(list) != 7 {
		t.Errorf("%d of b, %v", len(list), err)
	}
	filter, entries := rulestore.AuditFilter{Limit: 5}, 0
	for {
		list, err := h.Store.Audit(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if filter.Before != 0 && e.ID >= filter.Before {
				t.Errorf("entry %d after %d", e.ID, filter.Before)
			}
			filter.Before = e.ID
			entries++
		}
		if len(list) < 5 {
			break
		}
	}
	if entries != 16 {
		t.Errorf("%d entries, want 16", entries)
	}
	_, err := h.Store.Audit(ctx, rulestore.AuditFilter{Limit: rulestore.MaxPage + 1})
	wantCode(t, err, rulestore.Invalid)
	_, err = h.Store.Overrides(ctx, rulestore.OverridePage{Limit: -1})
	wantCode(t, err, rulestore.Invalid)
	_, err = h.Store.History(ctx, "a", 0, -1)
	wantCode(t, err, rulestore.Invalid)
}

func testRevisions(t *testing.T, h Harness) {
	before := time.Now().UnixMilli()
	if first := h.apply(t, put("a", 1, 0)); first.Revision < before {
		t.Errorf("revision %d is below the clock's %d", first.Revision, before)
	}
	// Where the clock stands behind, revisions go on by one.
	ahead := time.Now().Add(time.Hour).UnixMilli()
	byHand(t, h.SQL(t), `UPDATE revision SET revision = $1`, ahead)
	if next := h.apply(t, put("a", 2, 1)); next.Revision != ahead+1 {
		t.Errorf("revision %d, want %d", next.Revision, ahead+1)
	}
}
