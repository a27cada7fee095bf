package rules

import (
	"slices"
)

// link resolves supersedes to rules of the same domain and orders the rules so
// that each comes before those that do not apply where it does.
func (c *compiler) link() {
	targets := make([][]*Compiled, len(c.rules))
	for _, rule := range c.rules {
		for i, id := range rule.rule.Supersedes {
			target := c.byID[id]
			switch {
			case target == nil:
				c.warnSupersedes(rule, i, "there is no rule "+quote(id), "remove it or add the rule")
			case target.Domain() != rule.Domain():
				c.warnSupersedes(rule, i, "rule "+quote(id)+" is in domain "+quote(target.Domain()), "remove it: domains never meet")
			default:
				targets[rule.ordinal] = append(targets[rule.ordinal], target)
			}
		}
	}
	w := walk{compiler: c, targets: targets, state: make([]visit, len(c.rules)), next: len(c.rules)}
	for _, rule := range c.rules {
		w.from(rule)
	}
	for _, rule := range c.rules {
		for _, target := range w.targets[rule.ordinal] {
			rule.supersedes = append(rule.supersedes, target.ordinal)
		}
		slices.Sort(rule.supersedes)
	}
}

func (c *compiler) warnSupersedes(rule *Compiled, i int, message, fix string) {
	rep := report{rule: rule.rule.ID, at: rule.rule.At}
	rep.warn("supersedes["+num(i)+"]", rule.rule.Supersedes[i], message, fix)
	c.problems = append(c.problems, rep.out...)
}

type visit uint8

const (
	unvisited visit = iota
	onPath
	done
)

// walk goes through the rules depth first and ranks them, last first.
type walk struct {
	*compiler
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
			w.problems = append(w.problems, rep.out...)
			w.targets[rule.ordinal] = nil
			break
		}
		w.from(target)
	}
	w.state[rule.ordinal] = done
	w.next--
	rule.rank = w.next
}
