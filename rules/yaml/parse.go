package yaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/tallygate/tallygate/rules"
)

// MaxFileBytes bounds a rules file: far above any real one (about 90,000 rules),
// and small enough to parse in seconds.
const MaxFileBytes = 16 << 20

// Parse reads a rules file. Faulty rules and overrides are left out of the set,
// named in the problems with line and column, and listed in the set's Unread, so
// that their last good versions stay. For a file that is faulty as a whole the
// set is empty. Parse does not panic, whatever the bytes.
func Parse(data []byte) (rules.Set, rules.Problems) {
	set, problems, _ := parse(data)
	return set, problems
}

// parse is Parse, and says whether the file can be used at all.
func parse(data []byte) (set rules.Set, problems rules.Problems, usable bool) {
	root, fault := parseTree(data)
	if fault != nil {
		return rules.Set{}, rules.Problems{*fault}, false
	}
	d := document{}
	d.read(root)
	if d.unusable {
		return rules.Set{}, d.problems, false
	}
	return d.set, d.problems, true
}

// parseTree returns the root of the one document.
func parseTree(data []byte) (root *ast.MappingNode, fault *rules.Problem) {
	// The parser is not ours and the bytes are anyone's: a bug in it must refuse
	// the file and keep the last good rules, not stop the pod.
	defer func() {
		if p := recover(); p != nil {
			root, fault = nil, &rules.Problem{Message: fmt.Sprintf("the YAML parser failed: %v", p), Fix: "simplify the file"}
		}
	}()
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // the lexer counts some of these twice
	if fault := checkText(data); fault != nil {
		return nil, fault
	}
	tokens := lexer.Tokenize(string(data))
	if fault := checkShape(tokens); fault != nil {
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
			p := problemAt(position(doc.Body), "", "a second YAML document", "keep one document in the file")
			return nil, &p
		}
		body = doc.Body
	}
	if body == nil {
		// An empty file is more often a write under way than a wish for no limits.
		return nil, &rules.Problem{Message: "the file is empty", Fix: "write rules: [] for none", Line: 1, Column: 1}
	}
	root = mapping(body)
	if root == nil {
		p := problemAt(position(body), "", "the file is not a map", "start with rules:")
		return nil, &p
	}
	return root, nil
}

// checkText refuses bytes that no rules file has.
func checkText(data []byte) *rules.Problem {
	if len(data) > MaxFileBytes {
		return &rules.Problem{Message: fmt.Sprintf("%d bytes are above %d", len(data), MaxFileBytes), Fix: "split the rules"}
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

// document gathers the set while it reads the tree.
type document struct {
	set      rules.Set
	problems rules.Problems
	// unusable says that a list as a whole could not be read: taking the rest for
	// everything would drop what is in it.
	unusable bool
}

func (d *document) read(root *ast.MappingNode) {
	seen := map[string]bool{}
	for _, v := range root.Values {
		name, at := keyText(v.Key), position(v.Key)
		switch {
		case seen[name]:
			d.refuse(at, name, "is given twice", "keep one")
		case name == "rules":
			d.each(v, name, d.rule)
		case name == "overrides":
			d.each(v, name, d.override)
		default:
			d.refuse(at, name, "unknown field", "a rules file has rules and overrides")
		}
		seen[name] = true
	}
}

// refuse names a fault of the file as a whole.
func (d *document) refuse(at rules.Position, field, message, fix string) {
	d.problems = append(d.problems, problemAt(at, field, message, fix))
	d.unusable = true
}

// each reads the entries of one list.
func (d *document) each(list *ast.MappingValueNode, name string, read func(*ast.MappingNode, string)) {
	if _, null := list.Value.(*ast.NullNode); null {
		d.refuse(position(list.Key), name, "has no value", "write "+name+": [] for none")
		return
	}
	seq, ok := list.Value.(*ast.SequenceNode)
	if !ok {
		d.refuse(position(list.Key), name, "is not a list", "start each entry with -")
		return
	}
	for i, item := range seq.Values {
		path := fmt.Sprintf("%s[%d]", name, i)
		if m := mapping(item); m != nil {
			read(m, path)
			continue
		}
		d.problems = append(d.problems, problemAt(position(item), path, "is not a map of fields", "write id: and the other fields"))
	}
}

func (d *document) rule(node *ast.MappingNode, path string) {
	c := convert(node)
	r, problems := rules.ParseRule(c.json)
	r.At = c.start
	if len(problems) == 0 {
		d.set.Rules = append(d.set.Rules, r)
		return
	}
	d.skip(problems, c, path)
	if r.ID != "" {
		d.set.Unread = append(d.set.Unread, rules.Ref{Rule: r.ID})
	}
}

func (d *document) override(node *ast.MappingNode, path string) {
	c := convert(node)
	o, problems := rules.ParseOverride(c.json)
	o.At = c.start
	if len(problems) == 0 {
		d.set.Overrides = append(d.set.Overrides, o)
		return
	}
	d.skip(problems, c, path)
	if o.Rule != "" && len(o.Key) > 0 {
		d.set.Unread = append(d.set.Unread, rules.Ref{Rule: o.Rule, Key: o.Key})
	}
}

// skip adds the problems of one entry, each with its place in the file.
func (d *document) skip(problems rules.Problems, c *converter, path string) {
	for i := range problems {
		p := &problems[i]
		if p.Field == "" {
			p.Field = path
		}
		at := c.find(*p)
		p.Line, p.Column = at.Line, at.Column
	}
	slices.SortStableFunc(problems, func(a, b rules.Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	d.problems = append(d.problems, problems...)
}

func problemAt(at rules.Position, field, message, fix string) rules.Problem {
	return rules.Problem{Field: field, Message: message, Fix: fix, Line: at.Line, Column: at.Column}
}
