package main_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/rules/yaml"
)

// The client's output and exit codes, in one session.
func TestCheckCommand(t *testing.T) {
	t.Parallel()
	s := serve(t, string(yaml.Example()))
	var session strings.Builder
	for _, step := range []struct {
		args string
		code int
	}{
		{"--domain public-api --rule growth-global --key acct_1 --cost 10", 0},
		{"--domain public-api --attr plan=growth --attr api_key=acct_1 --cost 0", 0},
		{"--domain public-api --attr plan=none", 0},
		{"--domain public-api --rule login-ip --key 203.0.113.9", 0},
		{"--domain public-api --rule login-ip --key 203.0.113.9 -o json", 0},
		{"--domain public-api --rule login-ip --key 203.0.113.9", 0},
		{"--domain public-api --rule login-ip --key 203.0.113.9", 0},
		{"--domain public-api --rule login-ip --key 203.0.113.9", 0},
		{"--domain public-api --rule login-ip --key 203.0.113.9", 3},
		{"--domain public-api --rule growth-global --key acct_1 --cost 11", 1},
		{"--domain public-api --rule growth-global --key acct_1 --cost 11 -o json", 1},
		{"--rule nope --key k", 1},
	} {
		session.WriteString("$ tallygate check " + step.args + "\n")
		code, stdout, stderr := run(t, nil, append(strings.Fields("check --server "+s.url), strings.Fields(step.args)...)...)
		session.WriteString(stdout + stderr)
		if code != step.code {
			t.Errorf("check %s: exit %d, want %d\n%s", step.args, code, step.code, stderr)
		}
	}
	epoch := s.clock.base.Unix()
	text := session.String()
	for _, seconds := range []int64{0, 60, 61} {
		text = strings.ReplaceAll(text, `"X-RateLimit-Reset":"`+itoa(epoch+seconds)+`"`, `"X-RateLimit-Reset":"EPOCH+`+itoa(seconds)+`"`)
	}
	golden(t, "check.txt", text)
}

func TestCheckCommandUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                             "needs --rule and --key, or --attr",
		"--rule r --attr a=b":          "exclude each other",
		"--attr ab":                    "is not NAME=VALUE",
		"--attr a=1 --attr a=2":        "given twice",
		"--attr a=1 --key k":           "--key goes with --rule",
		"--rule r --key k -o xml":      `"xml" is none of table, json`,
		"--rule r --key k --cost many": "invalid argument",
		"--server ftp://x --rule r":    "is no URL",
		"--rule r extra":               "takes no argument",
		"--serve x":                    `unknown flag: --serve; did you mean "server"?`,
	} {
		code, _, stderr := run(t, nil, append([]string{"check"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("check %s: exit %d, %q, want 2, %q", args, code, stderr, want)
		}
	}
}

// A server that is not there, or is none of ours, is an error.
func TestCheckCommandServer(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer empty.Close()
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"not_found","detail":"there is no such endpoint"}`))
	}))
	defer admin.Close()
	// Of HTTP/2 in clear, as gRPC is, the first bytes are a frame.
	grpc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n\r\n"))
		_ = conn.Close()
	}))
	defer grpc.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for url, want := range map[string]string{
		other.URL: "does not answer as tallygate does",
		empty.URL: "does not answer as tallygate does",
		admin.URL: "there is no such endpoint; --server names the port of checks",
		grpc.URL:  "does not speak HTTP/1.1, as tallygate's gRPC port does not; --server names the port of checks",
		gone.URL:  "is a server running there? --server names another than " + gone.URL,
	} {
		code, _, stderr := run(t, []string{"TALLYGATE_SERVER=" + url}, "check", "--rule", "r", "--key", "k")
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, %q, want 1, %q", code, stderr, want)
		}
	}
}
