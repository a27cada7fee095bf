package rulestoretest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/rules"
)

// model is what a store must be, written the slow way: bodies by name.
type model struct {
	rules     map[string]*modelRule
	overrides map[string]*modelOverride
	applied   int // audit rows
}

type modelRule struct {
	version   int64
	exists    bool
	bursts    []int // of all live versions that a rollback can go back to; the last is in force
	candidate int   // its burst; 0 for none
	shadow    []bool
	percent   int
}

type modelOverride struct {
	version int64
	exists  bool
	burst   int
}

// apply says what a change would be answered, and makes it if that is well.
func (m *model) apply(c rulestore.Change, burst int) rulestore.Code {
	if c.Action == rulestore.ActionOverride || c.Action == rulestore.ActionLift {
		return m.override(c, burst)
	}
	r := m.rules[c.Rule]
	if r == nil {
		r = &modelRule{}
	}
	switch {
	case !r.exists && (c.IfMatch != 0 || c.Action != rulestore.ActionPut):
		return rulestore.NotFound
	case r.exists && c.IfMatch != r.version:
		return rulestore.Conflict
	}
	next := *r
	next.bursts, next.shadow = slices.Clone(r.bursts), slices.Clone(r.shadow)
	live := func(burst int, shadow bool) {
		next.bursts, next.shadow = append(next.bursts, burst), append(next.shadow, shadow)
	}
	last := len(r.bursts) - 1
	switch c.Action {
	case rulestore.ActionPut:
		live(burst, false)
	case rulestore.ActionPropose:
		next.candidate, next.percent = burst, 0
	case rulestore.ActionCanary:
		next.percent = c.Percent
	case rulestore.ActionPromote:
		live(r.candidate, false)
	case rulestore.ActionShadow, rulestore.ActionEnforce:
		live(r.bursts[last], c.Action == rulestore.ActionShadow)
	case rulestore.ActionRollback:
		if r.candidate == 0 && last < 1 {
			return rulestore.Invalid
		}
		if r.candidate == 0 {
			next.bursts, next.shadow = next.bursts[:last], next.shadow[:last]
		}
	case rulestore.ActionDelete:
		next = modelRule{version: r.version}
		for name, o := range m.overrides {
			if strings.HasPrefix(name, c.Rule+"/") && o.exists {
				m.overrides[name] = &modelOverride{version: o.version + 1}
				m.applied++
			}
		}
	}
	if (c.Action == rulestore.ActionCanary || c.Action == rulestore.ActionPromote) && r.candidate == 0 {
		return rulestore.Invalid
	}
	if c.Action == rulestore.ActionPromote || c.Action == rulestore.ActionRollback {
		next.candidate, next.percent = 0, 0
	}
	next.exists = c.Action != rulestore.ActionDelete
	next.version++
	m.rules[c.Rule] = &next
	m.applied++
	return ""
}

func (m *model) override(c rulestore.Change, burst int) rulestore.Code {
	name := c.Rule + "/" + c.Key[0]
	o := m.overrides[name]
	if o == nil {
		o = &modelOverride{}
	}
	switch {
	case !o.exists && (c.IfMatch != 0 || c.Action == rulestore.ActionLift):
		return rulestore.NotFound
	case o.exists && c.IfMatch != o.version:
		return rulestore.Conflict
	case c.Action == rulestore.ActionOverride && (m.rules[c.Rule] == nil || !m.rules[c.Rule].exists):
		return rulestore.NotFound
	}
	m.overrides[name] = &modelOverride{version: o.version + 1, exists: c.Action == rulestore.ActionOverride, burst: burst}
	m.applied++
	return ""
}

// current is the version a caller would have seen, right most of the time.
func (m *model) current(c rulestore.Change) int64 {
	if len(c.Key) > 0 {
		if o := m.overrides[c.Rule+"/"+c.Key[0]]; o != nil && o.exists {
			return o.version
		}
	} else if r := m.rules[c.Rule]; r != nil && r.exists {
		return r.version
	}
	return 0
}

func testModel(t *testing.T, h Harness) {
	round := 0
	follower := rulestore.Set{}
	w, _, _ := watch(t, h, 50*time.Millisecond) // changes most of the time, and now and then everything
	rapid.Check(t, func(rt *rapid.T) {
		round++
		m := &model{rules: map[string]*modelRule{}, overrides: map[string]*modelOverride{}}
		for range rapid.IntRange(1, 12).Draw(rt, "changes") {
			c, burst := draw(rt, round, m)
			want := m.apply(c, burst)
			if _, err := h.Store.Apply(t.Context(), by(), c); rulestore.CodeOf(err) != want || want == "" && err != nil {
				rt.Fatalf("%s of %s %q with version %d: got %v, want code %q", c.Action, c.Rule, c.Key, c.IfMatch, err, want)
			}
			if rapid.Bool().Draw(rt, "follow") {
				follower = follow(t, rt, h, follower)
				reload(t, w)
			}
		}
		reload(t, w)
		follower = follow(t, rt, h, follower)
		set := h.whole(t)
		if follower.Hash != set.Hash || follower.Revision != set.Revision {
			rt.Fatalf("who followed is at %d, %s; the whole is %d, %s", follower.Revision, follower.Hash, set.Revision, set.Hash)
		}
		m.compare(t, rt, h, set, round)
		live, _ := set.Live()
		whole, _ := rules.Compile(nil, live, 1, time.Now())
		if got, want := inForce(w.Snapshot()), inForce(whole); got != want {
			rt.Fatalf("who watched has\n%s\nwant\n%s", got, want)
		}
	})
}

