package rules

import (
	"cmp"
	"slices"
	"strings"
)

// condition is one attribute of match and what its value must look like.
type condition struct {
	attr string
	pattern
}

// pattern is a value in which * matches any run of bytes. There is no way to
// write a literal *.
type pattern struct {
	text string
	// pieces are what stands between the stars; nil for an exact value.
	pieces []string
}

func compilePattern(text string) pattern {
	p := pattern{text: text}
	if strings.Contains(text, "*") {
		p.pieces = strings.Split(text, "*")
	}
	return p
}

func (p *pattern) exact() bool { return p.pieces == nil }

// matches compares byte by byte: the first piece begins s, the last ends it, the
// others follow each other in between, each as far left as possible.
func (p *pattern) matches(s string) bool {
	if p.exact() {
		return s == p.text
	}
	first, last := p.pieces[0], p.pieces[len(p.pieces)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, piece := range p.pieces[1 : len(p.pieces)-1] {
		i := strings.Index(s, piece)
		if i < 0 {
			return false
		}
		s = s[i+len(piece):]
	}
	return true
}

func (c *Compiled) compileConditions() {
	for _, attr := range sortedKeys(c.rule.Match) {
		c.conditions = append(c.conditions, condition{attr: attr, pattern: compilePattern(c.rule.Match[attr])})
	}
}

// matches reports whether every condition holds. A condition on an attribute
// that the request has not does not hold, not even *.
func (c *Compiled) matches(attrs map[string]string) bool {
	return c.matchesBut(none, attrs)
}

// none is the place of no condition.
const none = -1

// matchesBut is matches without the condition at that place, which holds.
func (c *Compiled) matchesBut(held int, attrs map[string]string) bool {
	for i := range c.conditions {
		if i == held {
			continue
		}
		cond := &c.conditions[i]
		if value, ok := attrs[cond.attr]; !ok || !cond.matches(value) {
			return false
		}
	}
	return true
}

// indexed finds the rules that ask for one value of an attribute.
type indexed struct {
	attr  string
	rules map[string][]filed
}

// filed is a rule's place in the domain and, in the rule, that of the condition it is
// filed under, which is not asked again: in a typical rule it is the only one.
type filed struct{ place, by int }

// buildIndex files every rule under its rarest exact condition, so that a
// request looks only at rules that have a value in common with it. Rules with
// the same plan and another route each are filed by route.
func (d *Domain) buildIndex() {
	type pair struct{ attr, value string }
	uses := map[pair]int{}
	for _, c := range d.rules {
		for _, cond := range c.conditions {
			if cond.exact() {
				uses[pair{cond.attr, cond.text}]++
			}
		}
	}
	for place, c := range d.rules {
		best, by := pair{}, none
		for i, cond := range c.conditions {
			p := pair{cond.attr, cond.text}
			if cond.exact() && (by == none || uses[p] < uses[best]) {
				best, by = p, i
			}
		}
		if by == none {
			d.rest = append(d.rest, place)
			continue
		}
		rules := d.indexOf(best.attr)
		rules[best.value] = append(rules[best.value], filed{place, by})
	}
}

func (d *Domain) indexOf(attr string) map[string][]filed {
	for _, in := range d.index {
		if in.attr == attr {
			return in.rules
		}
	}
	in := indexed{attr: attr, rules: map[string][]filed{}}
	d.index = append(d.index, in)
	return in.rules
}

// Match appends the rules that apply to a request with these attributes, in the
// order of the source, without those that another of them supersedes. It does
// not allocate while dst has room.
//
// A route attribute holds the route's template (GET /v1/labels/{id}), never the
// raw path: else the client's spelling of a path would choose the bucket.
//
// A superseded rule supersedes nothing, since it does not apply. A shadow rule
// supersedes only shadow rules: what is never enforced must not lift a limit.
func (d *Domain) Match(attrs map[string]string, dst []*Compiled) []*Compiled {
	from := len(dst)
	supersedes := false
	for i := range d.index {
		value, ok := attrs[d.index[i].attr]
		if !ok {
			continue
		}
		for _, f := range d.index[i].rules[value] {
			if c := d.rules[f.place]; c.matchesBut(f.by, attrs) {
				dst = append(dst, c)
				supersedes = supersedes || len(c.supersedes) > 0
			}
		}
	}
	for _, place := range d.rest {
		if c := d.rules[place]; c.matches(attrs) {
			dst = append(dst, c)
			supersedes = supersedes || len(c.supersedes) > 0
		}
	}
	matched := dst[from:]
	if supersedes {
		matched = dropSuperseded(matched)
	}
	slices.SortFunc(matched, byOrdinal)
	return dst[:from+len(matched)]
}

// dropSuperseded asks the rules in an order in which each is known to apply
// before those that it supersedes.
func dropSuperseded(matched []*Compiled) []*Compiled {
	slices.SortFunc(matched, byRank)
	for i, c := range matched {
		if c == nil || len(c.supersedes) == 0 {
			continue
		}
		for j, other := range matched[i+1:] {
			if other != nil && c.lifts(other) {
				matched[i+1+j] = nil
			}
		}
	}
	return slices.DeleteFunc(matched, func(c *Compiled) bool { return c == nil })
}

// lifts reports whether other does not apply where c does.
func (c *Compiled) lifts(other *Compiled) bool {
	if c.Shadow() && !other.Shadow() {
		return false
	}
	_, found := slices.BinarySearch(c.supersedes, other.ordinal)
	return found
}

func byOrdinal(a, b *Compiled) int { return cmp.Compare(a.ordinal, b.ordinal) }
func byRank(a, b *Compiled) int    { return cmp.Compare(a.rank, b.rank) }
