package envoyconfig

import (
	"slices"
	"strings"
)

// way is one way of a request through the tree: the nodes it meets, and the limit at
// the end. Without a limit it stops there, or goes on to where there is none.
type way struct {
	path []*Descriptor
	// leaf is the last node where that has a limit that became a rule; nil for a way
	// that meets no limit.
	leaf *Descriptor
}

// ways returns what may become of a descriptor with these keys, in the order in which
// the service would choose: an earlier way hides a later one that it has in common
// requests with. all says that one of them takes every value, so that none falls
// through.
func (o *orderer) ways(at *level, keys []string, path []*Descriptor) (list []way, all bool) {
	limits := false
	for _, n := range o.preferred(at.byKey[keys[0]]) {
		here := append(slices.Clip(path), n)
		sub, subAll := []way{{path: here}}, true
		if len(keys) == 1 {
			if o.rule[n] {
				sub[0].leaf = n
				limits = true
			}
		} else if below, belowAll := o.ways(n.level, keys[1:], here); len(below) > 0 {
			sub, subAll, limits = below, belowAll, true
		}
		list = append(list, sub...)
		if !subAll {
			list = append(list, way{path: here})
		}
		all = all || n.covering()
	}
	if !limits {
		return nil, false
	}
	return list, all
}

// orderer orders the ways of one domain.
type orderer struct {
	// rule are the nodes whose limit becomes a rule.
	rule map[*Descriptor]bool
	// dead are the nodes that no request reaches, and who takes theirs.
	dead map[*Descriptor]*Descriptor
}

// preferred orders the nodes of a level that have one key, those first that are chosen
// first. It leaves out, and remembers, those that one before takes everything from.
func (o *orderer) preferred(nodes []*Descriptor) []*Descriptor {
	var exact, wild, out []*Descriptor
	var bare *Descriptor
	for _, n := range nodes {
		switch {
		case n.wildcard():
			wild = append(wild, n)
		case n.Value == "":
			bare = n
		default:
			exact = append(exact, n)
		}
	}
	out = exact
	if bare != nil {
		wild = append(wild, bare)
	}
	for i, n := range wild {
		if by := takes(wild[:i], n); by != nil {
			o.dead[n] = by
			continue
		}
		out = append(out, n)
	}
	return out
}

// takes returns the first of the patterns that matches whatever n would.
func takes(before []*Descriptor, n *Descriptor) *Descriptor {
	for _, b := range before {
		// A star of n's is matched by a star of b's only, so that b matches all that
		// stands for it.
		if b.covering() || n.Value != "" && matches(b.composite(), n.composite()) {
			return b
		}
	}
	return nil
}

// hides calls back for each two ways that may have a request in common, the one that is
// chosen first, first. list is in order, so that ways by the same node stand together.
func hides(list []way, depth int, pair func(first, second int), base int) {
	// Exact values stand first and have no request in common.
	patterns := slices.IndexFunc(list, func(w way) bool { return depth >= len(w.path) || !w.path[depth].exactly() })
	if patterns < 0 {
		patterns = len(list)
	}
	for from := 0; from < len(list); {
		if depth >= len(list[from].path) { // goes on to nothing; those before went further
			for j := from + 1; j < len(list); j++ {
				pair(base+from, base+j)
			}
			from++
			continue
		}
		n, to := list[from].path[depth], from+1
		for to < len(list) && depth < len(list[to].path) && list[to].path[depth] == n {
			to++
		}
		hides(list[from:to], depth+1, pair, base+from)
		for j := max(to, patterns); j < len(list); j++ {
			for i := from; i < to; i++ {
				if overlap(list[i], list[j]) {
					pair(base+i, base+j)
				}
			}
		}
		from = to
	}
}

// overlap reports whether some request may go either way. It may say yes where there
// is none: then a rule supersedes another that never meets it.
func overlap(a, b way) bool {
	for i := range min(len(a.path), len(b.path)) {
		if !meet(a.path[i], b.path[i]) {
			return false
		}
	}
	return true
}

// meet reports whether two nodes of one key may match one value.
func meet(a, b *Descriptor) bool {
	switch {
	case a == b || a.covering() || b.covering():
		return true
	case !a.wildcard() && !b.wildcard():
		return a.Value == b.Value
	case !b.wildcard():
		return matches(a.Value, b.Value)
	case !a.wildcard():
		return matches(b.Value, a.Value)
	}
	aFirst, _, _ := strings.Cut(a.Value, "*")
	bFirst, _, _ := strings.Cut(b.Value, "*")
	aLast, bLast := a.Value[strings.LastIndexByte(a.Value, '*')+1:], b.Value[strings.LastIndexByte(b.Value, '*')+1:]
	return (strings.HasPrefix(aFirst, bFirst) || strings.HasPrefix(bFirst, aFirst)) &&
		(strings.HasSuffix(aLast, bLast) || strings.HasSuffix(bLast, aLast))
}

// keyPaths returns the distinct key sequences that lead to a rule, in file order.
func (o *orderer) keyPaths(d *Domain) [][]string {
	var out [][]string
	seen := map[string]bool{}
	each(d.Descriptors, func(n *Descriptor) {
		if !o.rule[n] {
			return
		}
		var keys []string
		for _, p := range n.path() {
			keys = append(keys, p.Key)
		}
		if id := Path(keys); !seen[id] {
			seen[id] = true
			out = append(out, keys)
		}
	})
	return out
}
