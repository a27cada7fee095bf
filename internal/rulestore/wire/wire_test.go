package wire_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// text draws a body: as stores write it, as somebody may have written it, or none.
func text(t *rapid.T) json.RawMessage {
	switch s := rapid.SampledFrom([]string{"", "", "{", "{}", `{"id":"<a>&\u2028"}`, `{ "id": "a" }`, `"text"`, "null", "junk\x00\xff", "[1]", "{\"a\":\"\xff\"}"}).Draw(t, "body"); s {
	case "":
		return nil
	default:
		return json.RawMessage(s)
	}
}

func moment(t *rapid.T) time.Time {
	if ms := rapid.Int64Range(0, 1<<42).Draw(t, "ms"); ms > 0 {
		return time.UnixMilli(ms).UTC()
	}
	return time.Time{}
}

func drawSet(t *rapid.T, revision int64) rulestore.Set {
	name := rapid.StringOfN(rapid.RuneFrom([]rune("ab<é")), 1, 2, -1)
	number := rapid.Int64Range(0, 3)
	set := rulestore.Set{Revision: revision}
	set.Rules = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) rulestore.Rule {
		return rulestore.Rule{
			ID: name.Draw(t, "id"), Version: number.Draw(t, "version"), Revision: number.Draw(t, "revision"), Live: text(t),
			LiveVersion: number.Draw(t, "live version"), Previous: number.Draw(t, "previous"), ChangedAt: moment(t),
			Candidate: rulestore.Candidate{Body: text(t), Stage: rulestore.StageCanary, Percent: 5, Since: moment(t)},
		}
	}), 0, 6, func(r rulestore.Rule) string { return r.ID }).Draw(t, "rules")
	set.Overrides = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) rulestore.Override {
		return rulestore.Override{
			Rule: name.Draw(t, "rule"), ID: name.Draw(t, "id"), Key: []string{"k"}, Body: text(t),
			Version: number.Draw(t, "version"), Revision: number.Draw(t, "revision"), ChangedAt: moment(t),
		}
	}), 0, 6, func(o rulestore.Override) rulestore.OverrideName {
		return rulestore.OverrideName{Rule: o.Rule, ID: o.ID}
	}).Draw(t, "overrides")
	set.Sort()
	set.Hash = rulestore.Digest(set.Rules, set.Overrides)
	return set
}

// What is read is what was written, whatever stands in the bodies.
func TestRowsTravelExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t, 9)
		resets := []rulestore.Reset{{Rule: "a", Key: []string{"x", "<"}, Revision: 4, At: time.UnixMilli(7).UTC()}}
		encoded, err := wire.Encode(wire.Answer{Revision: 9, Rows: wire.RowsOf(set.Rules, set.Overrides, resets)})
		if err != nil {
			t.Fatal(err)
		}
		var back wire.Answer
		if err := json.Unmarshal(encoded, &back); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		list, overrides, again := back.Records()
		if !reflect.DeepEqual(list, set.Rules) && len(list)+len(set.Rules) > 0 || !reflect.DeepEqual(overrides, set.Overrides) && len(overrides)+len(set.Overrides) > 0 {
			t.Fatalf("got %+v %+v, want %+v %+v", list, overrides, set.Rules, set.Overrides)
		}
		if !reflect.DeepEqual(again, resets) || rulestore.Digest(list, overrides) != set.Hash {
			t.Fatalf("resets %+v, or another digest", again)
		}
	})
}

// The difference of two sets leads from one to the other; so does a mirror that is
// told it in parts, with rows that changed again.
func TestMirrorFollows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sets := []rulestore.Set{drawSet(t, 1), drawSet(t, 2), drawSet(t, 3)}
		var m wire.Mirror
		m.Replace(sets[0])
		m.Apply(wire.Diff(sets[0], sets[1]))
		if rapid.Bool().Draw(t, "look between") && m.Set().Hash != sets[1].Hash {
			t.Fatalf("got %+v, want %+v", m.Set(), sets[1])
		}
		m.Apply(wire.Diff(sets[1], sets[2]))
		m.Apply(rulestore.Changes{Revision: 2, Rules: []rulestore.Rule{{ID: "back", Version: 1}}}) // leads back: none
		if got := m.Set(); got.Hash != sets[2].Hash || m.Revision() != 3 {
			t.Fatalf("got %+v, want %+v", got, sets[2])
		}
		if back := wire.Merge(m.Set(), wire.Diff(m.Set(), sets[0])); back.Hash != sets[0].Hash {
			t.Fatalf("back: got %+v, want %+v", back, sets[0])
		}
	})
}

// A mirror keeps nothing that its callers may change.
func TestMirrorKeepsACopy(t *testing.T) {
	t.Parallel()
	set := rulestore.Set{Revision: 1, Rules: []rulestore.Rule{{ID: "a", Version: 1}}}
	var m wire.Mirror
	m.Replace(set)
	set.Rules[0].Version = 9
	if got := m.Set().Rules[0].Version; got != 1 {
		t.Errorf("version %d", got)
	}
	before := slices.Clone(m.Set().Rules)
	held := m.Set()
	m.Apply(rulestore.Changes{Revision: 2, Rules: []rulestore.Rule{{ID: "a", Version: 2}}})
	m.Set()
	if !reflect.DeepEqual(held.Rules, before) {
		t.Error("a set that was handed out changed")
	}
}
