package envoyconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/envoyconfig"
	"github.com/tallygate/tallygate/rules"
)

// drawLevel writes the descriptors of one level, each text key_value once.
func drawLevel(t *rapid.T, b *strings.Builder, indent string, depth int) {
	taken := map[string]bool{}
	b.WriteString(indent + "descriptors:\n")
	for range rapid.IntRange(1, 5).Draw(t, "nodes") {
		key := rapid.SampledFrom([]string{"a", "a", "b", "a_x"}).Draw(t, "key")
		value := rapid.SampledFrom([]string{"", "", "x", "y", "xy", "x*", "*y", "*", "x*y", "*x*", "b_x"}).Draw(t, "value")
		text := key
		if value != "" {
			text += "_" + value
		}
		if taken[text] {
			continue
		}
		taken[text] = true
		fmt.Fprintf(b, "%s- key: %q\n", indent, key)
		field := func(format string, args ...any) { fmt.Fprintf(b, indent+"  "+format+"\n", args...) }
		if value != "" {
			field("value: %q", value)
		}
		for _, name := range []string{"shadow_mode", "quota_mode", "share_threshold"} {
			if rapid.IntRange(0, 3).Draw(t, name) == 0 {
				field("%s: true", name)
			}
		}
		if rapid.IntRange(0, 2).Draw(t, "limit") > 0 {
			field("rate_limit:")
			if rapid.IntRange(0, 5).Draw(t, "unlimited") == 0 {
				field("  unlimited: true")
			} else {
				field("  unit: %s", rapid.SampledFrom([]string{"second", "week", "YEAR"}).Draw(t, "unit"))
				field("  requests_per_unit: %d", rapid.IntRange(0, 3).Draw(t, "n"))
			}
			name := rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "name")
			if name != "" {
				field("  name: %s", name)
			}
			if to := rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "replaces"); to != "" && to != name {
				field("  replaces: [{name: %s}]", to)
			}
		}
		if depth > 1 && rapid.Bool().Draw(t, "children") {
			drawLevel(t, b, indent+"  ", depth-1)
		}
	}
}

func drawRequest(t *rapid.T) envoyconfig.Request {
	var r envoyconfig.Request
	for range rapid.IntRange(1, 3).Draw(t, "entries") {
		r.Entries = append(r.Entries, envoyconfig.Entry{
			Key:   rapid.SampledFrom([]string{"a", "a", "b", "a_x"}).Draw(t, "entry key"),
			Value: rapid.SampledFrom([]string{"x", "y", "xy", "xzy", "", "z", "b_x"}).Draw(t, "entry value"),
		})
	}
	return r
}

// chosen is a limit that applies to a descriptor and what names its counter.
type chosen struct {
	node    *envoyconfig.Descriptor
	counter string
}

// theirs is what the matcher chooses for each descriptor of a request.
func theirs(tree *envoyconfig.Tree, reqs []envoyconfig.Request) []chosen {
	out := make([]chosen, len(reqs))
	for i, m := range tree.MatchAll("d", reqs) {
		if m == nil {
			continue
		}
		out[i].node = m.Node
		if !m.Limit.Unlimited && m.Limit.RequestsPerUnit > 0 {
			out[i].counter = fmt.Sprintf("%q", m.Entries)
		}
	}
	return out
}

// ours is what the rules engine chooses of the imported rules. The counter is told by
// the rule and its key.
func ours(t *rapid.T, im *envoyconfig.Imported, d *rules.Domain, reqs []envoyconfig.Request) []chosen {
	matched := make([][]*rules.Compiled, len(reqs))
	for i, r := range reqs {
		if d == nil {
			break // nothing was imported
		}
		matched[i] = d.Match(envoyconfig.Attributes(r.Entries), nil)
	}
	all := slices.Concat(matched...)
	rules.SupersedeAcross(all, envoyconfig.AttrPath)
	for i, list := range matched {
		matched[i] = slices.DeleteFunc(all[:len(list):len(list)], func(c *rules.Compiled) bool { return c == nil })
		all = all[len(list):]
	}
	out := make([]chosen, len(reqs))
	for i, list := range matched {
		bound, err := rules.Resolve(envoyconfig.Attributes(reqs[i].Entries), list, nil)
		if err != nil {
			t.Fatalf("resolve: %v", err)
		}
		for _, b := range bound {
			n := im.Nodes[b.Rule.ID()]
			if n == nil {
				if b.Rule.Action() != rules.ActionAllow {
					t.Fatalf("rule %s stands for no limit and is no allow", b.Rule.ID())
				}
				continue
			}
			if out[i].node != nil {
				t.Fatalf("%v meets two limits: %s and %s", reqs[i].Entries, out[i].node, n)
			}
			out[i] = chosen{n, b.Key}
		}
	}
	return out
}

