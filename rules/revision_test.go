package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// TestRevisionsOrderTheNumbersOfAFleet plays random histories of one rule, its
// candidate, its overrides and resets on pods that followed all changes, as a whole or
// change by change, and on pods that just started, and asks what a store would ask:
// whenever the numbers of a key differ from numbers sent before, the revision is above
// every revision that came with those.
func TestRevisionsOrderTheNumbersOfAFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := start
		pods := []*pod{newPod(false), newPod(true)}
		stored, seen := map[string]state{}, map[string]int64{} // by key
		for revision := int64(1); revision <= 12; revision++ {
			set := randomSet(t, now)
			if rapid.IntRange(0, 2).Draw(t, "start a pod") == 0 {
				pods = append(pods, newPod(rapid.Bool().Draw(t, "by changes")))
			}
			for _, pod := range pods {
				pod.follow(set, revision, now)
			}
			for range 2 {
				for i, pod := range pods {
					pod.send(t, i, stored, seen, now)
				}
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute)
			}
		}
	})
}

// asked are the keys that tests ask for: of each with and without overrides.
func asked() []string { return []string{"k", "l", "kl", "kk", "other"} }

// randomSet returns a rule, now and then none, a candidate, overrides and resets.
func randomSet(t *rapid.T, now time.Time) rules.Set {
	few := rapid.Int64Range(1, 2)
	tokens := func(name string) rules.Rule {
		return rules.Rule{
			ID: "r", CoversAll: true, Identity: []string{"k"}, Algorithm: limit.TokenBucket,
			Numbers: rules.Numbers{Rate: few.Draw(t, name), Burst: 10},
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "remove") == 0 {
		return rules.Set{}
	}
	set := rules.Set{Rules: []rules.Rule{tokens("rate")}}
	if rapid.Bool().Draw(t, "candidate") {
		set.Candidates = []rules.Candidate{{Rule: tokens("candidate's rate"), Stage: rules.StageShadow}}
	}
	for _, key := range []string{"k", "kl", "k*", "*l", "*"} {
		if !rapid.Bool().Draw(t, "override") {
			continue
		}
		o := rules.Override{Rule: "r", Key: []string{key}, Numbers: rules.Numbers{Burst: 10 + few.Draw(t, "burst")}}
		if rapid.Bool().Draw(t, "ends") {
			o.ExpiresAt = now.Add(time.Duration(rapid.IntRange(-2, 4).Draw(t, "in")) * time.Minute)
		}
		set.Overrides = append(set.Overrides, o)
	}
	if rapid.IntRange(0, 3).Draw(t, "reset") == 0 {
		set.Resets = []rules.Ref{{Rule: rapid.SampledFrom([]string{"", "r"}).Draw(t, "of"), Key: []string{rapid.SampledFrom(asked()).Draw(t, "key")}}}
	}
	return set
}

func mustCompileRapid(t *rapid.T, prev *rules.Snapshot, set rules.Set, revision int64, now time.Time) *rules.Snapshot {
	s, problems := rules.Compile(prev, set, revision, now)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return s
}

// pod is one that follows a set.
type pod struct {
	compiler  *rules.Compiler
	byChanges bool
	set       *rules.Set
	snapshot  *rules.Snapshot
	problems  rules.Problems
}

func newPod(byChanges bool) *pod { return &pod{compiler: rules.NewCompiler(nil), byChanges: byChanges} }

// follow compiles the next set, as a whole or what changed in it.
func (p *pod) follow(set rules.Set, revision int64, now time.Time) {
	if p.byChanges && p.set != nil {
		p.snapshot, p.problems = p.compiler.Change(difference(*p.set, set), revision, now)
	} else {
		p.snapshot, p.problems = p.compiler.Whole(set, revision, now)
	}
	p.set = &set
}

// state is what a store keeps of a bucket's numbers.
type state struct {
	numbers  rules.Numbers
	revision int64
}

// send gives a store's buckets the numbers of a pod, and holds them against those
// that the pod itself had before.
func (p *pod) send(t *rapid.T, i int, stored map[string]state, seen map[string]int64, now time.Time) {
	live := p.snapshot.Rule("r")
	if live == nil {
		return
	}
	compiled := []*rules.Compiled{live}
	if trial := live.Trial(); trial != nil {
		compiled = append(compiled, trial.Rule)
	}
	for _, c := range compiled {
		for _, key := range asked() {
			lim, _ := c.Effective(key, now)
			bucket := c.BucketRule() + "/" + key
			own := fmt.Sprint(i, "/", bucket)
			if lim.Revision < seen[own] {
				t.Fatalf("pod %d: %s went from revision %d to %d", i, bucket, seen[own], lim.Revision)
			}
			seen[own] = lim.Revision
			next := state{rules.Numbers{Rate: lim.Rate, Burst: lim.Burst}, lim.Revision}
			last, ok := stored[bucket]
			if ok && next.numbers != last.numbers && next.revision <= last.revision {
				t.Fatalf("pod %d: %s: %+v after %+v: a store would keep the old numbers", i, bucket, next, last)
			}
			next.revision = max(next.revision, last.revision)
			stored[bucket] = next
		}
	}
}

// difference is the change that makes one set of the other. Overrides and rules are
// there once.
func difference(from, to rules.Set) rules.Delta {
	out := rules.Delta{Resets: to.Resets}
	was, is := written(from), written(to)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, stays := is[name]; !stays {
			out.Gone = append(out.Gone, was[name].ref)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		row := is[name]
		if old, there := was[name]; there && old.text == row.text {
			continue
		}
		switch {
		case row.rule != nil:
			out.Rules = append(out.Rules, *row.rule)
		case row.override != nil:
			out.Overrides = append(out.Overrides, *row.override)
		default:
			out.Unread = append(out.Unread, row.ref)
		}
		if row.candidate != nil {
			out.Candidates = append(out.Candidates, *row.candidate)
		}
	}
	return out
}

// writtenRow is one row of a set, such as a database has.
type writtenRow struct {
	ref       rules.Ref
	rule      *rules.Rule
	candidate *rules.Candidate
	override  *rules.Override
	text      string
}

func written(set rules.Set) map[string]writtenRow {
	out := map[string]writtenRow{}
	for i := range set.Rules {
		r := &set.Rules[i]
		row := writtenRow{ref: rules.Ref{Rule: r.ID}, rule: r, text: fmt.Sprintf("%+v", *r)}
		for j := range set.Candidates {
			if set.Candidates[j].Rule.ID == r.ID {
				row.candidate = &set.Candidates[j]
				row.text += fmt.Sprintf("%+v", set.Candidates[j])
			}
		}
		out[r.ID] = row
	}
	for i := range set.Overrides {
		o := &set.Overrides[i]
		out[o.Rule+"/"+rules.Key(o.Key)] = writtenRow{ref: rules.Ref{Rule: o.Rule, Key: o.Key}, override: o, text: fmt.Sprintf("%+v", *o)}
	}
	for _, ref := range set.Unread {
		name := ref.Rule
		if ref.Key != nil {
			name += "/" + rules.Key(ref.Key)
		}
		out[name] = writtenRow{ref: ref, text: "unread"}
	}
	return out
}
