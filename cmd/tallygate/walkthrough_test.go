package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
)

// block is one fenced block of a document.
type block struct {
	lang, text string
	line       int
}

// blocksOf returns the fenced blocks of one section of a document.
func blocksOf(t *testing.T, path, section string) []block {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	var open *block
	within := false
	level := strings.IndexByte(section, ' ')
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case open != nil && line == "```":
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case line == section:
			within = true
		case within && strings.HasPrefix(line, "#") && strings.IndexByte(line, ' ') <= level:
			within = false
		case within && strings.HasPrefix(line, "```"):
			open = &block{lang: line[3:], line: i + 1}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no section %q with blocks", path, section)
	}
	return out
}

// shown is a command of a document and what it says there: … stands for any text.
type shown struct {
	command string
	output  []string
	line    int
}

func commandsOf(b block) []shown {
	var out []shown
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			out = append(out, shown{command: command, line: b.line + 1 + i})
		} else if len(out) > 0 {
			last := &out[len(out)-1]
			last.output = append(last.output, line)
		}
	}
	return out
}

var word = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)

// words splits a command as a shell does that knows quotes and nothing else.
func words(command string) (out []string) {
	for _, field := range word.FindAllString(command, -1) {
		out = append(out, strings.Trim(field, `'"`))
	}
	return out
}

// matches reports whether got is what a document shows, line by line.
func matches(want []string, got string) bool {
	var pattern strings.Builder
	for i, line := range want {
		if i > 0 {
			pattern.WriteString(`\n`)
		}
		fields := strings.Fields(line)
		pattern.WriteString(`\s*`)
		for j, f := range fields {
			if j > 0 {
				pattern.WriteString(`\s+`)
			}
			pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(f), "…", `(?s:.*?)`))
		}
	}
	return regexp.MustCompile(`^` + pattern.String() + `\s*$`).MatchString(strings.TrimSpace(got))
}

// walk runs the commands of a section in order against a server, and compares what
// they say. A block of yaml whose first line is "# name.yaml" is written to that
// file; "sleep N" moves the server's clock; a line "exit N" after an output is the
// code to end with.
func walk(t *testing.T, path, section string, s *service, env []string) {
	t.Helper()
	doc := blocksOf(t, path, section)
	for _, b := range doc {
		if b.lang == "yaml" {
			name, _, _ := strings.Cut(strings.TrimPrefix(b.text, "# "), "\n")
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, name, b.text)
			continue
		}
		for _, c := range commandsOf(b) {
			args := words(c.command)
			switch args[0] {
			case "sleep":
				seconds, err := strconv.Atoi(args[1])
				if err != nil {
					t.Fatal(err)
				}
				s.clock.ms.Add(int64(seconds) * 1_000)
				continue
			case "tallygate":
			default:
				t.Fatalf("%s:%d: %q is no command of tallygate", path, c.line, c.command)
			}
			want := 0
			if n := len(c.output); n > 0 {
				if _, err := fmt.Sscanf(c.output[n-1], "exit %d", &want); err == nil {
					c.output = c.output[:n-1]
				}
			}
			code, stdout, stderr := run(t, env, args[1:]...)
			// A change is in force within a second; pods report from time to time.
			late := []string{"check", "pods", "usage", "explain"}
			for deadline := time.Now().Add(hangs / 2); time.Now().Before(deadline); {
				if code == want && matches(c.output, stdout+stderr) || !slices.Contains(late, args[1]) && !slices.Contains(args, "trial") {
					break
				}
				time.Sleep(200 * time.Millisecond)
				code, stdout, stderr = run(t, env, args[1:]...)
			}
			if code != want || !matches(c.output, stdout+stderr) {
				t.Fatalf("%s:%d: $ %s\nexit %d, want %d; it says\n%s%s\nand the document\n%s", path, c.line, c.command, code, want, stdout, stderr, strings.Join(c.output, "\n"))
			}
			s.follows(t, stdout)
		}
	}
}

// applied and inForce name the revision of a change, and that of a server's rules.
var (
	applied = regexp.MustCompile(`done, at revision (\d+)`)
	inForce = regexp.MustCompile(`(?m)^tallygate_snapshot_revision (\S+)$`)
)

// follows waits until a change that a command says it has made is in force: what is sent
// next may not be told twice.
func (s *service) follows(t *testing.T, said string) {
	t.Helper()
	change := applied.FindStringSubmatch(said)
	if s == nil || change == nil {
		return
	}
	await.That(t, "the change in force", func() bool {
		_, text := s.scrape(t, "/metrics")
		now := inForce.FindStringSubmatch(text)
		if now == nil {
			return false
		}
		want, wrong := strconv.ParseFloat(change[1], 64)
		got, err := strconv.ParseFloat(now[1], 64)
		return wrong == nil && err == nil && got >= want
	})
}

// A document that says something else is found out.
func TestWalkthroughsCompare(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		want []string
		got  string
		same bool
	}{
		{[]string{"a  b", "c …"}, "a b\nc 12 x\n", true},
		{[]string{"a b"}, "a c", false},
		{[]string{"a"}, "a\nb", false},
		{nil, "", true},
		{nil, "x", false},
	} {
		if got := matches(tc.want, tc.got); got != tc.same {
			t.Errorf("%q and %q: %v", tc.want, tc.got, got)
		}
	}
	if got := words(`tallygate x --why 'launch week' "a b"`); len(got) != 5 || got[3] != "launch week" {
		t.Errorf("got %q", got)
	}
}

// What docs/rules.md shows of a change from start to end is what happens.
func TestWalkthrough_rules(t *testing.T) {
	doc, err := filepath.Abs("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	s := serveAt(t)
	admin := "http://" + s.admin
	walk(t, doc, "## A change from start to end", s, []string{"TALLYGATE_RULES=" + admin, "TALLYGATE_CONTROL=" + admin, "TALLYGATE_SERVER=" + s.url})
}

// What the document on migrating shows is what happens.
func TestWalkthrough_migrating(t *testing.T) {
	doc, err := filepath.Abs("../../docs/migrating-from-envoy-ratelimit.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	walk(t, doc, "# Coming from envoyproxy/ratelimit", nil, nil)
}
