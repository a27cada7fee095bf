package wire_test

import (
	"bytes"
	"context"
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
		encoded := bytes.NewBufferString(`{"revision":9,"new":[{}],`) // with a field of a version to come
		w := wire.NewWriter(encoded)
		w.All(set.Rules, set.Overrides, resets)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if bytes.ContainsRune(encoded.Bytes(), '\n') {
			t.Fatalf("%s has a newline, which ends an event", encoded)
		}
		var back wire.Answer
		d := json.NewDecoder(encoded)
		if err := back.Decode(d); err != nil || d.More() || back.Revision != 9 {
			t.Fatalf("%+v, %v", back, err)
		}
		list, overrides, again := back.Rules, back.Overrides, back.Resets
		if !reflect.DeepEqual(list, set.Rules) && len(list)+len(set.Rules) > 0 || !reflect.DeepEqual(overrides, set.Overrides) && len(overrides)+len(set.Overrides) > 0 {
			t.Fatalf("got %+v %+v, want %+v %+v", list, overrides, set.Rules, set.Overrides)
		}
		if !reflect.DeepEqual(again, resets) || rulestore.Digest(list, overrides) != set.Hash {
			t.Fatalf("resets %+v, or another digest", again)
		}
	})
}

// diff is what changed between two sets, the slow way.
func diff(before, after rulestore.Set) rulestore.Changes {
	c := rulestore.Changes{Revision: after.Revision}
	for _, r := range after.Rules {
		if !slices.ContainsFunc(before.Rules, func(b rulestore.Rule) bool { return reflect.DeepEqual(b, r) }) {
			c.Rules = append(c.Rules, r)
		}
	}
	for _, r := range before.Rules {
		if !slices.ContainsFunc(after.Rules, func(a rulestore.Rule) bool { return a.ID == r.ID }) {
			c.Rules = append(c.Rules, rulestore.Rule{ID: r.ID, Deleted: true})
		}
	}
	for _, o := range after.Overrides {
		if !slices.ContainsFunc(before.Overrides, func(b rulestore.Override) bool { return reflect.DeepEqual(b, o) }) {
			c.Overrides = append(c.Overrides, o)
		}
	}
	for _, o := range before.Overrides {
		if !slices.ContainsFunc(after.Overrides, func(a rulestore.Override) bool { return a.Rule == o.Rule && a.ID == o.ID }) {
			c.Overrides = append(c.Overrides, rulestore.Override{Rule: o.Rule, ID: o.ID, Deleted: true})
		}
	}
	return c
}

// Changes lead from one set to the next, in one step or by way of another, and leave the
// set before as it is.
func TestMergeFollows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sets := []rulestore.Set{drawSet(t, 1), drawSet(t, 2), drawSet(t, 3)}
		held, rows := sets[0], slices.Clone(sets[0].Rules)
		first, second := diff(sets[0], sets[1]), diff(sets[1], sets[2])
		both := rulestore.Changes{
			Revision: 3, Rules: slices.Concat(first.Rules, second.Rules), Overrides: slices.Concat(first.Overrides, second.Overrides),
		}
		for name, got := range map[string]rulestore.Set{
			"step by step": wire.Merge(wire.Merge(sets[0], first), second),
			"at once":      wire.Merge(sets[0], both),
		} {
			if got.Hash != sets[2].Hash || got.Revision != 3 {
				t.Fatalf("%s: got %+v, want %+v", name, got, sets[2])
			}
		}
		if !reflect.DeepEqual(held.Rules, rows) && len(rows) > 0 {
			t.Fatal("a set that was handed out changed")
		}
	})
}

// reader has a set that a test puts there, and counts questions.
type reader struct {
	set     rulestore.Set
	changes rulestore.Changes
	wholes  int
}

func (r *reader) Whole(context.Context) (rulestore.Set, error) {
	r.wholes++
	return r.set, nil
}

func (r *reader) Since(context.Context, int64) (rulestore.Changes, error) { return r.changes, nil }

// A copy asks for everything once, and again where changes do not tell all.
func TestCopy(t *testing.T) {
	t.Parallel()
	rule := func(version int64) rulestore.Rule { return rulestore.Rule{ID: "a", Version: version} }
	whole := func(revision, version int64) rulestore.Set {
		list := []rulestore.Rule{rule(version)}
		return rulestore.Set{Revision: revision, Rules: list, Hash: rulestore.Digest(list, nil)}
	}
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	r := &reader{}
	c := wire.Copy{Reader: r, Now: func() time.Time { return now }}
	for _, tt := range []struct {
		name    string
		set     rulestore.Set
		changes rulestore.Changes
		after   time.Duration
		wholes  int
	}{
		{"the first question", whole(1, 1), rulestore.Changes{}, 0, 1},
		{"nothing new", whole(1, 1), rulestore.Changes{Revision: 1}, 0, 0},
		{"a change", whole(2, 2), rulestore.Changes{Revision: 2, Rules: []rulestore.Rule{rule(2)}}, 0, 0},
		{"a change with its digest", whole(3, 3), rulestore.Changes{Revision: 3, Hash: whole(3, 3).Hash, Rules: []rulestore.Rule{rule(3)}}, 0, 0},
		{"another digest", whole(3, 4), rulestore.Changes{Revision: 3, Hash: whole(3, 4).Hash}, 0, 1},
		{"what is forgotten", whole(9, 5), rulestore.Changes{Revision: 9, Forgotten: true}, 0, 1},
		{"an older database", whole(2, 2), rulestore.Changes{Revision: 2}, 0, 1},
		{"a minute later", whole(2, 7), rulestore.Changes{Revision: 2}, rulestore.WholeEvery, 1},
	} {
		now = now.Add(tt.after)
		before := r.wholes
		r.set, r.changes = tt.set, tt.changes
		got, err := c.Whole(t.Context())
		if err != nil || got.Hash != tt.set.Hash || got.Revision != tt.set.Revision || r.wholes-before != tt.wholes {
			t.Errorf("%s: %+v after %d questions for everything, %v; want %+v after %d", tt.name, got, r.wholes-before, err, tt.set, tt.wholes)
		}
	}
}
