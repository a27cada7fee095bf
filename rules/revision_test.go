package rules_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// TestRevisionsOrderTheNumbersOfAFleet plays random histories of one rule and its
// overrides on pods that followed all changes and on pods that just started, and
// asks what a store would ask: whenever the numbers of a key differ from numbers
// sent before, the revision is above every revision that came with those.
func TestRevisionsOrderTheNumbersOfAFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := start
		pods := []*rules.Snapshot{nil}
		stored := map[string]state{} // by key
		for revision := int64(1); revision <= 12; revision++ {
			set := randomSet(t, now)
			for i, pod := range pods {
				pods[i] = mustCompileRapid(t, pod, set, revision, now)
			}
			if rapid.IntRange(0, 2).Draw(t, "start a pod") == 0 {
				pods = append(pods, mustCompileRapid(t, nil, set, revision, now))
			}
			for range 2 {
				for _, key := range []string{"k", "l", "other"} {
					for _, pod := range pods {
						send(t, stored, pod, key, now)
					}
				}
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "minutes")) * time.Minute)
			}
		}
	})
}

// randomSet returns a rule, now and then none, and overrides of two keys.
func randomSet(t *rapid.T, now time.Time) rules.Set {
	few := rapid.Int64Range(1, 2)
	set := rules.Set{Rules: []rules.Rule{{
		ID: "r", CoversAll: true, Identity: []string{"k"}, Algorithm: limit.TokenBucket,
		Numbers: rules.Numbers{Rate: few.Draw(t, "rate"), Burst: 10},
	}}}
	if rapid.IntRange(0, 9).Draw(t, "remove") == 0 {
		return rules.Set{}
	}
	for _, key := range []string{"k", "l"} {
		if !rapid.Bool().Draw(t, "override") {
			continue
		}
		o := rules.Override{Rule: "r", Key: []string{key}, Numbers: rules.Numbers{Burst: 10 + few.Draw(t, "burst")}}
		if rapid.Bool().Draw(t, "ends") {
			o.ExpiresAt = now.Add(time.Duration(rapid.IntRange(-2, 4).Draw(t, "in")) * time.Minute)
		}
		set.Overrides = append(set.Overrides, o)
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

// state is what a store keeps of a bucket's numbers.
type state struct {
	numbers  rules.Numbers
	revision int64
}

// send gives a store's bucket the numbers of a pod.
func send(t *rapid.T, stored map[string]state, pod *rules.Snapshot, key string, now time.Time) {
	c := pod.Rule("r")
	if c == nil {
		return
	}
	lim, _ := c.Effective(key, now)
	next := state{rules.Numbers{Rate: lim.Rate, Burst: lim.Burst}, lim.Revision}
	last, ok := stored[key]
	if ok && next.numbers != last.numbers && next.revision <= last.revision {
		t.Fatalf("key %s: %+v after %+v: a store would keep the old numbers", key, next, last)
	}
	next.revision = max(next.revision, last.revision)
	stored[key] = next
}
