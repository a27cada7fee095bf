package main_test

import (
	"fmt"
	"strings"
	"testing"
)

// op is n checks of a cost at a time: allowed of them pass, remaining are left
// after the last (-1: not told by the case), retryMS is told by the last denial.
type op struct {
	tMS, cost, n, allowed int64
	remaining, retryMS    int64
}

// caseOf is one case of ours that is a trace of one bucket.
type caseOf struct {
	id, rule string
	ops      []op
}

const unsaid = -1

func tokenBucket(rate, perS, burst int64) string {
	return fmt.Sprintf("algorithm: token_bucket, rate: %d, per_s: %d, burst: %d, max_cost: %d", rate, perS, burst, burst)
}

func windowOf(algorithm string, limit, seconds int64) string {
	return fmt.Sprintf("algorithm: %s, limit: %d, window_s: %d, max_cost: %d", algorithm, limit, seconds, limit)
}

// The traces of the cases that HTTP reaches.
func traces() []caseOf {
	alg01 := []int64{9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2, 1, 1, 0}
	var fractions, rolling []op
	for i, remaining := range alg01 {
		fractions = append(fractions, op{int64(i) * 1000, 1, 1, 1, remaining, 0})
	}
	fractions = append(fractions, op{14_000, 1, 1, 0, 0, 1000})
	for i := range int64(18) {
		allowed := int64(1)
		if i%6 == 5 {
			allowed = 0
		}
		rolling = append(rolling, op{i * 10_000, 1, 1, allowed, unsaid, 0})
	}
	return []caseOf{
		{"ALG-01", tokenBucket(10, 30, 10), fractions},
		{"ALG-03", tokenBucket(10, 1, 10), []op{{0, 1, 1, 1, 9, 0}, {60_000, 1, 1, 1, 9, 0}, {60_000, 1, 11, 9, 0, 0}}},
		{"ALG-05", tokenBucket(1, 10, 10), []op{{0, 8, 1, 1, 2, 0}, {0, 5, 1, 0, 2, 30_000}, {0, 2, 1, 1, 0, 0}, {0, 1, 1, 0, 0, 10_000}}},
		{"ALG-07", tokenBucket(1, 1, 1), []op{
			{0, 1, 1, 1, 0, 0}, {1000, 1, 1, 1, 0, 0}, {2000, 1, 1, 1, 0, 0}, {3000, 1, 1, 1, 0, 0}, {33_000, 1, 20, 1, 0, 0}, {34_000, 1, 1, 1, 0, 0},
		}},
		{"ALG-09", tokenBucket(6, 60, 6), []op{{0, 1, 6, 6, 0, 0}, {5001, 1, 1, 0, 0, 4999}, {9999, 1, 1, 0, 0, 1}, {10_000, 1, 1, 1, 0, 0}}},
		{"ALG-11", windowOf("sliding_window", 1, 10), []op{
			{0, 1, 1, 1, unsaid, 0},
			{5000, 1, 1, 0, unsaid, 0},
			{9900, 1, 1, 0, unsaid, 0},
			{10_000, 1, 1, 0, unsaid, 0},
			{10_500, 1, 1, 0, unsaid, 0},
			{20_000, 1, 1, 1, unsaid, 0},
		}},
		{"ALG-12", windowOf("sliding_log", 5, 60), []op{{0, 1, 10, 5, unsaid, 0}}},
		{"BND-01-fixed", windowOf("fixed_window", 5, 60), []op{{58_000, 1, 5, 5, unsaid, 0}, {61_000, 1, 5, 5, unsaid, 0}}},
		{"BND-01-log", windowOf("sliding_log", 5, 60), []op{{58_000, 1, 5, 5, unsaid, 0}, {61_000, 1, 5, 0, unsaid, 0}}},
		{"BND-01-sliding", windowOf("sliding_window", 5, 60), []op{{58_000, 1, 5, 5, unsaid, 0}, {61_000, 1, 5, 0, unsaid, 0}}},
		{"BND-03", windowOf("sliding_log", 5, 60), []op{{0, 1, 5, 5, unsaid, 0}, {59_999, 1, 1, 0, unsaid, 1}, {60_001, 1, 1, 1, 4, 0}}},
		{"BND-05", windowOf("sliding_window", 10, 60), []op{
			{59_000, 1, 10, 10, unsaid, 0}, {60_000, 1, 1, 0, unsaid, 6000}, {65_900, 1, 1, 0, unsaid, 100}, {66_000, 1, 1, 1, unsaid, 0},
		}},
		{"TTL-02", windowOf("fixed_window", 5, 60), rolling},
		{"OVF-02", tokenBucket(980_000_000, 10, 980_000_000), []op{
			{0, 980_000_000, 1, 1, 0, 0}, {1, 98_000, 1, 1, 0, 0}, {10_000, 980_000_000, 1, 0, 979_902_000, 1}, {10_001, 980_000_000, 1, 1, 0, 0},
		}},
		{"OVF-05", tokenBucket(1500, 1, 1500), []op{{0, 1500, 1, 1, 0, 0}, {1, 1, 3, 1, 0, 0}, {2, 1, 3, 2, 0, 0}}},
		{"OVF-08", tokenBucket(1, 2_592_000, 1), []op{{0, 1, 1, 1, 0, 0}, {0, 1, 1, 0, 0, 2_592_000_000}}},
		{"HDR-02", tokenBucket(6, 60, 6), []op{{0, 1, 6, 6, 0, 0}, {8500, 1, 1, 0, 0, 1500}, {9500, 1, 1, 0, 0, 500}, {10_500, 1, 1, 1, 0, 0}}},
		{"HDR-04", windowOf("fixed_window", 2, 60), []op{{20_000, 1, 2, 2, 0, 0}, {20_000, 1, 1, 0, 0, 40_000}, {50_000, 1, 1, 0, 0, 10_000}}},
		{"HDR-09", windowOf("fixed_window", 2, 60), []op{{0, 1, 3, 2, 0, 60_000}}},
		{"CST-03-sliding", windowOf("sliding_window", 100, 60), []op{{6000, 10, 11, 10, unsaid, 0}}},
		{"CST-03-fixed", windowOf("fixed_window", 100, 60), []op{{6000, 10, 11, 10, unsaid, 0}}},
	}
}

