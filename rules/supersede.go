package rules

import (
	"slices"
)

// link gives the rules in the making their places, resolves supersedes to rules of the
// same domain and orders the rules so that each comes before those that do not apply
// where it does.
func (c *Compiler) link() {
	c.linked = nil
	var list []*Compiled
	for _, id := range c.order {
		if t := c.rows[id].live; t != nil {
			t.now.ordinal, t.now.supersedes = len(list), nil
			list = append(list, t.now)
		}
	}
	targets := make([][]*Compiled, len(list))
	for _, rule := range list {
		for i, id := range rule.rule.Supersedes {
			row := c.rows[id]
			switch {
			case row == nil || row.live == nil:
				c.warnSupersedes(rule, i, "there is no rule "+quote(id), "remove it or add the rule")
			case row.live.now.Domain() != rule.Domain():
				c.warnSupersedes(rule, i, "rule "+quote(id)+" is in domain "+quote(row.live.now.Domain()), "remove it: domains never meet")
			default:
				targets[rule.ordinal] = append(targets[rule.ordinal], row.live.now)
			}
		}
	}
	w := walk{Compiler: c, targets: targets, state: make([]visit, len(list)), next: len(list)}
	for _, rule := range list {
		w.from(rule)
	}
	for _, rule := range list {
		for _, target := range w.targets[rule.ordinal] {
			rule.supersedes = append(rule.supersedes, target.ordinal)
		}
		slices.Sort(rule.supersedes)
	}
}

// linkAs takes the place of the same rule, compiled before.
func (c *Compiled) linkAs(other *Compiled) {
	c.ordinal, c.supersedes, c.rank = other.ordinal, other.supersedes, other.rank
}

func (c *Compiler) warnSupersedes(rule *Compiled, i int, message, fix string) {
	rep := report{rule: rule.rule.ID, at: rule.rule.At}
	rep.warn("supersedes["+num(i)+"]", rule.rule.Supersedes[i], message, fix)
	c.linked = append(c.linked, rep.out...)
}

type visit uint8

const (
	unvisited visit = iota
	onPath
	done
)

// walk goes through the rules depth first and ranks them, last first.
type walk struct {
	*Compiler
	targets [][]*Compiled
	state   []visit
	next    int
}

// from visits a rule. A rule that it meets on the way to itself closes a circle,
// in which nobody could say who applies: the rule that closes it supersedes
// nothing then, so that a limit too many is kept rather than one lost.
func (w *walk) from(rule *Compiled) {
	if w.state[rule.ordinal] == done {
		return
	}
	w.state[rule.ordinal] = onPath
	for _, target := range w.targets[rule.ordinal] {
		if w.state[target.ordinal] == onPath {
			rep := report{rule: rule.rule.ID, at: rule.rule.At}
			rep.add("supersedes", target.rule.ID, "goes in a circle by way of "+quote(target.rule.ID),
				"break it; until then this rule supersedes nothing")
			w.linked = append(w.linked, rep.out...)
			w.targets[rule.ordinal] = nil
			break
		}
		w.from(target)
	}
	w.state[rule.ordinal] = done
	w.next--
	rule.rank = w.next
}