// inForce is the numbers of a snapshot as text.
func inForce(s *rules.Snapshot) string {
	var b strings.Builder
	for _, rule := range s.Rules() {
		fmt.Fprint(&b, rule.ID(), rule.Shadow())
		both := []*rules.Compiled{rule}
		if trial := rule.Trial(); trial != nil {
			fmt.Fprint(&b, " ", trial.Percent, trial.SinceMS)
			both = append(both, trial.Rule)
		}
		for _, c := range both {
			for _, key := range []string{"k0", "k1", "x"} {
				lim, _ := c.Effective(key, time.Now())
				fmt.Fprint(&b, " ", lim.Burst)
			}
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// draw draws a change, most of the time with the version that is there.
func draw(rt *rapid.T, round int, m *model) (rulestore.Change, int) {
	actions := slices.DeleteFunc(rulestore.Actions(), func(a rulestore.Action) bool { return a == rulestore.ActionReset })
	c := rulestore.Change{
		Action:  rapid.SampledFrom(actions).Draw(rt, "action"),
		Rule:    fmt.Sprintf("r%d-%d", round, rapid.IntRange(0, 1).Draw(rt, "rule")),
		Percent: rapid.IntRange(0, 100).Draw(rt, "percent"),
	}
	burst := rapid.IntRange(1, 1000).Draw(rt, "burst")
	switch c.Action {
	case rulestore.ActionPut, rulestore.ActionPropose:
		c.Body = bucket(c.Rule, burst)
	case rulestore.ActionOverride:
		c.Key = []string{fmt.Sprintf("k%d", rapid.IntRange(0, 1).Draw(rt, "key"))}
		c.Body = override(c.Rule, c.Key[0], burst)
	case rulestore.ActionLift:
		c.Key = []string{fmt.Sprintf("k%d", rapid.IntRange(0, 1).Draw(rt, "key"))}
	}
	c.IfMatch = m.current(c)
	if rapid.IntRange(0, 9).Draw(rt, "stale") == 0 {
		c.IfMatch = int64(rapid.IntRange(0, 3).Draw(rt, "version"))
	}
	return c, burst
}

// burstOf reads the burst of a body; 0 of none.
func burstOf(body json.RawMessage) int {
	var numbers struct{ Burst int }
	_ = json.Unmarshal(body, &numbers) // no body has no burst
	return numbers.Burst
}

func follow(t *testing.T, rt *rapid.T, h Harness, set rulestore.Set) rulestore.Set {
	changes, err := h.Store.Since(t.Context(), set.Revision)
	if err != nil {
		rt.Fatal(err)
	}
	return after(set, changes)
}

// compare holds what is in the store of this round against the model.
func (m *model) compare(t *testing.T, rt *rapid.T, h Harness, set rulestore.Set, round int) {
	prefix := fmt.Sprintf("r%d-", round)
	got := map[string]string{}
	for _, r := range set.Rules {
		if strings.HasPrefix(r.ID, prefix) {
			got[r.ID] = fmt.Sprint(r.Version, " ", burstOf(r.Live), " ", strings.Contains(string(r.Live), `"shadow"`), " ", burstOf(r.Candidate.Body), " ", r.Candidate.Percent)
		}
	}
	for _, o := range set.Overrides {
		if strings.HasPrefix(o.Rule, prefix) {
			got[o.Rule+"/"+o.Key[0]] = fmt.Sprint(o.Version, " ", burstOf(o.Body))
		}
	}
	want := map[string]string{}
	entries := 0
	for id, r := range m.rules {
		if r.exists {
			last := len(r.bursts) - 1
			want[id] = fmt.Sprint(r.version, " ", r.bursts[last], " ", r.shadow[last], " ", r.candidate, " ", r.percent)
		}
		history, err := h.Store.History(t.Context(), id, 0, 0)
		if err != nil || int64(len(history)) != r.version {
			rt.Fatalf("%s: %d versions in the history, %v; want %d", id, len(history), err, r.version)
		}
		entries += len(h.audit(t, rulestore.AuditFilter{Rule: id}))
	}
	for name, o := range m.overrides {
		if o.exists {
			want[name] = fmt.Sprint(o.version, " ", o.burst)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		rt.Fatalf("got  %v\nwant %v", got, want)
	}
	if entries != m.applied {
		rt.Fatalf("%d audit rows, want %d", entries, m.applied)
	}
}
