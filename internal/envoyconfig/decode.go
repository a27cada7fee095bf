package envoyconfig

import (
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/tallygate/tallygate/internal/yamltree"
)

// block is a kind of map in a file; a key belongs to one or two of them.
type block uint8

const (
	top block = 1 << iota
	descriptor
	rateLimit
	replacing
	// anywhere is a map in a place where none is read: only its keys are checked.
	anywhere
)

// blocks says where each key is read. A key that is not here is refused wherever it
// stands; one that is passes everywhere.
func blocks(key string) (block, bool) {
	switch key {
	case "domain":
		return top, true
	case "descriptors":
		return top | descriptor, true
	case "key", "value", "rate_limit", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata":
		return descriptor, true
	case "unit", "requests_per_unit", "unlimited", "replaces":
		return rateLimit, true
	case "name":
		return rateLimit | replacing, true
	default:
		return 0, false
	}
}

func keys() []string {
	return []string{
		"domain", "descriptors", "key", "value", "rate_limit", "shadow_mode", "quota_mode", "detailed_metric",
		"value_to_metric", "share_threshold", "metadata", "unit", "requests_per_unit", "unlimited", "replaces", "name",
	}
}

// fields are the keys of one map that are read, by name, and where the map is.
type fields struct {
	at Place
	of map[string]field
}

type field struct {
	at    Place
	value ast.Node // resolved
}

// read takes the keys of a map of that kind. It refuses unknown and doubled keys,
// follows aliases, and records each line for the report.
func (r *reader) read(m *ast.MappingNode, b block, d *Domain, n *Descriptor) fields {
	out := fields{at: r.place(m), of: map[string]field{}}
	own, merged := r.pairs(m, 0)
	for i, p := range slices.Concat(own, merged) {
		name, at := keyText(p.key), r.place(p.key)
		if i == 0 {
			out.at = at
		}
		home, known := blocks(name)
		_, doubled := out.of[name]
		switch {
		case !known:
			fix := "remove it; see the list of keys in docs/migrating-from-envoy-ratelimit.md"
			if near := nearest(name, keys()); near != "" {
				fix = "did you mean " + quote(near) + "?"
			}
			r.add(at, name, "unknown key", fix)
			continue
		case doubled && i < len(own):
			r.add(at, name, "is given twice", "keep one")
			continue
		case doubled: // merged in, and the map has its own
			continue
		case !r.count(p.key):
			return out
		}
		value := r.resolve(p.value)
		if value == nil {
			continue
		}
		l := line{Place: at, field: name, value: scalarText(value), domain: d, node: n}
		if home&b == 0 {
			l.standing = misplaced
		}
		r.tree.lines = append(r.tree.lines, l)
		if home&b == 0 {
			r.check(value, name, d, n, 0)
			continue
		}
		out.of[name] = field{at: at, value: value}
	}
	return out
}

// check looks at what is in a place where nothing reads it, as strictly as there.
func (r *reader) check(value ast.Node, name string, d *Domain, n *Descriptor, depth int) {
	if depth > maxYAMLDepth {
		r.add(r.place(value), name, "nests deeper than "+num(maxYAMLDepth), "flatten it")
		return
	}
	if m := yamltree.Mapping(value); m != nil {
		if name == "metadata" {
			r.metadata(value, d, n, depth)
			return
		}
		for inner, f := range r.read(m, anywhere, d, n).of {
			r.check(f.value, inner, d, n, depth+1)
		}
		return
	}
	if seq, ok := value.(*ast.SequenceNode); ok {
		for _, item := range seq.Values {
			if !r.count(item) {
				return
			}
			if m := yamltree.Mapping(r.resolve(item)); m != nil {
				r.check(m, name, d, n, depth+1)
			} else {
				r.add(r.place(item), name, "the list holds something that is not a map", "write maps")
			}
		}
		return
	}
	r.scalar(name, field{at: r.place(value), value: value})
}

// metadata records the lines of free text below a node.
func (r *reader) metadata(value ast.Node, d *Domain, n *Descriptor, depth int) {
	if depth > maxYAMLDepth || value == nil {
		return
	}
	if seq, ok := value.(*ast.SequenceNode); ok {
		for _, item := range seq.Values {
			if !r.count(item) {
				return
			}
			if item = r.resolve(item); yamltree.Mapping(item) == nil {
				r.tree.lines = append(r.tree.lines, line{Place: r.place(item), field: "metadata", value: scalarText(item), standing: inMetadata, domain: d, node: n})
			}
			r.metadata(item, d, n, depth+1)
		}
		return
	}
	m := yamltree.Mapping(value)
	if m == nil {
		return
	}
	own, merged := r.pairs(m, 0)
	for _, p := range slices.Concat(own, merged) {
		if !r.count(p.key) {
			return
		}
		v := r.resolve(p.value)
		r.tree.lines = append(r.tree.lines, line{Place: r.place(p.key), field: keyText(p.key), value: scalarText(v), standing: inMetadata, domain: d, node: n})
		r.metadata(v, d, n, depth+1)
	}
}

