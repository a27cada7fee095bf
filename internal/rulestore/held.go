package rulestore

import (
	"maps"
	"slices"

	"github.com/tallygate/tallygate/rules"
)

// held is what a source remembers of the rows it has passed on: enough to know which
// ones are others now, without their bodies.
type held struct {
	revision  int64
	rules     map[string]Sum
	overrides map[string]map[string]Sum // by rule and ID
	// keys are those of overrides whose ID does not tell how they are written.
	keys map[OverrideName][]string
	sum  Sum
	bad  rowProblems
}

// hold is what is held of a whole set.
func hold(set *Set, bad rowProblems) held {
	h := held{
		revision: set.Revision, rules: make(map[string]Sum, len(set.Rules)),
		overrides: map[string]map[string]Sum{}, keys: map[OverrideName][]string{}, bad: bad,
	}
	for i := range set.Rules {
		h.putRule(&set.Rules[i])
	}
	for i := range set.Overrides {
		h.putOverride(&set.Overrides[i])
	}
	return h
}

func (h *held) putRule(r *Rule) {
	sum := r.Sum()
	h.rules[r.ID], h.sum = sum, h.sum.Plus(sum)
}

func (h *held) putOverride(o *Override) {
	of := h.overrides[o.Rule]
	if of == nil {
		of = map[string]Sum{}
		h.overrides[o.Rule] = of
	}
	of[o.ID] = o.Sum()
	h.sum = h.sum.Plus(of[o.ID])
	if told := keyOfID(o.ID); len(o.Key) != 1 || told != o.Key[0] {
		h.keys[OverrideName{o.Rule, o.ID}] = o.Key
	}
}

// dropOverride forgets an override and returns the key it had; nil for none.
func (h *held) dropOverride(name OverrideName) []string {
	of := h.overrides[name.Rule]
	sum, known := of[name.ID]
	if !known {
		return nil
	}
	key := h.key(name)
	h.sum = h.sum.Minus(sum)
	delete(h.keys, name)
	if delete(of, name.ID); len(of) == 0 {
		delete(h.overrides, name.Rule)
	}
	return key
}

// key returns how the key of an override that is held was written.
func (h *held) key(name OverrideName) []string {
	if key, odd := h.keys[name]; odd {
		return key
	}
	return []string{keyOfID(name.ID)}
}

// keyOfID returns the key that an ID is of, as most are: ["acct_1"], one value that
// stands for itself; "" where it is another.
func keyOfID(id string) string {
	const open, end = `["`, `"]`
	if len(id) < len(open)+len(end) || id[:len(open)] != open || id[len(id)-len(end):] != end {
		return ""
	}
	return id[len(open) : len(id)-len(end)]
}

// differing returns the rows of a whole set that are others than those held, with a
// tombstone for each that is not there any more.
func (h *held) differing(set *Set) Changes {
	out := Changes{Revision: set.Revision}
	there := make(map[string]bool, len(set.Rules))
	for i := range set.Rules {
		r := &set.Rules[i]
		there[r.ID] = true
		if sum, known := h.rules[r.ID]; !known || sum != r.Sum() {
			out.Rules = append(out.Rules, *r)
		}
	}
	for id := range h.rules {
		if !there[id] {
			out.Rules = append(out.Rules, Rule{ID: id, Deleted: true})
		}
	}
	exist := make(map[OverrideName]bool, len(set.Overrides))
	for i := range set.Overrides {
		o := &set.Overrides[i]
		exist[OverrideName{o.Rule, o.ID}] = true
		if sum, known := h.overrides[o.Rule][o.ID]; !known || sum != o.Sum() {
			out.Overrides = append(out.Overrides, *o)
		}
	}
	for rule, of := range h.overrides {
		for id := range of {
			if name := (OverrideName{rule, id}); !exist[name] {
				out.Overrides = append(out.Overrides, Override{Rule: rule, ID: id, Key: h.key(name), Deleted: true})
			}
		}
	}
	return out
}

// with returns the digest of what is held once changes are taken.
func (h *held) with(c *Changes) string {
	sum := h.sum
	for i := range c.Rules {
		r := &c.Rules[i]
		if sum = sum.Minus(h.rules[r.ID]); !r.Deleted {
			sum = sum.Plus(r.Sum())
		}
	}
	for i := range c.Overrides {
		o := &c.Overrides[i]
		if sum = sum.Minus(h.overrides[o.Rule][o.ID]); !o.Deleted {
			sum = sum.Plus(o.Sum())
		}
	}
	return sum.String()
}

// take takes changes over and returns them as package rules knows them.
func (h *held) take(c Changes) rules.Delta {
	var list []Rule
	var overrides []Override
	var gone []rules.Ref
	for i := range c.Rules {
		r := &c.Rules[i]
		h.sum = h.sum.Minus(h.rules[r.ID]) // the zero Sum of one not held
		delete(h.rules, r.ID)
		delete(h.bad, OverrideName{Rule: r.ID})
		if r.Deleted {
			gone = append(gone, rules.Ref{Rule: r.ID})
			continue
		}
		h.putRule(r)
		list = append(list, *r)
	}
	for i := range c.Overrides {
		o := &c.Overrides[i]
		name := OverrideName{o.Rule, o.ID}
		key := h.dropOverride(name)
		delete(h.bad, name)
		if len(key) > 0 && (o.Deleted || !slices.Equal(key, o.Key)) { // or spelt otherwise now
			gone = append(gone, rules.Ref{Rule: o.Rule, Key: key})
		}
		if !o.Deleted {
			h.putOverride(o)
			overrides = append(overrides, *o)
		}
	}
	delta, bad := readRows(list, overrides)
	maps.Copy(h.bad, bad)
	delta.Gone, delta.Resets = gone, resetsOf(c.Resets)
	h.revision = c.Revision
	return delta
}

func resetsOf(resets []Reset) []rules.Ref {
	out := make([]rules.Ref, len(resets))
	for i, r := range resets {
		out[i] = rules.Ref{Rule: r.Rule, Key: r.Key}
	}
	return out
}
