package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// TestChangesMakeWhatTheWholeMakes plays random histories of a set on two compilers:
// one compiles each set as a whole, one what changed in it. They must answer alike,
// in numbers, revisions, what is fresh, who matches and what is wrong. Rules that are not
// timed must answer now as at any other time.
func TestChangesMakeWhatTheWholeMakes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := start
		whole, changes := newPod(false), newPod(true)
		last := rules.Set{}
		for revision := int64(1); revision <= 15; revision++ {
			last = step(t, last, now)
			set := last
			set.Resets = drawResets(t)
			whole.follow(set, revision, now)
			changes.follow(set, revision, now)
			for range 2 {
				if a, b := answers(whole, now), answers(changes, now); a != b {
					t.Fatalf("at revision %d the whole answers\n%s\nand the changes\n%s\nof %+v", revision, a, b, set)
				}
				if fault := untimed(changes, now); fault != "" {
					t.Fatalf("at revision %d %s, of %+v", revision, fault, set)
				}
				now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 30, 120}).Draw(t, "seconds")) * time.Second)
			}
		}
	})
}

func drawResets(t *rapid.T) []rules.Ref {
	if rapid.IntRange(0, 4).Draw(t, "reset") > 0 {
		return nil
	}
	return []rules.Ref{{
		Rule: rapid.SampledFrom([]string{"", "a", "b", "none"}).Draw(t, "of"),
		Key:  []string{rapid.SampledFrom([]string{"k", "kl", "203.0.113.9"}).Draw(t, "key")},
	}}
}

// step changes a few rows of a set. Rules stand in the order of their ids, overrides
// in that of their keys.
func step(t *rapid.T, set rules.Set, now time.Time) rules.Set {
	var out rules.Set
	for _, id := range []string{"a", "b", "c"} {
		stepRule(t, &set, &out, id, now)
		for _, key := range []string{"*", "203.0.0.0/16", "203.0.113.9", "k", "k*", "kl"} {
			stepOverride(t, &set, &out, id, key, now)
		}
	}
	return out
}

func stepRule(t *rapid.T, from, to *rules.Set, id string, now time.Time) {
	if rapid.IntRange(0, 3).Draw(t, "change "+id) > 0 { // as it was
		for _, r := range from.Rules {
			if r.ID == id {
				to.Rules = append(to.Rules, r)
			}
		}
		for _, k := range from.Candidates {
			if k.Rule.ID == id {
				to.Candidates = append(to.Candidates, k)
			}
		}
		for _, ref := range from.Unread {
			if ref.Rule == id && ref.Key == nil {
				to.Unread = append(to.Unread, ref)
			}
		}
		return
	}
	few := rapid.Int64Range(1, 3)
	r := rules.Rule{
		ID: id, Match: map[string]string{"m": rapid.SampledFrom([]string{"x", "y", "*"}).Draw(t, "match")}, CoversAll: true,
		Identity: rapid.SampledFrom([][]string{{"u"}, {"u"}, {"u"}, {"ip"}, {"u", "ip"}}).Draw(t, "identity"), Algorithm: limit.TokenBucket,
		Numbers:    rules.Numbers{Rate: few.Draw(t, "rate"), Burst: 5 * few.Draw(t, "burst")},
		Supersedes: rapid.SampledFrom([][]string{nil, {"a"}, {"b", "zz"}, {"c"}}).Draw(t, "supersedes"),
	}
	r.Supersedes = slices.DeleteFunc(slices.Clone(r.Supersedes), func(other string) bool { return other == id })
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return // gone
	case 1:
		to.Unread = append(to.Unread, rules.Ref{Rule: id})
		return
	case 2:
		r.Rate = -1 // faulty
	case 3:
		r.Action, r.Identity, r.Algorithm, r.Numbers = rules.ActionAllow, nil, 0, rules.Numbers{}
	case 4:
		r.Algorithm, r.Numbers = limit.FixedWindow, rules.Numbers{Limit: few.Draw(t, "limit"), WindowS: 60}
	}
	to.Rules = append(to.Rules, r)
	if rapid.IntRange(0, 2).Draw(t, "candidate") == 0 {
		k := rules.Candidate{Rule: r, Stage: rules.StageCanary, Percent: int(few.Draw(t, "percent")), SinceMS: now.UnixMilli()}
		k.Rule.Burst = 7
		if rapid.IntRange(0, 3).Draw(t, "not allowed") == 0 {
			k.Rule.Match = map[string]string{"m": "z"}
		}
		to.Candidates = append(to.Candidates, k)
	}
}

