package yaml

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/tallygate/tallygate/internal/yamltree"
	"github.com/tallygate/tallygate/rules"
)

// MaxFileBytes bounds a rules file: far above any real one (about 90,000 rules),
// and small enough to parse in seconds.
const MaxFileBytes = 16 << 20

// maxDepth bounds how deep a rules file nests; real ones nest four deep.
const maxDepth = 32

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
	root, fault := yamltree.Parse(data, yamltree.Bounds{
		Of: "rules", Start: "rules", Empty: "write rules: [] for none", Bytes: MaxFileBytes, Depth: maxDepth,
	})
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
		name, at := yamltree.KeyText(v.Key), yamltree.Position(v.Key)
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
	d.problems = append(d.problems, yamltree.At(at, field, message, fix))
	d.unusable = true
}

// each reads the entries of one list.
func (d *document) each(list *ast.MappingValueNode, name string, read func(*ast.MappingNode, string)) {
	if _, null := list.Value.(*ast.NullNode); null {
		d.refuse(yamltree.Position(list.Key), name, "has no value", "write "+name+": [] for none")
		return
	}
	seq, ok := list.Value.(*ast.SequenceNode)
	if !ok {
		d.refuse(yamltree.Position(list.Key), name, "is not a list", "start each entry with -")
		return
	}
	for i, item := range seq.Values {
		path := fmt.Sprintf("%s[%d]", name, i)
		if m := yamltree.Mapping(item); m != nil {
			read(m, path)
			continue
		}
		d.problems = append(d.problems, yamltree.At(yamltree.Position(item), path, "is not a map of fields", "write id: and the other fields"))
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
