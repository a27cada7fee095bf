package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/admin/token"
	"github.com/tallygate/tallygate/internal/await"
)

// Where nobody answers, the error names the flag that says where to ask.
func TestAway_namesTheFlag(t *testing.T) {
	t.Parallel()
	const nobody = "http://127.0.0.1:1"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"check", "--rule", "r", "--key", "k", "--server", nobody}, "--server names another than " + nobody},
		{[]string{"pods", "--control", nobody}, "--control names another than " + nobody},
		{[]string{"rules", "list", "--rules", nobody}, "--rules names another than " + nobody},
		{[]string{"overrides", "list", "--rules", nobody}, "--rules names another than " + nobody},
		{[]string{"rules", "list", "--rules", "postgres://kim:s3cret@127.0.0.1:1/db?connect_timeout=1"}, "is a database running there? --rules names another than postgres://kim:***@127.0.0.1:1"},
	} {
		code, _, stderr := run(t, nil, tt.args...)
		if code != 1 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d, %s", tt.args, code, stderr)
		}
	}
}

// An unknown domain, a missing token and an unproven candidate each have a flag.
func TestAdvice(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	on(t, database, 0, "rules", "apply", file, "--yes", "--stage", "shadow")
	s := serveAt(t, "--rules", database)
	api := "http://" + s.admin
	fails := func(want string, args ...string) {
		t.Helper()
		code, _, stderr := run(t, nil, args...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %s, want %s", args, code, stderr, want)
		}
	}
	fails("; --domain names another", "check", "--server", s.url, "--domain", "none", "--attr", "a=b")
	fails("; --domain names another", "usage", "k", "--control", api, "--domain", "none")
	fails("; --domain names another", "keys", "reset", "k", "--control", api, "--domain", "none")
	fails("; --force promotes it nevertheless", "rules", "promote", "a", "--rules", api)
	if _, _, stderr := run(t, nil, "rules", "promote", "a", "--rules", api); strings.Contains(stderr, "{") {
		t.Errorf("JSON on the command line: %s", stderr)
	}

	_, hash := token.New()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens:\n  - {name: a, role: admin, sha256: "+hash+"}\n")
	locked := serveAt(t, "--rules", database, "--tokens-file", path, "--http-token-required")
	const show = "; show a token with --token-file or TALLYGATE_TOKEN_FILE"
	fails(show, "pods", "--control", "http://"+locked.admin)
	fails(show, "rules", "list", "--rules", "http://"+locked.admin)
	fails(show, "check", "--server", locked.url, "--rule", "a", "--key", "k")
}

// load asks the server that the settings name, as check does.
func TestLoad_settings(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5)))
	args := []string{"load", "--rule", "r", "--rps", "100", "--duration", "500ms"}
	settings := filepath.Join(t.TempDir(), "tallygate.yaml")
	write(t, settings, "server: "+s.url+"\n")
	for name, code := range map[string]int{
		"environment": first(run(t, []string{"TALLYGATE_SERVER=" + s.url}, args...)),
		"file":        first(run(t, nil, append(args, "--config", settings)...)),
		"flags":       first(run(t, []string{"TALLYGATE_SERVER=http://127.0.0.1:1"}, append(args, "--server", s.url, "--server", s.url)...)),
	} {
		if code != 0 {
			t.Errorf("%s: exit %d", name, code)
		}
	}
	if code, _, stderr := run(t, []string{"TALLYGATE_SERVR=x"}, args...); code != 2 || !strings.Contains(stderr, "TALLYGATE_SERVER") {
		t.Errorf("a misspelt variable: exit %d, %s", code, stderr)
	}
}

func first(code int, _, _ string) int { return code }

// The steps of docs/deployment.md: a file of tokens, and each token in a file.
func TestTokenNew_forFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	lines := "tokens:\n"
	shown := map[string]string{}
	for _, role := range []string{"pod", "editor"} {
		code, stdout, stderr := run(t, nil, "token", "new", "--name", role+"s", "--role", role, "-o", "token")
		if code != 0 || !strings.HasPrefix(stdout, "tg_") || strings.Count(stdout, "\n") != 1 {
			t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
		}
		shown[role] = strings.TrimSpace(stdout)
		lines += stderr
	}
	write(t, path, lines)
	file, err := token.Open(token.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for role, plain := range shown {
		if got, ok := file.Find(plain); !ok || string(got.Role) != role {
			t.Errorf("%s: got %+v", role, got)
		}
	}
}

func TestTokenNew_refuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "needs --name and --role (viewer, editor, admin, pod, check)"},
		{[]string{"--name", "ci"}, "needs --name and --role"},
		{[]string{"--name", "ci", "--role", "edtor"}, `--role "edtor" is none of viewer, editor, admin, pod, check; did you mean "editor"?`},
		{[]string{"--name", "c i", "--role", "editor"}, `--name "c i"`},
		{[]string{"--name", "ci", "--role", "editor", "--domain", "a b"}, `--domain "a b" cannot be: domain: 1 to 128`},
		{[]string{"--name", "ci", "--role", "pod", "--domain", "a"}, "a pod needs the rules of all domains"},
		{[]string{"--name", "ci", "--role", "editor", "-o", "xml"}, `"xml" is none of table, json, yaml, token`},
	} {
		code, stdout, stderr := run(t, nil, append([]string{"token", "new"}, tt.args...)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "tg_") {
			t.Errorf("%v: exit %d, %s%s", tt.args, code, stdout, stderr)
		}
	}
}

