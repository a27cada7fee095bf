package arch_test

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// documents returns the text of every Markdown file at the root and under docs, by
// name from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	base := filepath.Join("..", "..")
	texts := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/gateways/*.md", "docs/runbooks/*.md"} {
		names, err := filepath.Glob(filepath.Join(base, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			rel, err := filepath.Rel(base, name)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.ToSlash(rel)] = string(text)
		}
	}
	if len(texts) == 0 {
		t.Fatal("found no document")
	}
	return texts
}

func TestLinksInDocumentsResolve(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for name, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := filepath.Join("..", "..", filepath.Dir(name), target)
			if target == "" {
				file = filepath.Join("..", "..", name)
			}
			there, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(there)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
	}
}

// anchors returns the names under which the headings of a text can be linked.
func anchors(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")
			names = append(names, regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(name, ""))
		}
	}
	return names
}

// Names that a user types or reads must stand in the document that is about them.
func TestDocumentsNameWhatTheCodeNames(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	all := sources(t)
	for _, tt := range []struct {
		what, file, document string
		names                func(*ast.File) []string
	}{
		{"setting", "cmd/tallygate/settings.go", "docs/deployment.md", fieldLiterals("name")},
		{"field of a rule", "rules/encode.go", "docs/rules.md", jsonNames},
		{"field that comes later", "rules/later.go", "docs/rules.md", cases("laterField")},
		{"code", "error.go", "docs/api.md", constants("Code")},
		{"code", "internal/server/problem.go", "docs/api.md", constants("Code")},
		{"code", "internal/admin/api/problem.go", "docs/admin-api.md", constants("Code")},
		{"field of the admin API", "internal/admin/api/change.go", "docs/admin-api.md", jsonNames},
		{"action", "internal/rulestore/change.go", "docs/admin-api.md", constants("Action")},
		{"role", "internal/admin/token/token.go", "docs/admin-api.md", constants("Role")},
		{"reason", "verdict.go", "docs/api.md", constants("Reason")},
		{"source", "verdict.go", "docs/metrics.md", constants("Source")},
		{"fault", "identity/facts.go", "docs/middleware.md", constants("Fault")},
		{"outcome", "stats.go", "docs/metrics.md", constants("Outcome")},
		{"source", "verdict.go", "docs/api.md", constants("Source")},
	} {
		i := slices.IndexFunc(all, func(s source) bool { return s.file == tt.file })
		if i < 0 {
			t.Errorf("%s is not there", tt.file)
			continue
		}
		names := tt.names(all[i].tree)
		if len(names) == 0 {
			t.Errorf("found no %s in %s", tt.what, tt.file)
		}
		for _, name := range names {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(texts[tt.document]) {
				t.Errorf("%s does not name the %s %q", tt.document, tt.what, name)
			}
		}
	}
}

// fieldLiterals returns what a field of composite literals is set to.
func fieldLiterals(field string) func(*ast.File) []string {
	return func(tree *ast.File) []string {
		var names []string
		ast.Inspect(tree, func(n ast.Node) bool {
			kv, ok := n.(*ast.KeyValueExpr)
			if !ok {
				return true
			}
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == field {
				names = append(names, text(kv.Value)...)
			}
			return true
		})
		return names
	}
}

// metricNames returns the texts that are names of metrics.
func metricNames(tree *ast.File) []string {
	var names []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			for _, name := range text(e) {
				if strings.HasPrefix(name, "tallygate_") {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

// jsonNames returns the names in json tags.
func jsonNames(tree *ast.File) []string {
	var names []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && f.Tag != nil {
			if tag, err := strconv.Unquote(f.Tag.Value); err == nil {
				name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// cases returns the texts a function's switches distinguish.
func cases(function string) func(*ast.File) []string {
	return func(tree *ast.File) []string {
		var names []string
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != function {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CaseClause); ok {
					for _, e := range c.List {
						names = append(names, text(e)...)
					}
				}
				return true
			})
		}
		return names
	}
}

// constants returns the values of constants of a type, whatever its package.
func constants(kind string) func(*ast.File) []string {
	return func(tree *ast.File) []string {
		var names []string
		ast.Inspect(tree, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || typeName(v.Type) != kind {
				return true
			}
			for _, e := range v.Values {
				names = append(names, text(e)...)
			}
			return true
		})
		return names
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

// text returns the value of a literal text, and nothing for an empty one.
func text(e ast.Expr) []string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return nil
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil || s == "" {
		return nil
	}
	return []string{s}
}
