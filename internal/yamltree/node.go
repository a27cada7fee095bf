package yamltree

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/tallygate/tallygate/rules"
)

// Mapping returns a node as a map: the parser has two forms of it.
func Mapping(n ast.Node) *ast.MappingNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n
	case *ast.MappingValueNode:
		return &ast.MappingNode{BaseNode: &ast.BaseNode{}, Start: n.Start, Values: []*ast.MappingValueNode{n}}
	default:
		return nil
	}
}

// KeyText returns a key as written.
func KeyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.GetToken().Value
}

// Position returns where a node starts; a map starts at its first key.
func Position(n ast.Node) rules.Position {
	if n == nil {
		return rules.Position{}
	}
	if m := Mapping(n); m != nil && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	tk := n.GetToken()
	if tk == nil || tk.Position == nil {
		return rules.Position{}
	}
	return rules.Position{Line: tk.Position.Line, Column: tk.Position.Column}
}

// At returns a problem at that place.
func At(at rules.Position, field, message, fix string) rules.Problem {
	return rules.Problem{Field: field, Message: message, Fix: fix, Line: at.Line, Column: at.Column}
}
