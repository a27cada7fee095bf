package envoyconfig

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/yamltree"
)

// Bounds of a configuration: far above real ones, small enough to read in seconds.
const (
	// MaxFileBytes bounds one file, MaxBytes all of them.
	MaxFileBytes = 4 << 20
	MaxBytes     = 16 << 20
	// MaxFiles bounds the files of a directory.
	MaxFiles = 1_000
	// MaxDepth bounds how deep descriptors nest.
	MaxDepth = 32
	// MaxPatterns bounds the descriptors of one level and key with a *, each of
	// which a request tries in turn.
	MaxPatterns = 1_000
	// MaxNodes bounds all keys of all maps, where aliases count each time.
	MaxNodes = 500_000
	// maxProblems bounds what is told at once.
	maxProblems = 100

	// A descriptor nests a list and a map, its limit a map, a list and a map more.
	maxYAMLDepth = 2*MaxDepth + 8
)

// ReadOptions are the switches of their service that change what files mean.
type ReadOptions struct {
	// MergeDomains lets several files add to one domain, as MERGE_DOMAIN_CONFIG does;
	// without it the second file of a domain is an error.
	MergeDomains bool
}

// File is one file's name, as problems and notes shall show it, and its bytes.
type File struct {
	Name string
	Data []byte
}

// Read reads a file, or the files of a directory whose names end in .yaml or .yml, in
// the order of their names; names that start with a dot are not looked at. An error is
// [Problems] where the files are at fault. Any fault refuses all of it, as there.
func Read(path string, opts ReadOptions) (*Tree, error) {
	in, err := load(path)
	if err != nil {
		return nil, err
	}
	return in.parse(opts)
}

// loaded are the files of a path.
type loaded struct {
	files   []File
	skipped []string
}

func (in loaded) parse(opts ReadOptions) (*Tree, error) {
	t, err := Parse(in.files, opts)
	if err != nil {
		return nil, err
	}
	t.skipped = in.skipped
	return t, nil
}

func load(path string) (loaded, error) {
	info, err := os.Stat(path)
	if err != nil {
		return loaded{}, err
	}
	if !info.IsDir() {
		data, err := readFile(path, MaxFileBytes)
		return loaded{files: []File{{Name: filepath.Base(path), Data: data}}}, err
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return loaded{}, err
	}
	var in loaded
	total := 0
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue // a mounted ConfigMap keeps its versions there
		}
		if ext := strings.ToLower(filepath.Ext(name)); ext != ".yaml" && ext != ".yml" {
			in.skipped = append(in.skipped, name)
			continue
		}
		if len(in.files) == MaxFiles {
			return loaded{}, fmt.Errorf("%s: more than %d files; merge some", path, MaxFiles)
		}
		data, err := readFile(filepath.Join(path, name), MaxFileBytes)
		if err != nil {
			return loaded{}, err
		}
		if total += len(data); total > MaxBytes {
			return loaded{}, fmt.Errorf("%s: the files hold more than %d bytes; split the directory", path, MaxBytes)
		}
		in.files = append(in.files, File{Name: name, Data: data})
	}
	if len(in.files) == 0 {
		return loaded{}, fmt.Errorf("%s: no file ends in .yaml or .yml; name the directory that holds the domains", path)
	}
	return in, nil
}

// readFile reads one byte more than may be there: the parser then says so.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // reading a pipe would wait for a writer
		return nil, fmt.Errorf("%s: is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, most+1))
}

// Parse reads files that are in memory, in the order given. It does not panic,
// whatever the bytes. An error is [Problems].
func Parse(files []File, opts ReadOptions) (*Tree, error) {
	r := reader{opts: opts, tree: &Tree{byName: map[string]*Domain{}}}
	for _, f := range files {
		r.file(f)
	}
	if len(r.problems) > 0 {
		order := map[string]int{}
		for i, f := range files {
			order[f.Name] = i
		}
		slices.SortStableFunc(r.problems, func(a, b Problem) int { return comparePlaces(order, a.Place, b.Place) })
		return nil, r.problems[:min(len(r.problems), maxProblems)]
	}
	r.tree.index()
	return r.tree, nil
}

