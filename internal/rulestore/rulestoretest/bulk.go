package rulestoretest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// set, lift and drop are changes of a large bulk.
func set(rule, key string, burst int, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionOverride, Body: override(rule, key, burst), IfMatch: ifMatch}
}

func lift(rule, key string, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionLift, Rule: rule, Key: []string{key}, IfMatch: ifMatch}
}

func drop(rule string, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionDelete, Rule: rule, IfMatch: ifMatch}
}

// A bulk is written many rows at a time; each change still sees those before it, has its
// line in the audit, in their order, and its own refusal.
func testLargeBulk(t *testing.T, h Harness) {
	const rules, keys = 7, 3_000 // several statements of rows, and some rows over
	for i := range rules {
		h.apply(t, put(fmt.Sprint("r", i), 10, 0))
	}
	h.apply(t, set("r0", "k0", 5, 0), set("r1", "k1", 5, 0), lift("r1", "k1", 1)) // r0/k0 is there, r1/k1 a tombstone
	bulk := []rulestore.Change{set("r0", "k0", 6, 1), set("r1", "k1", 6, 0)}
	for i := 2; i < keys; i++ {
		bulk = append(bulk, set(fmt.Sprint("r", i%rules), fmt.Sprint("k", i), 20, 0))
	}
	again := len(bulk)
	bulk = append(bulk,
		set("r2", "k2", 30, 1), set("r2", "k2", 40, 2), // rows that wait to be written change again
		lift("r3", "k3", 1), set("r3", "k3", 50, 0),
		drop("r4", 1), put("r4", 11, 0), set("r4", "k4", 60, 0), // its overrides went with it
	)
	refused := slices.Clone(bulk)
	refused[again-1].IfMatch = 9
	_, err := h.Store.Apply(t.Context(), by(), refused...)
	var e *rulestore.Error
	if !as(err, &e) || e.Index != again-1 || e.Rule != fmt.Sprint("r", (again-1)%rules) || !slices.Equal(e.Key, []string{fmt.Sprint("k", again-1)}) {
		t.Fatalf("got %+v, want the refusal of change %d", err, again-1)
	}
	if got := len(h.whole(t).Overrides); got != 1 {
		t.Fatalf("%d overrides after a refusal, want 1", got)
	}
	before := h.audit(t, rulestore.AuditFilter{})[0].ID

	applied := h.apply(t, bulk...)
	for at, want := range map[int]int64{0: 2, 1: 3, 2: 1, again: 2, again + 1: 3, again + 2: 2, again + 3: 3, again + 4: 2, again + 5: 3, again + 6: 3} {
		if got := applied.Results[at].Version; got != want {
			t.Errorf("change %d made version %d, want %d", at, got, want)
		}
	}
	of4 := keys / rules // those of r4 but for the last, which came back
	if keys%rules > 4 {
		of4++
	}
	whole := h.whole(t)
	if got, want := len(whole.Overrides), keys-of4+1; got != want {
		t.Errorf("%d overrides, want %d", got, want)
	}
	for _, want := range []struct {
		rule, key string
		burst     int
		version   int64
	}{{"r0", "k0", 6, 2}, {"r1", "k1", 6, 3}, {"r2", "k2", 40, 3}, {"r3", "k3", 50, 3}, {"r4", "k4", 60, 3}, {"r5", "k5", 20, 1}} {
		o, err := h.Store.Override(t.Context(), want.rule, []string{want.key})
		if err != nil || o.Version != want.version || o.Revision != applied.Revision || burstOf(o.Body) != want.burst {
			t.Errorf("%s of %s: %+v, %v; want burst %d, version %d", want.key, want.rule, o, err, want.burst, want.version)
		}
	}
	h.wantLines(t, before, bulk, applied)
}

// wantLines compares the audit after a line with what a bulk did. A line of each
// override that went with its rule stands before that of the rule.
func (h *Harness) wantLines(t *testing.T, after int64, bulk []rulestore.Change, applied rulestore.Applied) {
	t.Helper()
	var lines []rulestore.Entry
	for next := int64(0); next == 0 || next > after+1; next = lines[len(lines)-1].ID {
		page, err := h.Store.Audit(t.Context(), rulestore.AuditFilter{Before: next, Limit: rulestore.MaxPage})
		if err != nil || len(page) == 0 {
			t.Fatalf("%d lines, %v", len(page), err)
		}
		lines = append(lines, page...)
	}
	slices.Reverse(lines)
	lines = lines[slices.IndexFunc(lines, func(e rulestore.Entry) bool { return e.ID > after }):]
	at := 0
	for i, c := range bulk {
		for c.Action == rulestore.ActionDelete && lines[at].Action == rulestore.ActionLift {
			at++
		}
		line, did := lines[at], applied.Results[i]
		if line.Action != c.Action || line.Version != did.Version || line.Revision != applied.Revision ||
			string(line.Before) != string(did.Before) || string(line.After) != string(did.After) {
			t.Fatalf("change %d: the audit has %+v, the result is %+v", i, line, did)
		}
		at++
	}
	if at != len(lines) {
		t.Errorf("%d lines of the audit, want %d", len(lines), at)
	}
}

// Who waits long for other writers is told so, in this process and in another one.
func testBusy(t *testing.T, h Harness) {
	h.apply(t, put("a", 1, 0))
	tx, err := h.SQL(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	byHand(t, tx, `UPDATE revision SET revision = revision + 1`)
	together(2, func(i int) {
		if _, err := h.Store.Apply(t.Context(), by(), put("a", 10+i, 1)); !errors.Is(err, rulestore.ErrBusy) {
			t.Errorf("got error %v, want %v", err, rulestore.ErrBusy)
		}
		// Nobody who reads waits.
		if _, err := h.Store.Whole(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	h.apply(t, put("a", 20, 1))
	if body := h.rule(t, "a").Live; burstOf(body) != 20 {
		t.Errorf("got %s", body)
	}
}
