package main_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tallygate "github.com/tallygate/tallygate/cmd/tallygate"
)

// on runs a command on a database, and says what it says on both outputs.
func on(t *testing.T, database string, want int, args ...string) string {
	t.Helper()
	code, stdout, stderr := run(t, nil, append(args, "--rules", database)...)
	if code != want {
		t.Fatalf("%v: exit %d, want %d\n%s%s", args, code, want, stdout, stderr)
	}
	return stdout + stderr
}

// has looks for parts of a text.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

// answering runs a command of which somebody answers the question.
func answering(t *testing.T, answer string, args ...string) (code int, text string) {
	t.Helper()
	var out bytes.Buffer
	code = new(tallygate.Main).Run(t.Context(), args, strings.NewReader(answer), &out, &out, nil)
	return code, out.String()
}

// bodies are the overrides of a database as they are stored.
func bodies(t *testing.T, database string) (list []struct {
	Version  int
	Override map[string]any
},
) {
	t.Helper()
	if err := json.Unmarshal([]byte(on(t, database, 0, "overrides", "list", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// An override that is there keeps what no flag names.
func TestOverridesAdd_changesWhatIsNamed(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	add := func(want int, args ...string) string {
		t.Helper()
		return on(t, database, want, append([]string{"overrides", "add", "--rule", "a", "--key", "k"}, args...)...)
	}
	has(t, add(0, "--burst", "50", "--rate", "7", "--for", "7d", "--reason", "launch", "--owner", "kim"), "override of a for k: burst 50, rate 7, until ", "at version 1")
	ends := bodies(t, database)[0].Override["expires_at"]
	if at, err := time.Parse(time.RFC3339, ends.(string)); err != nil || time.Until(at) < 7*24*time.Hour-time.Minute || time.Until(at) > 7*24*time.Hour {
		t.Errorf("ends %v", ends)
	}

	text := add(0, "--burst", "60")
	has(t, text, "    ~ burst: 50 → 60\n", "override of a for k: burst 60, rate 7, until ", "at version 2")
	if strings.Contains(text, "rate:") || strings.Contains(text, "expires_at") {
		t.Errorf("more than was named:\n%s", text)
	}
	got := bodies(t, database)[0].Override
	if got["rate"] != 7.0 || got["reason"] != "launch" || got["owner"] != "kim" || got["expires_at"] != ends {
		t.Errorf("got %v", got)
	}

	has(t, add(0, "--burst", "60"), "is so already, at version 2: nothing was changed")
	has(t, add(0, "--forever", "--reason", ""), "    - expires_at: ", "    - reason: ", "for good, at version 3")
	got = bodies(t, database)[0].Override
	if _, ok := got["expires_at"]; ok || got["burst"] != 60.0 {
		t.Errorf("got %v", got)
	}
	has(t, add(0, "--until", "2020-01-01T00:00:00Z"), "which is over: --for, --until or --forever")
	for _, args := range [][]string{
		{"--forever", "--for", "1h"},
		{"--for", "1h", "--until", "2030-01-01T00:00:00Z"},
		{"--for", "0"},
		{"--for", "7x"},
		{"--until", "tomorrow"},
		{"--burst", "0"},
		{"--burst-factor", "0.5"},
		{"--burst-factor", "NaN"},
	} {
		add(2, args...)
	}
	has(t, add(1, "--limit", "5"), "limit")
}

// All numbers that an override may have have a flag.
func TestOverridesAdd_windows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, database := filepath.Join(dir, "r.yaml"), "sqlite:"+filepath.Join(dir, "t.db")
	write(t, file, `rules:
  - {id: slide, covers_all: true, identity: ip, algorithm: sliding_window, limit: 5, window_s: 60}
  - {id: fixed, covers_all: true, identity: api_key, algorithm: fixed_window, limit: 5, window_s: 60}
  - {id: day, covers_all: true, identity: api_key, algorithm: fixed_window, limit: 5, window: day}
`)
	on(t, database, 0, "rules", "apply", file, "--yes")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--rule", "slide", "--key", "203.0.113.9", "--burst-factor", "1.5"}, "burst_factor 1.5"},
		{[]string{"--rule", "fixed", "--key", "k", "--window-s", "30", "--align", "first_request"}, `align "first_request", window_s 30`},
		{[]string{"--rule", "day", "--key", "k", "--window", "week", "--tz", "Europe/Berlin"}, `tz "Europe/Berlin", window "week"`},
	} {
		has(t, on(t, database, 0, append([]string{"overrides", "add"}, tt.args...)...), tt.want)
	}
	// The same address in another spelling is the same override.
	has(t, on(t, database, 0, "overrides", "add", "--rule", "slide", "--key", "::ffff:203.0.113.9", "--limit", "9"), "+ limit: 9", "for 203.0.113.9: burst_factor 1.5, limit 9, for good, at version 2")
	has(t, on(t, database, 1, "overrides", "add", "--rule", "slide", "--key", "203.0.113.9", "--burst-factor", "1.0005"), "three decimals")
}

// What lifts a limit, or takes one back, is asked about.
func TestOverridesDelete_asks(t *testing.T) {
	t.Parallel()
	_, database := newRules(t)
	on(t, database, 0, "overrides", "add", "--rule", "a", "--key", "k", "--burst", "50")
	args := []string{"overrides", "delete", "--rule", "a", "--key", "k"}
	has(t, on(t, database, 1, args...), "Delete the override of a for k (burst 50)? [y/N]", "nothing was changed")
	if n := len(bodies(t, database)); n != 1 {
		t.Fatalf("%d overrides", n)
	}
	if code, text := answering(t, "y\n", append(args, "--rules", database)...); code != 0 || !strings.Contains(text, "is deleted") {
		t.Errorf("exit %d, %s", code, text)
	}
	on(t, database, 0, "overrides", "add", "--rule", "a", "--key", "k", "--burst", "50")
	has(t, on(t, database, 0, append(args, "--yes")...), "override of a for k is deleted")
}

func TestRulesShadow_asks(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	text := on(t, database, 1, "rules", "shadow", "a")
	has(t, text, "Stop enforcing rule a? [y/N]", "nothing was changed")
	if strings.Contains(text, "candidate") {
		t.Errorf("there is none: %s", text)
	}
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	on(t, database, 0, "rules", "apply", file, "--stage", "shadow", "--yes")
	has(t, on(t, database, 1, "rules", "shadow", "a"), "Stop enforcing rule a? Its candidate is moved by canary a 0 [y/N]")
	has(t, on(t, database, 0, "rules", "shadow", "a", "--yes"), "mode shadow")
	has(t, on(t, database, 0, "rules", "shadow", "a"), "mode shadow") // there is nothing to ask
	has(t, on(t, database, 0, "rules", "enforce", "a"), "mode enforce")
}

// A canary that is there already has no trial to begin anew.
func TestRulesCanary_already(t *testing.T) {
	t.Parallel()
	file, database := newRules(t)
	write(t, file, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 9)))
	on(t, database, 0, "rules", "apply", file, "--stage", "shadow", "--yes")
	has(t, on(t, database, 0, "rules", "canary", "a", "0"), "the candidate of rule a is at shadow already, at version 2: nothing was changed")
	has(t, on(t, database, 0, "rules", "canary", "a", "10"), "version 3", "canary 10 %")
	has(t, on(t, database, 0, "rules", "canary", "a", "10"), "is at canary 10 % already, at version 3: nothing was changed")
	has(t, on(t, database, 0, "rules", "canary", "a", "20"), "version 4", "canary 20 %")
	has(t, on(t, database, 0, "rules", "canary", "a", "0"), "version 5", "candidate shadow")
}
