package arch_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tallygate/tallygate"

// source is one Go file of the module.
type source struct {
	file  string // from the module's folder, with slashes
	pkg   string // as in the table of rooms
	test  bool
	lines int
	tree  *ast.File
}

// imports returns the packages of the module and the paths of others that the
// file imports, leaving out the standard library.
func (s *source) imports(t *testing.T) (house, outside []string) {
	t.Helper()
	for _, spec := range s.tree.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: import %s: %v", s.file, spec.Path.Value, err)
		}
		first, _, _ := strings.Cut(name, "/")
		switch {
		case name == module:
			house = append(house, root)
		case strings.HasPrefix(name, module+"/"):
			house = append(house, strings.TrimPrefix(name, module+"/"))
		case strings.Contains(first, "."):
			outside = append(outside, name)
		}
	}
	return house, outside
}

// sources parses every Go file of the module; folders of other modules, of test
// data and hidden ones are none of it.
func sources(t *testing.T) []source {
	t.Helper()
	base := filepath.Join("..", "..")
	var list []source
	err := filepath.WalkDir(base, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && foreign(name, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		file := filepath.ToSlash(rel)
		pkg := path.Dir(file)
		if pkg == "." {
			pkg = root
		}
		list = append(list, source{file: file, pkg: pkg, test: strings.HasSuffix(file, "_test.go"), lines: bytes.Count(text, []byte("\n")), tree: tree})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("found no Go file")
	}
	return list
}

func foreign(dir, name string) bool {
	if name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func table(t *testing.T) map[string]room {
	t.Helper()
	m := make(map[string]room)
	for _, r := range rooms() {
		for _, below := range r.house {
			if _, ok := m[below]; !ok {
				t.Errorf("the table lets %s import %s, which does not stand above it", r.name, below)
			}
		}
		if _, twice := m[r.name]; twice {
			t.Errorf("the table lists %s twice", r.name)
		}
		m[r.name] = r.room
	}
	return m
}

func TestArrowsPointDown(t *testing.T) {
	t.Parallel()
	house := table(t)
	for _, s := range sources(t) {
		r, ok := house[s.pkg]
		if !ok {
			t.Errorf("%s: package %s is not listed in rooms_test.go", s.file, s.pkg)
			continue
		}
		if s.test {
			continue
		}
		inside, _ := s.imports(t)
		for _, p := range inside {
			if !slices.Contains(r.house, p) {
				t.Errorf("%s: %s must not import %s", s.file, s.pkg, p)
			}
		}
	}
}

func TestDependenciesAreListed(t *testing.T) {
	t.Parallel()
	house := table(t)
	for _, s := range sources(t) {
		allowed := house[s.pkg].outside
		if s.test {
			allowed = append(slices.Clone(allowed), testOnly()...)
		}
		_, outside := s.imports(t)
		for _, p := range outside {
			if !slices.ContainsFunc(allowed, func(mod string) bool { return p == mod || strings.HasPrefix(p, mod+"/") }) {
				t.Errorf("%s: %s must not import %s", s.file, s.pkg, p)
			}
		}
	}
	for name, r := range house {
		if len(r.outside) > maxOutside && !strings.HasPrefix(name, "cmd/") {
			t.Errorf("%s uses %d modules of others, want at most %d", name, len(r.outside), maxOutside)
		}
	}
	if len(house[root].outside) != 0 {
		t.Error("the root package must use the standard library only")
	}
}

func TestDirectDependenciesAreFew(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	direct := 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "require ")
		first, _, _ := strings.Cut(line, "/")
		if strings.Contains(first, ".") && !strings.HasSuffix(line, "// indirect") {
			direct++
		}
	}
	if direct > maxDirect {
		t.Errorf("%d direct dependencies, want at most %d", direct, maxDirect)
	}
}

func TestNothingIsWiredByInit(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: has an init function", s.file)
			}
		}
		for _, spec := range s.tree.Imports {
			if spec.Name != nil && (spec.Name.Name == "." || spec.Name.Name == "_" && !slices.Contains(silent(), spec.Path.Value)) {
				t.Errorf("%s: imports %s as %q", s.file, spec.Path.Value, spec.Name.Name)
			}
		}
	}
}

// silent are the packages that may be imported for their mere presence: they
// carry a directive and data, and register nothing.
func silent() []string { return []string{`"embed"`, `"time/tzdata"`} }

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	documented := make(map[string]bool)
	for _, s := range sources(t) {
		if !s.test {
			documented[s.pkg] = documented[s.pkg] || s.tree.Doc != nil
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	rootLines := 0
	for _, s := range sources(t) {
		most := maxFileLines
		if s.test {
			most = maxTestFileLines
		} else if s.pkg == root {
			rootLines += s.lines
		}
		if s.lines > most {
			t.Errorf("%s has %d lines, want at most %d", s.file, s.lines, most)
		}
	}
	if rootLines > maxRootLines {
		t.Errorf("the root package has %d lines, want at most %d", rootLines, maxRootLines)
	}
}

func TestChainIsShort(t *testing.T) {
	t.Parallel()
	graph := make(map[string]map[string]bool)
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		inside, _ := s.imports(t)
		if graph[s.pkg] == nil {
			graph[s.pkg] = make(map[string]bool)
		}
		for _, p := range inside {
			graph[s.pkg][p] = true
		}
	}
	longest := make(map[string][]string)
	var chain func(string) []string
	chain = func(pkg string) []string {
		if c, ok := longest[pkg]; ok {
			return c
		}
		longest[pkg] = []string{pkg} // ends a cycle, which the compiler reports
		best := []string{}
		for _, p := range slices.Sorted(maps.Keys(graph[pkg])) {
			if c := chain(p); len(c) > len(best) {
				best = c
			}
		}
		longest[pkg] = append([]string{pkg}, best...)
		return longest[pkg]
	}
	for _, pkg := range slices.Sorted(maps.Keys(graph)) {
		if c := chain(pkg); len(c) > maxChain {
			t.Errorf("%d packages one below the other, want at most %d: %s", len(c), maxChain, strings.Join(c, " → "))
		}
	}
}
