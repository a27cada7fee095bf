package yamltree

import (
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/token"

	"github.com/tallygate/tallygate/rules"
)

// maxKeys bounds the keys of one map, of which the files have some forty: the
// parser is quadratic in them, and beyond it a small file could run for hours.
const maxKeys = 1_000

// level is a map or list that is open at some token.
type level struct {
	flow   bool // in brackets, which alone close it
	column int
	keys   int
}

// checkShape refuses, before the parser sees them, tokens that nest too deep and
// parts of YAML that the files have no use for.
func checkShape(tokens token.Tokens, b Bounds) *rules.Problem {
	var open []level
	for i, tk := range tokens {
		column := tk.Position.Column
		if b.without(tk.Type) {
			p := At(rules.Position{Line: tk.Position.Line, Column: column}, "",
				fmt.Sprintf("%q starts a part of YAML (%s) that %s files do without", tk.Value, tk.Type, b.Of),
				"write the value out, in quotes if it is text")
			return &p
		}
		switch tk.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, level{flow: true})
		case token.MappingEndType, token.SequenceEndType:
			open = closeFlow(open)
		case token.SequenceEntryType:
			open = openBlock(open, column)
		case token.MappingValueType:
			if i > 0 {
				column = tokens[i-1].Position.Column
			}
			open = openBlock(open, column)
			open[len(open)-1].keys++
		default:
			continue
		}
		if n := len(open); n > b.Depth || n > 0 && open[n-1].keys > maxKeys {
			p := At(rules.Position{Line: tk.Position.Line, Column: tk.Position.Column}, "",
				fmt.Sprintf("nests deeper than %d levels or has more than %d keys in a map", b.Depth, maxKeys), "flatten it")
			return &p
		}
	}
	return nil
}

// closeFlow drops the innermost bracket and what is open inside it.
func closeFlow(open []level) []level {
	for i, o := range slices.Backward(open) {
		if o.flow {
			return open[:i]
		}
	}
	return open[:0]
}

// openBlock makes the block at that column the innermost one; inside brackets
// columns mean nothing.
func openBlock(open []level, column int) []level {
	for n := len(open); n > 0 && !open[n-1].flow && open[n-1].column > column; n-- {
		open = open[:n-1]
	}
	if n := len(open); n > 0 && (open[n-1].flow || open[n-1].column == column) {
		return open
	}
	return append(open, level{column: column})
}
