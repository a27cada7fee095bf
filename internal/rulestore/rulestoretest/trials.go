package rulestoretest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// propose is the change that puts a candidate beside a rule.
func propose(body json.RawMessage, ifMatch int64) rulestore.Change {
	return rulestore.Change{Action: rulestore.ActionPropose, Body: body, IfMatch: ifMatch}
}

// edited is a rule's body with a part of its text replaced.
func edited(id, from, to string) json.RawMessage {
	return json.RawMessage(strings.Replace(string(bucket(id, 10)), from, to, 1))
}

func testCandidateRules(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), put("none", 10, 0),
		rulestore.Change{Action: rulestore.ActionPut, Body: json.RawMessage(`{"id":"deny","match":{"plan":"free"},"action":"deny"}`)})
	h.apply(t, propose(bucket("a", 20), 1))
	for name, tt := range map[string]struct {
		change rulestore.Change
		field  string // of the fault
		words  string
	}{
		"another match":           {propose(edited("none", `"free"`, `"paid"`), 1), "match", "give it its own id and mode shadow"},
		"another identity":        {propose(edited("none", `"api_key"`, `"ip"`), 1), "identity", "give it its own id"},
		"another domain":          {propose(edited("none", `{`, `{"domain":"d",`), 1), "domain", `in domain \"d\", the live rule in \"default\"`},
		"one that counts nothing": {propose(json.RawMessage(`{"id":"none","match":{"plan":"free"},"action":"allow"}`), 1), "action", "counts nothing"},
		"beside one that counts nothing": {
			propose(bucket("deny", 10), 1), "action", "the live rule has action deny",
		},
		"a put of another match":    {rulestore.Change{Action: rulestore.ActionPut, IfMatch: 2, Body: edited("a", `"free"`, `"paid"`)}, "match", "drop the candidate first"},
		"a put of another identity": {rulestore.Change{Action: rulestore.ActionPut, IfMatch: 2, Body: edited("a", `"api_key"`, `"ip"`)}, "identity", "drop the candidate first"},
	} {
		_, err := h.Store.Apply(t.Context(), by(), tt.change)
		e := new(rulestore.Error)
		if !as(err, &e) || e.Code != rulestore.Invalid || !strings.Contains(strings.ReplaceAll(e.Message, `"`, `\"`), tt.words) ||
			!slices.ContainsFunc(e.Problems, func(p rules.Problem) bool { return p.Field == tt.field }) {
			t.Errorf("%s: got %+v, want Invalid with field %s and %q", name, err, tt.field, tt.words)
		}
	}
	// What only counts otherwise may stand there, and numbers may change beside it.
	window := `{"id":"a","match":{"plan":"free"},"identity":["api_key"],"algorithm":"fixed_window","limit":5,"window_s":60}`
	h.apply(t, propose(json.RawMessage(window), 2), put("a", 11, 3))
	if r := h.rule(t, "a"); r.Candidate.Body == nil || burstOf(r.Live) != 11 {
		t.Errorf("got %+v", r)
	}
}