// TestCases runs the traces against one service, each on a rule of its own.
func TestCases(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	rules.WriteString("rules:\n")
	for _, c := range traces() {
		fmt.Fprintf(&rules, "  - {id: %s, covers_all: true, identity: api_key, %s}\n", c.id, c.rule)
	}
	s := serve(t, rules.String())
	for _, c := range traces() {
		t.Run(c.id, func(t *testing.T) {
			for i, o := range c.ops {
				s.clock.at(o.tMS)
				allowed, last := s.allowed(t, c.id, int(o.n), o.cost)
				if int64(allowed) != o.allowed {
					t.Errorf("op %d %+v: %d allowed", i, o, allowed)
				}
				if o.remaining != unsaid && last.Entries[0].Remaining != o.remaining {
					t.Errorf("op %d %+v: %d left", i, o, last.Entries[0].Remaining)
				}
				if o.retryMS != 0 && last.RetryMS != o.retryMS {
					t.Errorf("op %d %+v: retry %d ms", i, o, last.RetryMS)
				}
				checkHeaders(t, last)
			}
		})
	}
}

// checkHeaders checks what holds for the headers of every answer (HDR-02, HDR-04,
// HDR-09): all there, also on a denial; Retry-After enough and no more than that.
func checkHeaders(t *testing.T, r reply) {
	t.Helper()
	want := map[string]string{
		"X-RateLimit-Limit":     itoa(r.Entries[0].Limit),
		"X-RateLimit-Remaining": itoa(r.Entries[0].Remaining),
	}
	if r.Verdict == "deny" {
		want["Retry-After"] = itoa((r.RetryMS + 999) / 1000)
	}
	for name, value := range want {
		if r.Headers[name] != value {
			t.Errorf("%s: %q, want %q in %+v", name, r.Headers[name], value, r)
		}
	}
	if r.Headers["X-RateLimit-Reset"] == "" || r.Headers["RateLimit"] == "" || r.Headers["RateLimit-Policy"] == "" {
		t.Errorf("headers missing in %+v", r)
	}
}
