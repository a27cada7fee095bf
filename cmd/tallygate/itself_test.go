package main_test

import (
	"strings"
	"testing"
)

// A server does not wait for the rules that it would serve itself.
func TestServe_followsItself(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, rules, admin string }{
		{"the default", "http://127.0.0.1:8090", ""},
		{"by name", "http://localhost:8090/", ""},
		{"by another spelling", "http://LOCALHOST.:8090", "127.0.0.1:8090"},
		{"IPv6", "http://[::1]:8090", "localhost:8090"},
		{"IPv4 in IPv6", "http://[::ffff:127.0.0.1]:8090", "[::1]:8090"},
		{"TLS", "https://127.0.0.1:8090", "127.0.0.1:8090"},
		{"the port of the scheme", "http://127.0.0.1", "127.0.0.1:80"},
		{"no address", "http://0.0.0.0:8090", "127.0.0.1:8090"},
	} {
		for _, command := range [][]string{{"serve"}, {"proxy", "--upstream", "http://127.0.0.1:1"}} {
			args := append(command, "--rules", tt.rules)
			if tt.admin != "" {
				args = append(args, "--admin", tt.admin)
			}
			code, _, stderr := run(t, nil, args...)
			if code != 2 || !strings.Contains(stderr, "--rules: ") || !strings.Contains(stderr, "is this process's own admin port") || !strings.Contains(stderr, "set --admin to another address") {
				t.Errorf("%s: %v: exit %d, %s", tt.name, args, code, stderr)
			}
		}
	}
	code, _, stderr := run(t, []string{"TALLYGATE_RULES=http://127.0.0.1:8090"}, "serve")
	if code != 2 || !strings.Contains(stderr, "TALLYGATE_RULES: http://127.0.0.1:8090 is") {
		t.Errorf("by the environment: exit %d, %s", code, stderr)
	}
}

// What is somebody else's port is tried.
func TestServe_followsOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, rules, admin string }{
		{"another port", "http://127.0.0.1:1", "127.0.0.1:8090"},
		{"another address", "http://127.0.0.1:1", "127.0.0.2:1"},
		{"no admin port", "http://127.0.0.1:1", ""},
		{"a port to be picked", "http://127.0.0.1:1", "127.0.0.1:0"},
	} {
		code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--snapshot-file", "", "--rules", tt.rules, "--admin", tt.admin)
		if code != 1 || strings.Contains(stderr, "own admin port") {
			t.Errorf("%s: exit %d, %s", tt.name, code, stderr)
		}
	}
}
