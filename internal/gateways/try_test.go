package gateways_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTryIt runs the commands of the pages' sections "Try it", with a reader's files, and
// compares what they say with what the pages show.
func TestTryIt(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]struct {
		program, install, page string
		// saved are the files that the reader saves, by the language of their blocks.
		saved map[string]string
	}{
		"NGINX":   {"nginx", "on Debian: apt-get install nginx-light", "gateways/nginx.md", map[string]string{"nginx": "tallygate.conf"}},
		"Caddy":   {"caddy", "on Debian: apt-get install caddy", "gateways/caddy.md", map[string]string{"caddyfile": "Caddyfile"}},
		"HAProxy": {"haproxy", "on Debian: apt-get install haproxy", "gateways/haproxy.md", map[string]string{"lua": "tallygate.lua", "haproxy": "haproxy.cfg"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := need(t, page.program, page.install)
			curl := need(t, "curl", "on Debian: apt-get install curl")
			dir := t.TempDir()
			front, here := port(t), port(t)
			// Timeouts for Tallygate are swapped as in open: this counts.
			s := &setting{pod: &pod{http: here}, application: port(t), swap: []string{"100ms", "5s", "50ms", "5s", "localhost:8080", here}}
			for language, file := range page.saved {
				write(t, dir, file, s.place(snippets(t, page.page, language)[0], front))
			}
			script, want := tried(t, page.page)
			path := strings.Join([]string{filepath.Dir(tallygate), filepath.Dir(program), filepath.Dir(curl), os.Getenv("PATH")}, ":")
			// A terminal has jobs, which "kill %1" names.
			got := session(t, dir, "set -m\n"+s.place(script, front), "PATH="+path, "TALLYGATE_HTTP="+here, "TALLYGATE_GRPC=", "TALLYGATE_ADMIN=")
			if !shows(want, got) {
				t.Errorf("the commands of %s say\n%s\nand the page\n%s", page.page, got, want)
				for _, name := range []string{"tallygate.log", "error.log", "haproxy.log", "caddy.log"} {
					text, _ := os.ReadFile(filepath.Join(dir, name))
					t.Logf("%s:\n%s", name, text)
				}
			}
		})
	}
}

// tried are the commands of a page's section "Try it", and all that they say.
func tried(t *testing.T, page string) (script, said string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Try it\n")
	if !found {
		t.Fatalf("%s has no section to try it", page)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for i, block := range strings.Split(section, "\n```") {
		language, block, _ := strings.Cut(block, "\n")
		switch {
		case i%2 == 0: // what stands between
		case language == "sh":
			script += block + "\n"
		case language == "text":
			said += block + "\n"
		default:
			t.Fatalf("%s: a block of %q in the section to try it", page, language)
		}
	}
	return script, said
}

// session runs commands in dir and returns what they write; whatever they leave running
// ends with it.
func session(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	// However it ends, the shell ends its jobs.
	cmd := exec.CommandContext(ctx, "bash", "-c", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"+script)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, append(os.Environ(), env...), dieWithParent()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return strings.ReplaceAll(string(out), "\r\n", "\n")
}

// shows reports whether a page shows what was said: … stands for any text, and a wait of
// 60 s has begun to pass on a slow machine.
func shows(page, said string) bool {
	pattern := strings.NewReplacer("…", `(?s:.*)`, "fter: 60", `fter: (?:60|5\d)`).Replace(regexp.QuoteMeta(strings.TrimSpace(page)))
	return regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(said))
}

// A page that shows something else is found out.
func TestTryItCompares(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		page, said string
		want       bool
	}{
		{"200\n429\n", "200\n429\n", true},
		{"200\n429\n", "200\n200\n", false},
		{"200\n…\n{…}", "200\nA: b\n\n{\"a\":1}\n", true},
		{"200\n…\n{…}", "200\nA: b\n", false},
		{"200", "", false},
		{"Retry-After: 60", "Retry-After: 59", true},
		{"Retry-After: 60", "Retry-After: 6", false},
	} {
		if got := shows(tt.page, tt.said); got != tt.want {
			t.Errorf("%q shows %q: %v", tt.page, tt.said, got)
		}
	}
}