// reader gathers the tree while it reads the files.
type reader struct {
	opts     ReadOptions
	tree     *Tree
	problems Problems

	// What follows is of the file being read.
	name    string
	anchors anchors
	nodes   int // of all files
}

func (r *reader) file(f File) {
	r.name = f.Name
	// The parser is not ours and leaves holes in the trees of some malformed files: one
	// must refuse the file and keep the last good rules, not stop the pod.
	defer func() {
		if p := recover(); p != nil {
			r.add(Place{File: f.Name}, "", fmt.Sprintf("the YAML parser failed: %v", p), "simplify the file")
		}
	}()
	root, fault := yamltree.Parse(f.Data, yamltree.Bounds{
		Of: "configuration", Start: "domain", Empty: "write a domain and its descriptors",
		Bytes: MaxFileBytes, Depth: maxYAMLDepth, Aliases: true,
	})
	if fault != nil {
		r.problems = append(r.problems, Problem{
			Place: Place{File: f.Name, Line: fault.Line, Column: fault.Column},
			Field: fault.Field, Message: fault.Message, Fix: fault.Fix,
		})
		return
	}
	r.anchors = findAnchors(root)
	r.root(root)
}

// add tells a fault, and ten times as many as are shown at most, so that those of the
// first lines are among them.
func (r *reader) add(at Place, field, message, fix string) {
	if len(r.problems) >= 10*maxProblems {
		return
	}
	r.problems = append(r.problems, Problem{Place: at, Field: field, Message: message, Fix: fix})
}

// take adds a file's domain to the tree, or its descriptors to those of a file before.
func (r *reader) take(d *Domain, at Place) {
	before := r.tree.byName[d.Name]
	if before == nil {
		r.tree.byName[d.Name] = d
		r.tree.Domains = append(r.tree.Domains, d)
		r.duplicates(d, d.Descriptors)
		return
	}
	if !r.opts.MergeDomains {
		r.add(at, "domain", quote(d.Name)+" is in "+before.At.String()+" already",
			"merge the files, or turn merging of domains on (MERGE_DOMAIN_CONFIG there)")
		return
	}
	each(d.Descriptors, func(n *Descriptor) { n.domain = before })
	for i := range r.tree.lines {
		if r.tree.lines[i].domain == d {
			r.tree.lines[i].domain = before
		}
	}
	before.Descriptors = append(before.Descriptors, d.Descriptors...)
	r.duplicates(before, before.Descriptors)
}

// duplicates refuses two nodes of one level that are found by the same text.
func (r *reader) duplicates(d *Domain, nodes []*Descriptor) {
	seen := make(map[string]*Descriptor, len(nodes))
	patterns := map[string]int{}
	for _, n := range nodes {
		if n.wildcard() {
			if patterns[n.Key]++; patterns[n.Key] == MaxPatterns+1 {
				r.add(n.At, "value", "more than "+num(MaxPatterns)+" values with a * of key "+quote(n.Key)+" stand side by side", "merge some")
			}
		}
		first := seen[n.composite()]
		if first == nil {
			seen[n.composite()] = n
			r.duplicates(d, n.Descriptors)
			continue
		}
		message := "duplicate descriptor composite key " + quote(d.Name+"."+n.composite()) + ", taken at " + first.At.String()
		fix := "keep one"
		if first.Key != n.Key {
			fix = "rename a key: key " + quote(first.Key) + " and key " + quote(n.Key) + " make the same text key_value"
		}
		if !slices.ContainsFunc(r.problems, func(p Problem) bool { return p.Place == n.At && p.Field == "key" }) {
			r.add(n.At, "key", message, fix)
		}
	}
}
