package main_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// A load on two pods of one process each: each holds the limit for itself, so
// together they admit twice what one limit allows, and load says so.
func TestLoad(t *testing.T) {
	t.Parallel()
	rules := "rules:\n" + ruleLine("r", tokenBucket(1, 3600, 20))
	one, two := serve(t, rules), serve(t, rules)
	args := []string{"load", "--server", one.url, "--rule", "r", "--rps", "400", "--workers", "8", "--duration", "1s", "--rate", "1", "--burst", "20"}
	code, stdout, stderr := run(t, nil, append(args, "--key", "a")...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for _, part := range []string{"open, 400/s due", "allowed          20\n", "p99.9", "admitted         20 of at most 2", "above the limit  0 tokens"} {
		if !strings.Contains(stdout, part) {
			t.Errorf("no %q in\n%s", part, stdout)
		}
	}
	code, stdout, stderr = run(t, nil, append(args, "--server", two.url, "--key", "b", "-o", "json")...)
	var report struct {
		Checks, Allowed, Errors int64
		Servers                 int
		DurationS               float64 `json:"duration_s"`
		Envelope                struct{ Over float64 }
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if code != 1 || !strings.Contains(stderr, "above its limit") || report.Checks < 60 || report.Servers != 2 || report.Allowed != 40 || report.Errors != 0 {
		t.Errorf("exit %d, %s %+v; want 20 tokens above the limit", code, stderr, report)
	}
	// Those of a second are allowed as well, and a millisecond for the reading of clocks.
	if over := 40 - (20 + report.DurationS + 0.001); math.Abs(report.Envelope.Over-over) > 1e-6 {
		t.Errorf("%f above the limit, want %f", report.Envelope.Over, over)
	}
}

func TestLoad_refuses(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no rule":        nil,
		"rate alone":     {"--rule", "r", "--rate", "5"},
		"burst below 0":  {"--rule", "r", "--rate", "5", "--burst", "-1"},
		"no URL":         {"--rule", "r", "--server", "127.0.0.1:8080"},
		"no cost":        {"--rule", "r", "--cost", "0"},
		"no worker":      {"--rule", "r", "--workers", "0"},
		"too fast":       {"--rule", "r", "--rps", "1e9"},
		"an argument":    {"--rule", "r", "x"},
		"another output": {"--rule", "r", "-o", "xml"},
	} {
		if code, _, stderr := run(t, nil, append([]string{"load"}, args...)...); code != 2 {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
	}
	code, _, stderr := run(t, nil, "load", "--rule", "r", "--server", "http://127.0.0.1:1", "--rps", "100", "--duration", "50ms")
	if code != 1 || !strings.Contains(stderr, "no check was answered") {
		t.Errorf("nobody there: exit %d: %s", code, stderr)
	}
}
