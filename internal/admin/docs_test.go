package admin_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin"
)

// examples returns the shell blocks of the document.
func examples(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "admin-api.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i, part := range strings.Split(string(text), "```sh\n") {
		if block, _, ok := strings.Cut(part, "```"); ok && i > 0 {
			out = append(out, block)
		}
	}
	return out
}

// Every example of the documentation runs as it stands, one after the other.
func TestDocs_examplesRun(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here", program)
		}
	}
	blocks := examples(t)
	if len(blocks) < 8 {
		t.Fatalf("found %d blocks of shell", len(blocks))
	}
	file, shown := tokens(t, "kim admin")
	r := start(t, func(c *admin.Config) { c.Tokens = file })
	run := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		cmd.Env = append(os.Environ(), "API="+r.url, "TOKEN="+shown["kim"], "no_proxy=127.0.0.1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, block := range blocks[1:] {
		if out, err := run(blocks[0] + block); err != nil {
			t.Errorf("%v:\n%s\n%s", err, block, out)
		}
	}
	// What is refused must end the script, or this test sees nothing.
	if out, err := run(blocks[0] + `tg "$API/v1/rules/none"`); err == nil {
		t.Errorf("a refusal passes: %s", out)
	}
}

// Every endpoint of the table stands in the document.
func TestDocs_nameEveryEndpoint(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "admin-api.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	for _, p := range start(t, nil).doc.paths {
		// What the path says beside its parameters.
		for _, word := range strings.FieldsFunc(p.name, func(c rune) bool { return c == '/' || c == '{' || c == '}' }) {
			if !strings.Contains(doc, strings.TrimPrefix(word, ":")) && word != "name" && word != "cmdline" && word != "profile" && word != "symbol" && word != "trace" {
				t.Errorf("%s: the document does not say %q", p.name, word)
			}
		}
		for _, op := range p.item {
			params, _ := dig(op, "parameters").([]any)
			for _, param := range params {
				if name, _ := dig(param, "name").(string); dig(param, "in") == "query" && !strings.Contains(doc, name) {
					t.Errorf("%s: the document does not say %q", p.name, name)
				}
			}
		}
	}
}