// The shell is told the words there are.
func TestCompletion(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	p := control(t, "127.0.0.1:0", "--rules", database)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"token", "new", "--role"}, []string{"viewer", "editor", "admin", "pod", "check"}},
		{[]string{"token", "new", "-o"}, []string{"table", "json", "yaml", "token"}},
		{[]string{"rules", "apply", "x", "--stage"}, []string{"full", "shadow"}},
		{[]string{"audit", "--action"}, []string{"put", "canary", "reset"}},
		{[]string{"serve", "--log-level"}, []string{"debug", "info", "warn", "error"}},
		{[]string{"serve", "--log-format"}, []string{"text", "json"}},
		{[]string{"serve", "--reset-style"}, []string{"epoch", "seconds"}},
		{[]string{"serve", "--ietf-headers"}, []string{"draft-11", "off"}},
		{[]string{"serve", "--envoy-algorithm"}, []string{"fixed_window"}},
		{[]string{"proxy", "--forwarding-header"}, []string{"X-Forwarded-For", "Forwarded"}},
		{[]string{"rules", "list", "-o"}, []string{"json"}},
		{[]string{"rules", "export", "--rules", database}, []string{"a"}},
		{[]string{"rules", "get", "--rules", database}, []string{"a"}},
		{[]string{"overrides", "add", "--rules", database, "--rule"}, []string{"a"}},
		{[]string{"overrides", "list", "--rules", "file:" + file, "--rule"}, []string{"a"}},
		{[]string{"keys", "reset", "k", "--control", p.url, "--rule"}, []string{"a"}},
		{[]string{"simulate"}, []string{"hot-key"}},
	} {
		out := strings.Split(tg(t, append(append([]string{"__complete"}, tt.args...), "")...), "\n")
		for _, word := range tt.want {
			if !slices.Contains(out, word) {
				t.Errorf("%v: no %s in %q", tt.args, word, out)
			}
		}
	}
	code, stdout, stderr := run(t, []string{"TALLYGATE_RULES=" + database}, "__complete", "check", "--rule", "")
	if code != 0 || !strings.HasPrefix(stdout, "a\n") {
		t.Errorf("check --rule: exit %d, %q %q", code, stdout, stderr)
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	if got, want := tg(t, "--version"), tg(t, "version"); got != want || !strings.HasPrefix(got, "tallygate ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A reset makes no version, and days are a time.
func TestAudit_readsWell(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	s := serveAt(t, "--rules", database)
	api := "http://" + s.admin
	has(t, tg(t, "explain", "--rule", "a", "--key", "k", "--control", api), "; there is no other rule in it\n")
	tg(t, "keys", "reset", "k", "--rule", "a", "--control", api, "--who", "root@vm")
	out := tg(t, "audit", "--rules", database, "--since", "1d", "--action", "reset")
	if fields := strings.Fields(strings.Split(out, "\n")[1]); !slices.Equal(fields[1:], []string{"root@vm", "reset", "a", "k", "-", "-"}) {
		t.Errorf("got\n%s", out)
	}
	for _, since := range []string{"1x", "d", "-1d", "1d-1h", "99999d", ""} {
		if code, _, stderr := run(t, nil, "audit", "--rules", database, "--since="+since); code != 2 {
			t.Errorf("%q: exit %d, %s", since, code, stderr)
		}
	}
	for _, since := range []string{"0", "7d", "0d", "1d12h", "90m"} {
		tg(t, "audit", "--rules", database, "--since", since)
	}
}

// A pod on a control plane that does not let it in says so; its admin port says where
// to ask.
func TestFleet_refused(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	dir := t.TempDir()
	plain, hash := token.New()
	tokens, snapshot := filepath.Join(dir, "tokens.yaml"), filepath.Join(dir, "s.json")
	good := "tokens:\n  - {name: a, role: pod, sha256: " + hash + "}\n"
	write(t, tokens, good)
	write(t, filepath.Join(dir, "token"), plain)
	p := control(t, "127.0.0.1:0", "--rules", database, "--tokens-file", tokens)
	args := []string{"--rules", p.url, "--token-file", filepath.Join(dir, "token"), "--snapshot-file", snapshot}
	s := serveAt(t, args...)
	if status, body := s.scrape(t, "/v1/pods"); status != http.StatusNotFound || !strings.Contains(body, "it follows the control plane at "+p.url+"; ask there") {
		t.Errorf("%d %s", status, body)
	}
	await.That(t, "a snapshot", func() bool { _, err := os.Stat(snapshot); return err == nil })
	_, other := token.New()
	write(t, tokens, strings.Replace(good, hash, other, 1))
	await.That(t, "the token to be none", func() bool { return statusFor(t, p.url, plain) == http.StatusUnauthorized })
	late := serveAt(t, args...)
	await.That(t, "the log", func() bool {
		return strings.Contains(late.stderr.String(), "the control plane refuses this pod")
	})
}

// statusFor is what a token gets; one that asks too often gets 429.
func statusFor(t *testing.T, url, plain string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+plain)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}