func testMisfits(t *testing.T, h Harness) {
	window := func(id string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"id":%q,"match":{"plan":"free"},"identity":["api_key"],"algorithm":"fixed_window","limit":5,"window_s":60}`, id))
	}
	changes := []rulestore.Change{put("a", 10, 0), {Action: rulestore.ActionOverride, Body: json.RawMessage(`{"rule":"a","key":"fits","max_cost":3}`)}}
	for i := range 5 {
		changes = append(changes, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", fmt.Sprint("k", i), 50)})
	}
	h.apply(t, changes...)
	warning := func(c rulestore.Change) string {
		t.Helper()
		return strings.Join(h.apply(t, c).Results[0].Warnings, "; ")
	}
	const of, three = "5 overrides of the rule do not fit ", ` and will be skipped: "k0", "k1", "k2", …`
	if got := warning(propose(window("a"), 1)); got != of+"the candidate"+three {
		t.Errorf("propose: got %q", got)
	}
	if got := warning(rulestore.Change{Action: rulestore.ActionPromote, Rule: "a", IfMatch: 2}); got != of+"this version"+three {
		t.Errorf("promote: got %q", got)
	}
	if got := warning(rulestore.Change{Action: rulestore.ActionRollback, Rule: "a", IfMatch: 3}); got != "" {
		t.Errorf("rollback: got %q", got)
	}
	if got := warning(rulestore.Change{Action: rulestore.ActionPut, Body: window("a"), IfMatch: 4}); got != of+"this version"+three {
		t.Errorf("put: got %q", got)
	}
	if got := warning(rulestore.Change{Action: rulestore.ActionShadow, Rule: "a", IfMatch: 5}); got != "" {
		t.Errorf("shadow: got %q", got)
	}
}

func testPatterns(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), rulestore.Change{Action: rulestore.ActionPut, Body: json.RawMessage(
		`{"id":"ip","covers_all":true,"identity":["ip"],"algorithm":"token_bucket","rate":1,"burst":10}`)})
	h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "acct_*", 30)},
		rulestore.Change{Action: rulestore.ActionOverride, Body: override("ip", "203.0.113.0/24", 40)})
	// Two spellings of one network are one override.
	other := "::ffff:203.0.113.0/120"
	_, err := h.Store.Apply(t.Context(), by(), rulestore.Change{Action: rulestore.ActionOverride, Body: override("ip", other, 41)})
	wantCode(t, err, rulestore.Conflict)
	w, _, _ := watch(t, h, 0)
	if a, b, c := burstInForce(w, "a", "acct_7"), burstInForce(w, "ip", "203.0.113.9"), burstInForce(w, "ip", "203.0.114.9"); a != 30 || b != 40 || c != 10 {
		t.Errorf("bursts %d, %d and %d", a, b, c)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("ip", other, 41), IfMatch: 1})
	reload(t, w)
	if b := burstInForce(w, "ip", "203.0.113.9"); b != 41 {
		t.Errorf("burst %d after the other spelling, want 41", b)
	}
	for _, key := range []string{"203.0.113.1/24", "2001:db8::/65", "x/y"} {
		_, err := h.Store.Apply(t.Context(), by(), rulestore.Change{Action: rulestore.ActionOverride, Body: override("ip", key, 1)})
		wantCode(t, err, rulestore.Invalid)
	}
	var many []rulestore.Change
	for i := range rules.MaxPatterns - 1 {
		many = append(many, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", fmt.Sprint("k", i, "_*"), 5)})
	}
	h.apply(t, many...)
	more := rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "more*", 5)}
	_, err = h.Store.Apply(t.Context(), by(), more)
	wantCode(t, err, rulestore.Invalid)
	h.apply(t, rulestore.Change{Action: rulestore.ActionOverride, Body: override("a", "exact", 5)},
		rulestore.Change{Action: rulestore.ActionLift, Rule: "a", Key: []string{"acct_*"}, IfMatch: 1}, more)
}

// candidateInForce is the burst on trial for a key; 0 if there is no trial.
func candidateInForce(w *rules.Watcher, id, key string) int64 {
	trial := w.Snapshot().Rule(id).Trial()
	if trial == nil {
		return 0
	}
	lim, _ := trial.Rule.Effective(key, time.Now())
	return lim.Burst
}

func testTrial(t *testing.T, h Harness) {
	h.apply(t, put("a", 10, 0), put("b", 10, 0), propose(bucket("a", 20), 1), rulestore.Change{Action: rulestore.ActionCanary, Rule: "a", IfMatch: 2, Percent: 5})
	w, _, log := watch(t, h, 0)
	trial := w.Snapshot().Rule("a").Trial()
	if trial == nil || trial.Stage != rules.StageCanary || trial.Percent != 5 || trial.SinceMS != h.rule(t, "a").Candidate.Since.UnixMilli() || candidateInForce(w, "a", "k") != 20 {
		t.Fatalf("got %+v", trial)
	}
	h.apply(t, propose(bucket("b", 30), 1), rulestore.Change{Action: rulestore.ActionOverride, Body: override("b", "k", 99)})
	reload(t, w)
	if other, own := candidateInForce(w, "b", "x"), candidateInForce(w, "b", "k"); other != 30 || own != 99 {
		t.Errorf("bursts %d and %d on trial, want 30 and the override's 99", other, own)
	}
	// A candidate that cannot be read is skipped alone, and named.
	next := h.whole(t).Revision + 1
	db := h.SQL(t)
	byHand(t, db, `UPDATE revision SET revision = $1`, next)
	byHand(t, db, `UPDATE rules SET candidate = 'junk', revision = $1 WHERE id = 'a'`, next)
	reload(t, w)
	if candidateInForce(w, "a", "k") != 0 || burstInForce(w, "a", "k") != 10 || candidateInForce(w, "b", "x") != 30 {
		t.Error("a candidate that cannot be read took others with it")
	}
	if !strings.Contains(log.String(), "candidate.body") {
		t.Errorf("the log does not name it:\n%s", log)
	}
	h.apply(t, rulestore.Change{Action: rulestore.ActionPromote, Rule: "b", IfMatch: 2})
	reload(t, w)
	if candidateInForce(w, "b", "x") != 0 || burstInForce(w, "b", "x") != 30 {
		t.Error("the promoted candidate is not the live rule")
	}
}