func (r *reader) root(m *ast.MappingNode) {
	d := &Domain{}
	f := r.read(m, top, d, nil)
	d.At = f.at
	if given, ok := f.of["domain"]; ok {
		d.Name, d.At = r.scalar("domain", given), given.at
	}
	if d.Name == "" {
		r.add(d.At, "domain", "the file has no domain", "write domain: and its name")
		return
	}
	d.Descriptors = r.list(f.of["descriptors"], d, nil, 1)
	r.take(d, d.At)
}

// list reads the descriptors of one level.
func (r *reader) list(f field, d *Domain, parent *Descriptor, depth int) []*Descriptor {
	var out []*Descriptor
	for _, m := range r.maps(f, "descriptors") {
		if depth > MaxDepth {
			r.add(r.place(m), "descriptors", "nest deeper than "+num(MaxDepth), "flatten them")
			return nil
		}
		out = append(out, r.descriptor(m, d, parent, depth))
	}
	return out
}

// maps returns the items of a list of maps.
func (r *reader) maps(f field, name string) []*ast.MappingNode {
	switch v := f.value.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.SequenceNode:
		var out []*ast.MappingNode
		for _, item := range v.Values {
			if !r.count(item) {
				return nil
			}
			resolved := r.resolve(item)
			if m := yamltree.Mapping(resolved); m != nil {
				out = append(out, m)
			} else if resolved != nil {
				r.add(r.place(item), name, "the list holds something that is not a map", "write maps, each starting with -")
			}
		}
		return out
	default:
		r.add(f.at, name, "is not a list", "start each entry with -")
		return nil
	}
}

func (r *reader) descriptor(m *ast.MappingNode, d *Domain, parent *Descriptor, depth int) *Descriptor {
	n := &Descriptor{parent: parent, domain: d}
	f := r.read(m, descriptor, d, n)
	n.At = f.at
	before := len(r.problems)
	n.Key = r.scalar("key", f.of["key"])
	if n.Key == "" && len(r.problems) == before {
		r.add(n.At, "key", "the descriptor has no key", "write key: and the entry's key")
	}
	n.Value = r.scalar("value", f.of["value"])
	for name, to := range map[string]*bool{
		"shadow_mode": &n.ShadowMode, "quota_mode": &n.QuotaMode, "detailed_metric": &n.DetailedMetric,
		"value_to_metric": &n.ValueToMetric, "share_threshold": &n.ShareThreshold,
	} {
		*to = r.boolean(name, f.of[name])
	}
	if meta, ok := f.of["metadata"]; ok {
		r.metadata(meta.value, d, n, 0)
	}
	if given, ok := f.of["rate_limit"]; ok {
		n.Limit = r.limit(given, d, n)
	}
	n.Descriptors = r.list(f.of["descriptors"], d, n, depth+1)
	return n
}

func (r *reader) limit(given field, d *Domain, n *Descriptor) *Limit {
	if _, null := given.value.(*ast.NullNode); null {
		return nil // as if it were not written
	}
	m := yamltree.Mapping(given.value)
	if m == nil {
		r.add(given.at, "rate_limit", "is not a map", "write unit: and requests_per_unit: below it")
		return nil
	}
	f := r.read(m, rateLimit, d, n)
	out := &Limit{At: given.at, Name: r.scalar("name", f.of["name"]), Unlimited: r.boolean("unlimited", f.of["unlimited"])}
	out.RequestsPerUnit, out.given = r.whole("requests_per_unit", f.of["requests_per_unit"])
	unit := r.scalar("unit", f.of["unit"])
	at := given.at
	if u, ok := f.of["unit"]; ok {
		at = u.at
	}
	known := false
	switch out.Unit, known = parseUnit(unit); {
	case known && out.Unlimited:
		r.add(at, "unit", "an unlimited limit has no unit", "remove unit or unlimited")
	case !known && !out.Unlimited:
		r.add(at, "unit", "invalid rate limit unit "+quote(unit), "use second, minute, hour, day, week, month or year")
	}
	for _, m := range r.maps(f.of["replaces"], "replaces") {
		e := r.read(m, replacing, d, n)
		switch name := r.scalar("name", e.of["name"]); name {
		case "":
			r.add(e.at, "replaces", "an entry has no name", "write name: and the name of the limit it replaces")
		case out.Name:
			r.add(e.at, "replaces", "a limit cannot replace itself", "remove it")
		default:
			out.Replaces = append(out.Replaces, name)
		}
	}
	return out
}

// index makes the levels by which requests are matched.
func (t *Tree) index() {
	for _, d := range t.Domains {
		d.level = newLevel(d.Descriptors)
		each(d.Descriptors, func(n *Descriptor) { n.level = newLevel(n.Descriptors) })
	}
	order := t.fileOrder()
	slices.SortStableFunc(t.lines, func(a, b line) int { return comparePlaces(order, a.Place, b.Place) })
}

// fileOrder numbers the files in the order in which they were read.
func (t *Tree) fileOrder() map[string]int {
	out := map[string]int{}
	for _, l := range t.lines {
		if _, ok := out[l.File]; !ok {
			out[l.File] = len(out)
		}
	}
	return out
}
