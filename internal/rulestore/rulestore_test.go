package rulestore_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

func TestKeyID(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		by     []string
		a, b   []string
		isSame bool
	}{
		{"one address in two spellings", []string{"ip"}, []string{"203.0.113.9"}, []string{"::ffff:203.0.113.9"}, true},
		{"two hosts of one network of IPv6", []string{"ip"}, []string{"2001:db8::1"}, []string{"2001:db8::2"}, true},
		{"an address that is none", []string{"ip"}, []string{"x"}, []string{"y"}, false},
		{"the same text that is no address", []string{"user"}, []string{"203.0.113.9"}, []string{"::ffff:203.0.113.9"}, false},
		{"parts that join to the same", []string{"user", "route"}, []string{"a", "b,c"}, []string{"a,b", "c"}, false},
		{"an unknown identity", nil, []string{"a"}, []string{"a"}, true},
	}
	for _, tt := range tests {
		a, b := rulestore.KeyID(tt.by, tt.a), rulestore.KeyID(tt.by, tt.b)
		if (a == b) != tt.isSame {
			t.Errorf("%s: %s and %s", tt.name, a, b)
		}
	}
	key := []string{"203.0.113.9", "::ffff:203.0.113.9"}
	rulestore.KeyID([]string{"ip", "ip"}, key)
	if key[1] != "::ffff:203.0.113.9" {
		t.Errorf("KeyID changed its argument to %q", key)
	}
}

func rule(id string, burst int64) rules.Rule {
	r, problems := rules.ParseRule(json.RawMessage(`{"id":"` + id + `","covers_all":true,"identity":["ip"],"algorithm":"token_bucket","rate":1,"burst":10}`))
	if len(problems) > 0 {
		panic(problems)
	}
	r.Burst = burst
	return r
}

func body(t testing.TB, value any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestToward(t *testing.T) {
	t.Parallel()
	override := func(rule, key string, burst int64) rules.Override {
		return rules.Override{Rule: rule, Key: []string{key}, Numbers: rules.Numbers{Burst: burst}}
	}
	stored := func(o rules.Override, version int64) rulestore.Override {
		return rulestore.Override{Rule: o.Rule, Key: o.Key, ID: rulestore.KeyID([]string{"ip"}, o.Key), Body: body(t, o), Version: version}
	}
	now := rulestore.Set{
		Rules: []rulestore.Rule{
			{ID: "bad", Live: json.RawMessage("junk"), Version: 4},
			{ID: "gone", Live: body(t, rule("gone", 1)), Version: 2},
			{ID: "new-numbers", Live: body(t, rule("new-numbers", 1)), Version: 3},
			{ID: "same", Live: body(t, rule("same", 1)), Version: 9},
		},
		Overrides: []rulestore.Override{
			stored(override("gone", "203.0.113.1", 5), 1), stored(override("same", "203.0.113.2", 5), 6), stored(override("same", "203.0.113.3", 5), 7),
		},
	}
	want := rules.Set{
		Rules:     []rules.Rule{rule("same", 1), rule("new-numbers", 2), rule("more", 1), rule("bad", 1)},
		Overrides: []rules.Override{override("same", "::ffff:203.0.113.2", 5), override("more", "203.0.113.4", 5)},
	}
	type step struct {
		action  rulestore.Action
		rule    string
		ifMatch int64
	}
	steps := func(p rulestore.Plan) (out []step) {
		for _, c := range p.Changes() {
			out = append(out, step{c.Action, c.Rule, c.IfMatch})
		}
		return out
	}
	kept := []step{
		{rulestore.ActionPut, "new-numbers", 3},
		{rulestore.ActionPut, "more", 0},
		{rulestore.ActionPut, "bad", 4},
		{rulestore.ActionOverride, "same", 6},
		{rulestore.ActionOverride, "more", 0},
	}
	plan, err := now.Toward(want, false)
	if err != nil || !slices.Equal(steps(plan), kept) || plan.ExtraRules != 1 || plan.ExtraOverrides != 2 {
		t.Errorf("got %v, %+v, %v; want %v", steps(plan), plan, err, kept)
	}
	pruned := append(slices.Clone(kept), step{rulestore.ActionLift, "same", 7}, step{rulestore.ActionDelete, "gone", 2})
	plan, err = now.Toward(want, true)
	if err != nil || !slices.Equal(steps(plan), pruned) || plan.ExtraRules+plan.ExtraOverrides != 0 {
		t.Errorf("with prune: got %v, %v; want %v", steps(plan), err, pruned)
	}
}

// What two sets differ in, their hashes differ in.
func TestDigest(t *testing.T) {
	t.Parallel()
	r := rulestore.Rule{ID: "a", Live: json.RawMessage("x"), Version: 1, Revision: 1}
	o := rulestore.Override{Rule: "a", ID: "k", Body: json.RawMessage("x"), Version: 1, Revision: 1}
	seen := map[string]string{rulestore.Digest(nil, nil): "nothing"}
	add := func(name string, list []rulestore.Rule, overrides []rulestore.Override) {
		hash := rulestore.Digest(list, overrides)
		if other, taken := seen[hash]; taken {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[hash] = name
	}
	change := func(name string, f func(*rulestore.Rule)) {
		other := r
		f(&other)
		add(name, []rulestore.Rule{other}, nil)
	}
	add("a rule", []rulestore.Rule{r}, nil)
	add("two rules", []rulestore.Rule{r, r}, nil)
	add("an override", nil, []rulestore.Override{o})
	add("both", []rulestore.Rule{r}, []rulestore.Override{o})
	change("another id", func(r *rulestore.Rule) { r.ID = "b" })
	change("text moved between fields", func(r *rulestore.Rule) { r.ID, r.Live = "ax", nil })
	change("a candidate", func(r *rulestore.Rule) { r.Candidate.Body = json.RawMessage("x") })
	change("a stage", func(r *rulestore.Rule) { r.Candidate.Stage = rulestore.StageCanary })
	change("a percent", func(r *rulestore.Rule) { r.Candidate.Percent = 5 })
	change("a version", func(r *rulestore.Rule) { r.Version = 2 })
	change("a revision", func(r *rulestore.Rule) { r.Revision = 2 })
}
