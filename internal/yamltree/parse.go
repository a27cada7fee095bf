// Package yamltree reads a YAML file of people as a tree with places, within
// bounds: one document whose root is a map, no bytes and no shapes that hurt the
// parser. What the maps mean is for its callers to say.
//
//	bytes ─► checkText ─► tokens ─► checkShape ─► parser ─► root
//
// Everything here is a pure function.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/tallygate/tallygate/rules"
)

// Bounds are what a file may hold.
type Bounds struct {
	// Of is what the file holds, for messages: "rules".
	Of string
	// Start is the key such a file starts with, Empty what to do about an empty one.
	Start, Empty string
	// Bytes bounds the file, Depth how deep maps and lists nest: the parser recurses
	// for each level.
	Bytes, Depth int
	// Aliases allows anchors, aliases and merge keys, which the caller then follows,
	// and bounds. Without it they are refused.
	Aliases bool
}

// without reports whether a token starts a part of YAML that is refused.
func (b Bounds) without(t token.Type) bool {
	switch t {
	case token.AnchorType, token.AliasType, token.MergeKeyType:
		return !b.Aliases
	case token.TagType, token.MappingKeyType, token.DirectiveType:
		return true
	default:
		return false
	}
}

// Parse returns the root of the one document. It does not panic, whatever the bytes.
func Parse(data []byte, b Bounds) (root *ast.MappingNode, fault *rules.Problem) {
	// The parser is not ours and the bytes are anyone's: a bug in it must refuse
	// the file and keep the last good rules, not stop the pod.
	defer func() {
		if p := recover(); p != nil {
			root, fault = nil, &rules.Problem{Message: fmt.Sprintf("the YAML parser failed: %v", p), Fix: "simplify the file"}
		}
	}()
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // the lexer counts some of these twice
	if fault := checkText(data, b); fault != nil {
		return nil, fault
	}
	tokens := lexer.Tokenize(string(data))
	if fault := checkShape(tokens, b); fault != nil {
		return nil, fault
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // told one by one, see document
	if err != nil {
		return nil, syntaxFault(err)
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			p := At(Position(doc.Body), "", "a second YAML document", "keep one document in the file")
			return nil, &p
		}
		body = doc.Body
	}
	if body == nil {
		// An empty file is more often a write under way than a wish for no limits.
		return nil, &rules.Problem{Message: "the file is empty", Fix: b.Empty, Line: 1, Column: 1}
	}
	root = Mapping(body)
	if root == nil {
		p := At(Position(body), "", "the file is not a map", "start with "+b.Start+":")
		return nil, &p
	}
	return root, nil
}

// checkText refuses bytes that no such file has.
func checkText(data []byte, b Bounds) *rules.Problem {
	if len(data) > b.Bytes {
		return &rules.Problem{Message: fmt.Sprintf("%d bytes are above %d", len(data), b.Bytes), Fix: "split the " + b.Of}
	}
	bad := func(i int, message, fix string) *rules.Problem {
		line := bytes.Count(data[:i], []byte("\n"))
		start := bytes.LastIndexByte(data[:i], '\n') + 1
		return &rules.Problem{Message: message, Fix: fix, Line: line + 1, Column: utf8.RuneCount(data[start:i]) + 1}
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return bad(i, "is not valid UTF-8", "save the file as UTF-8")
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			return bad(i, fmt.Sprintf("control character %U", r), "remove it")
		}
		i += size
	}
	return nil
}

func syntaxFault(err error) *rules.Problem {
	p := rules.Problem{Message: err.Error(), Fix: "correct the YAML"}
	var syntax interface {
		GetMessage() string
		GetToken() *token.Token
	}
	if errors.As(err, &syntax) {
		p.Message = syntax.GetMessage()
		if tk := syntax.GetToken(); tk != nil && tk.Position != nil {
			p.Line, p.Column = tk.Position.Line, tk.Position.Column
		}
	}
	p.Message, _, _ = strings.Cut(p.Message, "\n")
	return &p
}
