// Package scenarios holds the scenarios we ship, as files: what the figures in
// docs/performance.md were measured with, and a start for others.
package scenarios

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names returns the names of all, in the order of the alphabet.
func Names() []string {
	found, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil // the pattern is a good one
	}
	for i := range found {
		found[i] = strings.TrimSuffix(found[i], ".yaml")
	}
	return found
}

// Read returns the text of a scenario, and whether there is one of that name.
func Read(name string) ([]byte, bool) {
	data, err := files.ReadFile(name + ".yaml")
	return data, err == nil
}
