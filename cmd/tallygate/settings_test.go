package main_test

import (
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Flags win over the environment, that over the file, that over the defaults;
// secrets do not show.
func TestConfigPrint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "t.yaml"), filepath.Join(dir, "password")
	write(t, file, "# settings\nhttp: 127.0.0.1:1\nstore: 'rediss://app:s3cret@h1:6379,h2:6379'\nmax_inflight: 10\ndrain: 3s\nretry_jitter: 0.05\nplain_identities: false\n")
	write(t, secret, "hunter2\n")
	env := []string{
		"TALLYGATE_CONFIG=" + file, "TALLYGATE_MAX_INFLIGHT=20", "TALLYGATE_DRAIN=4s", "TALLYGATE_KEY_HASH=swordfish",
		"TALLYGATE_STORE_PASSWORD_FILE=" + secret, "HOME=/root",
		// Kubernetes sets these beside a Service named tallygate.
		"TALLYGATE_PORT=tcp://10.0.0.1:8080", "TALLYGATE_SERVICE_HOST=10.0.0.1", "TALLYGATE_SERVICE_PORT_HTTP=8080",
		"TALLYGATE_PORT_8080_TCP_ADDR=10.0.0.1", "TALLYGATE_GRPC_SERVICE_HOST=10.0.0.2",
	}
	code, stdout, stderr := run(t, env, "config", "print", "--drain", "5s")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, leak := range []string{"s3cret", "hunter2", "swordfish"} {
		if strings.Contains(stdout, leak) {
			t.Errorf("config print shows %s", leak)
		}
	}
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(stdout, dir, "DIR")) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	golden(t, "config.txt", strings.Join(lines, "\n")+"\n")

	_, stdout, _ = run(t, env, "config", "print", "-o", "json", "--drain", "5s")
	var all []struct{ Setting, Value, Source string }
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || len(all) != len(lines)-1 {
		t.Errorf("%d settings as JSON, %v; want %d", len(all), err, len(lines)-1)
	}
}

