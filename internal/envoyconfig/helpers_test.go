package envoyconfig_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/envoyconfig"
)

func parse(t *testing.T, texts ...string) *envoyconfig.Tree {
	t.Helper()
	tree, err := parseErr(envoyconfig.ReadOptions{MergeDomains: true}, texts...)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func parseErr(opts envoyconfig.ReadOptions, texts ...string) (*envoyconfig.Tree, error) {
	var files []envoyconfig.File
	for i, text := range texts {
		files = append(files, envoyconfig.File{Name: string(rune('a'+i)) + ".yaml", Data: []byte(text)})
	}
	return envoyconfig.Parse(files, opts)
}

func imported(t *testing.T, opts envoyconfig.Options, texts ...string) *envoyconfig.Imported {
	t.Helper()
	im, err := envoyconfig.Import(parse(t, texts...), opts)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// request reads "database=users,host=a" as one descriptor.
func request(s string) envoyconfig.Request {
	var r envoyconfig.Request
	for part := range strings.SplitSeq(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		r.Entries = append(r.Entries, envoyconfig.Entry{Key: key, Value: value})
	}
	return r
}
