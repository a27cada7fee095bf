package envoyconfig

import (
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tallygate/tallygate/internal/yamltree"
)

// scalar reads a text: a string, or a whole number or a truth value as it is written.
// Floats are refused as there: unquoted, 1.5 and 1.50 would be one value.
func (r *reader) scalar(name string, f field) string {
	switch v := f.value.(type) {
	case nil, *ast.NullNode:
		return ""
	case *ast.StringNode:
		if quoted(v) || !float(v.Value) {
			return v.Value
		}
		r.add(r.place(v), name, v.Value+" is an unquoted float", "put it in quotes")
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.IntegerNode, *ast.BoolNode:
		return f.value.GetToken().Value
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		r.add(r.place(f.value), name, f.value.GetToken().Value+" is an unquoted float", "put it in quotes")
	default:
		r.add(f.at, name, "is not a single value", "write one value")
	}
	return ""
}

// boolean reads a truth value in the spellings of YAML 1.1.
func (r *reader) boolean(name string, f field) bool {
	if f.value == nil {
		return false
	}
	if _, null := f.value.(*ast.NullNode); null {
		return false
	}
	if text := r.scalar(name, f); !quoted(f.value) {
		switch strings.ToLower(text) {
		case "true", "yes", "on", "y":
			return true
		case "false", "no", "off", "n":
			return false
		}
	}
	r.add(r.place(f.value), name, "is neither true nor false", "write true or false, without quotes")
	return false
}

// whole reads a number of 32 bits, and says whether there is one.
func (r *reader) whole(name string, f field) (uint32, bool) {
	if f.value == nil {
		return 0, false
	}
	if _, null := f.value.(*ast.NullNode); null {
		return 0, false
	}
	text := r.scalar(name, f)
	if v, err := strconv.ParseUint(text, 10, 32); err == nil && !quoted(f.value) {
		return uint32(v), true
	}
	if text != "" || quoted(f.value) {
		r.add(r.place(f.value), name, quote(text)+" is not a whole number from 0 to "+num(uint32(math.MaxUint32)), "write one in digits, without quotes")
	}
	return 0, false
}

// float reports whether YAML 1.1 takes a plain text for a float that our parser takes
// for a text, such as 1e3.
func float(s string) bool {
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" || !strings.ContainsAny(s, ".eE") {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

func quoted(n ast.Node) bool {
	s, ok := n.(*ast.StringNode)
	return ok && (s.Token.Type == token.SingleQuoteType || s.Token.Type == token.DoubleQuoteType)
}

// scalarText returns a single value as it is shown in the report, "" for maps and
// lists.
func scalarText(n ast.Node) string {
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value
	case *ast.LiteralNode:
		return v.Value.Value
	case nil, *ast.NullNode, *ast.MappingNode, *ast.MappingValueNode, *ast.SequenceNode:
		return ""
	default:
		return v.GetToken().Value
	}
}

func keyText(k ast.Node) string {
	if key, ok := k.(ast.MapKeyNode); ok {
		return yamltree.KeyText(key)
	}
	return ""
}

func (r *reader) place(n ast.Node) Place {
	at := yamltree.Position(n)
	return Place{File: r.name, Line: at.Line, Column: at.Column}
}

// comparePlaces orders places as the files are read.
func comparePlaces(files map[string]int, a, b Place) int {
	switch {
	case a.File != b.File:
		return files[a.File] - files[b.File]
	case a.Line != b.Line:
		return a.Line - b.Line
	default:
		return a.Column - b.Column
	}
}