// TestImportedRulesChooseTheSame: for random configurations and requests the engine, on
// the imported rules, chooses the limits that their service would, and counts two
// requests together exactly where that does, except where a note says that it differs.
func TestImportedRulesChooseTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("domain: d\n")
		drawLevel(t, &b, "", 3)
		tree, err := envoyconfig.Parse([]envoyconfig.File{{Name: "d.yaml", Data: []byte(b.String())}}, envoyconfig.ReadOptions{})
		if err != nil {
			t.Skipf("%v", err) // the texts of two keys may collide
		}
		im, err := envoyconfig.Import(tree, envoyconfig.Options{})
		if err != nil {
			t.Fatal(err)
		}
		snapshot, problems := rules.Compile(nil, im.Set, 1, time.Unix(0, 0))
		if len(problems) > 0 {
			t.Fatalf("imported rules have problems: %v\n%s", problems, b.String())
		}
		domain := snapshot.Domain("d")
		counters := map[string]string{} // theirs → ours, by node
		back := map[string]string{}
		for range 20 {
			reqs := rapid.SliceOfN(rapid.Custom(drawRequest), 1, 3).Draw(t, "request")
			if noted(im, tree, reqs) {
				continue
			}
			want, got := theirs(tree, reqs), ours(t, im, domain, reqs)
			for i := range reqs {
				if want[i].node != got[i].node {
					t.Fatalf("%v (%d of %v):\nours %v, theirs %v\n%s", reqs[i].Entries, i, reqs, got[i].node, want[i].node, b.String())
				}
				if want[i].node == nil {
					continue
				}
				a, b := fmt.Sprintf("%p %s", want[i].node, want[i].counter), fmt.Sprintf("%p %s", got[i].node, got[i].counter)
				if last, ok := counters[a]; ok && last != b {
					t.Fatalf("%v: one counter there is two here: %q and %q", reqs[i].Entries, last, b)
				}
				if last, ok := back[b]; ok && last != a {
					t.Fatalf("%v: two counters there are one here: %q and %q", reqs[i].Entries, last, a)
				}
				counters[a], back[b] = b, a
			}
		}
	})
}

// noted reports whether a note says that a request is treated differently.
func noted(im *envoyconfig.Imported, tree *envoyconfig.Tree, reqs []envoyconfig.Request) bool {
	for _, r := range reqs {
		if tree.Crosses("d", r) && hasNote(im, "domain: d", envoyconfig.Differs, "key_value") {
			return true
		}
	}
	for i, m := range tree.MatchAll("d", reqs) {
		first, _ := tree.Match("d", reqs[i])
		if m != nil || first == nil {
			continue
		}
		// Replaced there: a note at one that replaces it may say that it is not here.
		for j := range reqs {
			if by, _ := tree.Match("d", reqs[j]); by != nil && slices.Contains(by.Limit.Replaces, first.Limit.Name) && hasNoteAt(im, by.Node, "replaces:") {
				return true
			}
		}
	}
	return false
}

func hasNote(im *envoyconfig.Imported, text string, v envoyconfig.Verdict, why string) bool {
	return slices.ContainsFunc(im.Notes, func(n envoyconfig.Note) bool {
		return n.Text == text && n.Verdict == v && strings.Contains(n.Why, why)
	})
}

func hasNoteAt(im *envoyconfig.Imported, node *envoyconfig.Descriptor, text string) bool {
	return slices.ContainsFunc(im.Notes, func(n envoyconfig.Note) bool {
		return n.Text == text && n.Verdict == envoyconfig.Differs && n.Line >= node.At.Line && im.Nodes[n.Rule] == node
	})
}