// What is unknown or wrong in any layer is named, with its place.
func TestSettingsRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, file string
		env, args  []string
		want       string
	}{
		{"unknown in file", "htpp: :1\n", nil, nil, `FILE:1:1: unknown setting "htpp"; did you mean "http"?`},
		{"dashes in file", "# c\nmax-inflight: 5\n", nil, nil, `FILE:2:1: unknown setting "max-inflight"; did you mean "max_inflight"?`},
		{"twice in file", "drain: 1s\ndrain: 2s\n", nil, nil, "drain"},
		{"wrong in file", "drain: 1s\nmax_inflight: many\n", nil, nil, `FILE:2:1: max_inflight: "many" is no whole number from 1 to 1000000`},
		{"nested in file", "store:\n  url: memory\n", nil, nil, "FILE:1:1: store is one plain value"},
		{"block in file", "key_hash: |\n  s3cret\n", nil, nil, "FILE:1:1: key_hash is one plain value"},
		{"folded in file", "key_hash: >-\n  s3cret\n", nil, nil, "FILE:1:1: key_hash is one plain value"},
		{"anchor in file", "pod_id: &a s3cret\n", nil, nil, "FILE:1:1: pod_id is one plain value"},
		{"alias in file", "http: &a :1\npod_id: *a\n", nil, nil, "FILE:1:1: http is one plain value"},
		{"tag in file", "pod_id: !!str s3cret\n", nil, nil, "FILE:1:1: pod_id is one plain value"},
		{"no YAML beside a secret", "key_hash: s3cret\nhttp: [\n", nil, nil, "FILE:2:7: "},
		{"list as file", "- http\n", nil, nil, "FILE: settings are lines of name: value"},
		{"no YAML", "a: [\n", nil, nil, "FILE"},
		{"unknown in environment", "", []string{"TALLYGATE_STORE_DEADLIN=5ms"}, nil, `unknown setting TALLYGATE_STORE_DEADLIN; did you mean "TALLYGATE_STORE_DEADLINE"?`},
		{"wrong in environment", "", []string{"TALLYGATE_RETRY_JITTER=NaN"}, nil, `TALLYGATE_RETRY_JITTER: "NaN" is no part from 0 to 0.1`},
		{"unknown flag", "", nil, []string{"--store-deadlin", "5ms"}, `unknown flag: --store-deadlin; did you mean "store-deadline"?`},
		{"wrong flag", "", nil, []string{"--reset-style", "iso"}, `--reset-style: "iso" is none of epoch, seconds`},
		{"wrong drafts", "", nil, []string{"--ietf-headers", "draft-3"}, "--ietf-headers"},
		{"wrong store", "", nil, []string{"--store", "postgres://u:pw@h"}, `"postgres://u:***@h" is none of memory`},
		{"wrong rules", "", nil, []string{"--rules", "rules.yaml"}, `"rules.yaml" is none of sqlite:PATH, file:PATH, envoy:DIR, postgres://…, https://…; did you mean "file:rules.yaml"?`},
		{"a database without its scheme", "", nil, []string{"--rules", "x.db"}, `; did you mean "sqlite:x.db"?`},
		{"one dash", "", nil, []string{"-http", ":8080"}, "in -ttp; the name of a flag has two dashes in front; see tallygate config print --help"},
		{"wrong rules with a secret", "", nil, []string{"--rules", "mysql://kim:s3cret@h/db?sslpassword=s3cret"}, `"mysql://kim:***@h/db?sslpassword=***" is none of`},
		{"wrong address", "", nil, []string{"--http", "8080"}, `"8080" is no address`},
		{"admin for all", "admin: :8090\n", nil, nil, `FILE:1:1: admin: ":8090" is not this machine alone`},
		{"admin without port", "", []string{"TALLYGATE_ADMIN=127.0.0.1"}, nil, `TALLYGATE_ADMIN: "127.0.0.1" is no address`},
		{"wrong port", "", nil, []string{"--http", ":99999"}, `":99999" has no port`},
		{"a socket without path", "", nil, []string{"--grpc", "unix:"}, `--grpc: "unix:" has no path; write unix:/run`},
		{"a socket's path too long", "", nil, []string{"--grpc", "unix:/" + strings.Repeat("x", 107)}, "has 108 bytes, at most 107; shorten it"},
		{"an address as a network", "", nil, []string{"--trusted-proxies", "10.0.0.1"}, `"10.0.0.1" is no network such as 10.0.0.0/8; one address is 10.0.0.7/32`},
		{"a domain that no rule can have", "", nil, []string{"--domain", "a/b"}, `--domain: "a/b" is no domain of rules: 1 to 128 of A-Z`},
		{"wrong level", "", nil, []string{"--log-level", "loud"}, `"loud" is none of debug`},
		{"wrong deadline", "", nil, []string{"--store-deadline", "5"}, `"5" is no time from 1ms to 10s`},
		{"wrong truth", "plain_identities: perhaps\n", nil, nil, `"perhaps" is neither true nor false`},
		{"secret as flag", "", nil, []string{"--store-password", "x"}, "unknown flag"},
		{"secret twice", "", []string{"TALLYGATE_KEY_HASH=a", "TALLYGATE_KEY_HASH_FILE=/dev/null"}, nil, "key-hash and key-hash-file are both set"},
		{"empty secret", "", []string{"TALLYGATE_KEY_HASH_FILE=/dev/null"}, nil, "/dev/null is empty"},
		{"missing secret", "", []string{"TALLYGATE_KEY_HASH_FILE=/nonexistent"}, nil, "TALLYGATE_KEY_HASH_FILE: open /nonexistent"},
		{"plain and hashed", "plain_identities: true\n", []string{"TALLYGATE_KEY_HASH=a"}, nil, "exclude each other"},
		{"half a pair", "", nil, []string{"--store-cert-file", "c.pem"}, "go together"},
		{"argument", "", nil, []string{"now"}, `takes no argument, got "now"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "t.yaml")
			write(t, file, test.file)
			code, _, stderr := run(t, test.env, append([]string{"config", "print", "--config", file}, test.args...)...)
			if code != 2 || !strings.Contains(strings.ReplaceAll(stderr, file, "FILE"), test.want) {
				t.Errorf("exit %d, %q\nwant 2, %q", code, stderr, test.want)
			}
			if strings.Contains(stderr, "s3cret") {
				t.Errorf("%q shows a secret", stderr)
			}
		})
	}
	code, _, stderr := run(t, nil, "config", "print", "--config", "/nonexistent.yaml")
	if code != 2 || !strings.Contains(stderr, "/nonexistent.yaml") {
		t.Errorf("a missing file that was asked for: exit %d, %s", code, stderr)
	}
}

// tallygate.yaml is read when it is there.
func TestDefaultFile(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "tallygate.yaml", "http: :9\n")
	code, stdout, stderr := run(t, nil, "config", "print")
	if code != 0 || !strings.Contains(stdout, "tallygate.yaml:1:1") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"":                               {0, "Available Commands:"},
		"--help":                         {0, "A rate limiter that holds one limit per customer"},
		"serve --help":                   {0, "--store-deadline"},
		"rules":                          {0, "lint"},
		"config":                         {0, "print"},
		"version":                        {0, "tallygate "},
		"version -o json":                {0, `"revision"`},
		"version -o x":                   {2, "none of table, json"},
		"completion bash":                {0, "__start_tallygate"},
		"serv":                           {2, `unknown command "serv" for tallygate; did you mean "serve"?`},
		"rules lnt":                      {2, `did you mean "lint"?`},
		"rules lst":                      {2, `did you mean "list"?`},
		"rules hist":                     {2, `did you mean "history"?`},
		"rules import envoy limits":      {2, `did you mean "envoy-ratelimit"?`},
		"rules get":                      {2, "takes one rule's id"},
		"rules apply":                    {2, "takes one file"},
		"rules list --rules file:r.yaml": {2, "the rules are in the file r.yaml: edit it"},
		"rules list --rules sqlite:/nowhere/t.db": {1, "there is no database /nowhere/t.db"},
		"rules lint":           {2, "takes one file"},
		"rules lint a b":       {2, "takes one file"},
		"rules lint /nowhere":  {1, "/nowhere"},
		"rules lint x -o toml": {2, "none of table, json, yaml"},
	} {
		code, stdout, stderr := run(t, nil, strings.Fields(args)...)
		if code != want.code || !strings.Contains(stdout+stderr, want.text) {
			t.Errorf("tallygate %s: exit %d, %s%s\nwant %d, %q", args, code, stdout, stderr, want.code, want.text)
		}
	}
}

// What lint says, byte for byte.
func TestLint(t *testing.T) {
	t.Parallel()
	const bad = "testdata/bad.yaml"
	code, stdout, _ := run(t, nil, "rules", "lint", bad)
	if code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	golden(t, "lint.txt", stdout)
	code, stdout, _ = run(t, nil, "rules", "lint", "-o", "json", bad)
	if code != 1 {
		t.Errorf("exit %d as JSON, want 1", code)
	}
	golden(t, "lint.json", stdout)
}
