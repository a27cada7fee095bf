package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimulate(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, nil, "simulate", "hot-key", "pinned-1", "--duration", "300ms")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	for _, want := range []string{"hot-key", "pinned-1", "store calls a second", "tokens above the envelope", "trace hash", "held % mean"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, stdout)
		}
	}
}

// The names of the JSON are quoted elsewhere and stay.
func TestSimulate_json(t *testing.T) {
	t.Parallel()
	type result map[string]any
	results := func(args ...string) []result {
		code, stdout, stderr := run(t, nil, append([]string{"simulate", "hot-key", "-o", "json", "--duration", "200ms"}, args...)...)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		var list []result
		if err := json.Unmarshal([]byte(stdout), &list); err != nil {
			t.Fatalf("%v: %s", err, stdout)
		}
		return list
	}
	first := results()[0]
	for _, name := range []string{
		"scenario", "seed", "pods", "duration_s", "checks", "allowed", "denied", "unanswered",
		"store_calls_per_s", "ask_calls_per_s", "top_up_calls_per_s", "give_back_calls_per_s",
		"calls_per_check_pct", "pod_calls_max_per_s", "set_calls_in_flight_max",
		"served_of_exact_pct", "above_envelope_tokens", "stranded_tokens",
		"lease_hit_pct", "async_hit_pct", "deny_cache_pct", "pre_limit_pct",
		"wait_mean_ms", "wait_p99_ms", "wait_max_ms", "decisions_per_real_s", "trace_hash", "rules", "shards",
		"fail_open", "fallback", "fail_closed", "breaker_openings", "fallback_admitted_tokens", "told_tokens", "charged_tokens",
		"outage_max_pct", "span_max_pct", "above_fallback_tokens", "above_span_tokens", "above_together_tokens", "above_closed_tokens",
	} {
		if _, ok := first[name]; !ok {
			t.Errorf("the JSON has no %q", name)
		}
	}
	rule, _ := first["rules"].([]any)[0].(map[string]any)
	for _, name := range []string{
		"rule", "buckets", "offered_tokens", "admitted_tokens", "served_pct", "of_rate_pct", "above_envelope_tokens",
		"fallback_tokens", "told_tokens", "charged_tokens", "outage_max_pct", "span_max_pct",
		"above_fallback_tokens", "above_span_tokens", "above_together_tokens", "above_closed_tokens",
		"store_ops_per_s", "out_mean_pct", "out_max_pct", "held_mean_pct", "held_max_pct",
	} {
		if _, ok := rule[name]; !ok {
			t.Errorf("the JSON of a rule has no %q", name)
		}
	}
	if again := results()[0]; again["trace_hash"] != first["trace_hash"] {
		t.Errorf("trace hashes %v and %v of one seed", first["trace_hash"], again["trace_hash"])
	}
	if other := results("--seed", "2")[0]; other["trace_hash"] == first["trace_hash"] || other["seed"] != 2.0 {
		t.Errorf("trace hash %v, seed %v for another seed", other["trace_hash"], other["seed"])
	}
}

func TestSimulate_file(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mine.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pods: 3\nduration_s: 0.2\nrules: [{ id: a, algorithm: fixed_window, limit: 10, window_s: 1 }]\ntraffic: [{ rules: [a], rate: 200 }]\n")
	code, stdout, stderr := run(t, nil, "simulate", path, "-o", "json")
	if code != 0 || !strings.Contains(stdout, `"above_envelope_tokens": 0`) {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	write("pods: 3\nduration: 1\n")
	code, _, stderr = run(t, nil, "simulate", path)
	if want := path + `: 2:1: unknown field "duration"`; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, %q, want %q", code, stderr, want)
	}
}

// What a store's outage does is in the table where there was one, and only there.
func TestSimulate_outage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "down.yaml")
	const text = "pods: 3\nduration_s: 1\nrules: [{ id: a, algorithm: token_bucket, rate: 10, burst: 20 }]\n" +
		"traffic: [{ rules: [a], rate: 200 }]\nfaults:\n  "
	write := func(fault string) {
		if err := os.WriteFile(path, []byte(text+fault+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("shard_down: [{ at_s: 0.2, for_s: 0.5 }]")
	code, stdout, stderr := run(t, nil, "simulate", path)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for _, want := range []string{"by a fallback", "breakers opened", "told to the store", "above 3 burst + 3 rate × d", "of its bound %"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, stdout)
		}
	}
	if _, stdout, _ := run(t, nil, "simulate", "hot-key", "--duration", "100ms"); strings.Contains(stdout, "fallback") {
		t.Errorf("the table tells of fallbacks that nobody asked:\n%s", stdout)
	}
	write("clock_step: [{ at_s: 0.5, ms: 1500 }]") // an exception to the envelope, told as one
	if code, _, stderr := run(t, nil, "simulate", path); code != 1 || !strings.Contains(stderr, "above what may be") {
		t.Errorf("exit code %d, %q, want 1", code, stderr)
	}
}

func TestSimulate_refuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"nothing", nil, 2, "takes scenarios"},
		{"an unknown one", []string{"hot-kee"}, 2, `did you mean "hot-key"`},
		{"a file that is not there", []string{"./none.yaml"}, 1, "none.yaml"},
		{"no time", []string{"hot-key", "--duration", "0"}, 1, "hot-key: a duration of 0s"},
		{"no such output", []string{"hot-key", "-o", "xml"}, 2, "xml"},
	} {
		code, _, stderr := run(t, nil, append([]string{"simulate"}, tt.args...)...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, %q, want %d, %q", tt.name, code, stderr, tt.code, tt.want)
		}
	}
}
