package yaml

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tallygate/tallygate/internal/yamltree"
	"github.com/tallygate/tallygate/rules"
)

// converter writes one rule or override as JSON and remembers where each field
// was.
type converter struct {
	json  []byte
	start rules.Position
	// keys and values hold the places of a field by its path, such as "match.plan"
	// or "identity[1]".
	keys, values map[string]rules.Position
}

func convert(node *ast.MappingNode) *converter {
	c := &converter{keys: map[string]rules.Position{}, values: map[string]rules.Position{}}
	c.start = yamltree.Position(node)
	c.node("", node)
	return c
}

func (c *converter) node(path string, n ast.Node) {
	if m := yamltree.Mapping(n); m != nil {
		c.mapping(path, m)
		return
	}
	switch n := n.(type) {
	case *ast.SequenceNode:
		c.json = append(c.json, '[')
		for i, item := range n.Values {
			if i > 0 {
				c.json = append(c.json, ',')
			}
			child := path + "[" + strconv.Itoa(i) + "]"
			c.values[child] = yamltree.Position(item)
			c.node(child, item)
		}
		c.json = append(c.json, ']')
	case *ast.NullNode:
		c.json = append(c.json, "null"...)
	case *ast.BoolNode:
		c.json = strconv.AppendBool(c.json, n.Value)
	case *ast.LiteralNode:
		c.text(n.Value.Value)
	case *ast.StringNode:
		c.scalar(n.Token, n.Value)
	case ast.ScalarNode:
		c.scalar(n.GetToken(), n.GetToken().Value)
	default:
		c.json = append(c.json, "null"...) // checkShape lets nothing else through
	}
}

// scalar writes an unquoted number as it stands, so that no digit is lost, and
// everything else as text.
func (c *converter) scalar(tk *token.Token, text string) {
	quoted := tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType
	if !quoted && isNumber(text) {
		c.json = append(c.json, text...)
		return
	}
	c.text(text)
}

// isNumber reports whether JSON reads s as a number. YAML has more of them (0x10,
// 1_000, .5, .inf): these are handed on as text, and refused where a number must
// stand.
func isNumber(s string) bool {
	return s != "" && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Valid([]byte(s))
}

func (c *converter) text(s string) {
	quoted, err := json.Marshal(s)
	if err != nil {
		quoted = []byte("null") // strings always marshal
	}
	c.json = append(c.json, quoted...)
}

func (c *converter) mapping(path string, m *ast.MappingNode) {
	c.json = append(c.json, '{')
	for i, v := range m.Values {
		if i > 0 {
			c.json = append(c.json, ',')
		}
		name := yamltree.KeyText(v.Key)
		child := name
		if path != "" {
			child = path + "." + name
		}
		c.keys[child] = yamltree.Position(v.Key)
		c.values[child] = yamltree.Position(v.Key)
		if _, scalar := v.Value.(ast.ScalarNode); scalar {
			c.values[child] = yamltree.Position(v.Value)
		}
		c.text(name)
		c.json = append(c.json, ':')
		c.node(child, v.Value)
	}
	c.json = append(c.json, '}')
}

// find returns the place of a problem: of the field's name where that is wrong,
// else of its value, else of what is around it.
func (c *converter) find(p rules.Problem) rules.Position {
	if p.Value == "" {
		if at, ok := c.keys[p.Field]; ok {
			return at
		}
	}
	for field := p.Field; field != ""; {
		if at, ok := c.values[field]; ok {
			return at
		}
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return c.start
}
