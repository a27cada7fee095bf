package envoyconfig

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/tallygate/tallygate/internal/yamltree"
)

// anchors are the nodes of one file that have a name.
type anchors map[string]ast.Node

// findAnchors gathers the names of a file. YAML lets a later node take a name again,
// which people do not see: an alias of such a name is refused.
func findAnchors(root ast.Node) anchors {
	out := anchors{}
	ast.Walk(visitor(func(n ast.Node) {
		a, ok := n.(*ast.AnchorNode)
		if !ok || a.Name == nil || a.Value == nil {
			return
		}
		name := a.Name.GetToken().Value
		if out[name] != nil {
			out[name] = ambiguous{a.Value}
			return
		}
		out[name] = a.Value
	}), root)
	return out
}

// ambiguous stands for a name that two nodes have.
type ambiguous struct{ ast.Node }

type visitor func(ast.Node)

// Visit calls the function for a node and goes on below it.
func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}

// follow returns what an anchor or an alias stands for, and what is wrong with it.
func (a anchors) follow(n ast.Node) (ast.Node, string) {
	switch n := n.(type) {
	case *ast.AnchorNode:
		return n.Value, ""
	case *ast.AliasNode:
		if n.Value == nil {
			return nil, "an alias has no name"
		}
		name := n.Value.GetToken().Value
		target := a[name]
		if target == nil {
			return nil, "there is no anchor " + quote(name)
		}
		if _, twice := target.(ambiguous); twice {
			return nil, "two nodes have the anchor " + quote(name)
		}
		return target, ""
	default:
		return n, ""
	}
}

// pair is one key of a map and its value.
type pair struct {
	key   ast.Node
	value ast.Node
}

// pairs returns the keys of a map, merged maps (<<) after its own, whose keys win.
func (r *reader) pairs(m *ast.MappingNode, depth int) (own, merged []pair) {
	for _, v := range m.Values {
		if _, merge := v.Key.(*ast.MergeKeyNode); !merge {
			own = append(own, pair{v.Key, v.Value})
			continue
		}
		merged = append(merged, r.merge(v.Value, depth)...)
	}
	return own, merged
}

// merge returns the keys of a map, or of the maps of a list, that is merged in.
func (r *reader) merge(n ast.Node, depth int) []pair {
	value := r.resolve(n)
	if depth > MaxDepth {
		r.add(r.place(n), "<<", "merges nest deeper than "+num(MaxDepth), "write the keys out")
		return nil
	}
	if seq, ok := value.(*ast.SequenceNode); ok {
		var out []pair
		for _, item := range seq.Values {
			out = append(out, r.merge(item, depth+1)...)
		}
		return out
	}
	m := yamltree.Mapping(value)
	if m == nil {
		r.add(r.place(n), "<<", "merges what is not a map", "merge a map, or write the keys out")
		return nil
	}
	if !r.count(n) {
		return nil
	}
	own, merged := r.pairs(m, depth+1)
	return append(own, merged...)
}

// resolve follows anchors and aliases to what they stand for; nil after a fault.
func (r *reader) resolve(n ast.Node) ast.Node {
	for range MaxDepth {
		next, fault := r.anchors.follow(n)
		if fault != "" {
			r.add(r.place(n), "", fault, "write the value out")
			return nil
		}
		if next == n {
			return n
		}
		n = next
	}
	r.add(r.place(n), "", "aliases go in a circle", "write the value out")
	return nil
}

// count bounds what aliases can make of a small file.
func (r *reader) count(n ast.Node) bool {
	r.nodes++
	if r.nodes == MaxNodes+1 {
		r.add(r.place(n), "", "more than "+num(MaxNodes)+" keys in all files, aliases counted each time", "split the configuration")
	}
	return r.nodes <= MaxNodes
}