func stepOverride(t *rapid.T, from, to *rules.Set, id, key string, now time.Time) {
	if rapid.IntRange(0, 4).Draw(t, "change "+id+"/"+key) > 0 {
		for _, o := range from.Overrides {
			if o.Rule == id && o.Key[0] == key {
				to.Overrides = append(to.Overrides, o)
			}
		}
		for _, ref := range from.Unread {
			if ref.Rule == id && ref.Key != nil && ref.Key[0] == key {
				to.Unread = append(to.Unread, ref)
			}
		}
		return
	}
	o := rules.Override{Rule: id, Key: []string{key}, Numbers: rules.Numbers{Rate: rapid.Int64Range(1, 3).Draw(t, "rate")}}
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0, 1:
		return // gone
	case 2:
		to.Unread = append(to.Unread, rules.Ref{Rule: id, Key: o.Key})
		return
	case 3:
		o.Numbers = rules.Numbers{Limit: 4} // fits few
	case 4, 5:
		o.ExpiresAt = now.Add(time.Duration(rapid.IntRange(-60, 240).Draw(t, "ends in")) * time.Second)
	case 6:
		o.MaxCost = 3
	}
	to.Overrides = append(to.Overrides, o)
}

// untimed says which rule is not timed and answers otherwise at other times; "" for none.
func untimed(p *pod, now time.Time) string {
	for _, rule := range p.snapshot.Rules() {
		for _, key := range []string{"k", "kl", "kk", "x", "203.0.113.9", "203.0.1.1", "9.9.9.9"} {
			if rule.Timed() {
				continue
			}
			then, least := rule.Effective(key, time.UnixMilli(0))
			for _, after := range []time.Duration{0, 30 * time.Second, time.Hour} {
				lim, most := rule.Effective(key, now.Add(after))
				if lim != then || most != least || rule.NotFresh(key, now.Add(after)) {
					return fmt.Sprintf("rule %s is not timed, and of %s says %v, at the epoch %v", rule.ID(), key, lim, then)
				}
			}
		}
	}
	return ""
}

// answers is all that a snapshot says, as text.
func answers(p *pod, now time.Time) string {
	var b strings.Builder
	fmt.Fprintln(&b, p.snapshot.Revision())
	for _, rule := range p.snapshot.Rules() {
		fmt.Fprintln(&b, rule.ID(), rule.Ordinal(), rule.Rule().Match)
		sides := []*rules.Compiled{rule}
		if trial := rule.Trial(); trial != nil {
			fmt.Fprintln(&b, trial.Stage, trial.Percent, trial.SinceMS)
			sides = append(sides, trial.Rule)
		}
		for _, c := range sides {
			for _, key := range []string{"k", "kl", "kk", "x", "203.0.113.9", "203.0.1.1", "9.9.9.9"} {
				lim, most := c.Effective(key, now)
				fmt.Fprint(&b, c.BucketRule(), " ", key, " ", lim, " ", most)
				for _, after := range []time.Duration{0, time.Second, 20 * time.Second} {
					fmt.Fprint(&b, " ", c.NotFresh(key, now.Add(after)))
				}
				fmt.Fprintln(&b)
			}
		}
	}
	if d := p.snapshot.Domain(""); d != nil {
		fmt.Fprintln(&b, matched(d, map[string]string{"m": "x"}), matched(d, map[string]string{"m": "y"}))
	}
	problems := strings.Split(p.problems.Error(), "\n")
	slices.Sort(problems)
	fmt.Fprintln(&b, strings.Join(slices.Compact(problems), "\n"))
	return b.String()
}
