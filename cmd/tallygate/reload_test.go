package main_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/await"
)

// ruleLine is one rule for all requests.
func ruleLine(id, numbers string) string {
	return fmt.Sprintf("  - {id: %s, covers_all: true, identity: api_key, %s}\n", id, numbers)
}

// REL-03: a reload is no refill.
func TestREL03(t *testing.T) {
	t.Parallel()
	drained := ruleLine("r", tokenBucket(1, 3600, 20))
	s := serve(t, "rules:\n"+drained)
	if got, _ := s.allowed(t, "r", 21, 1); got != 20 {
		t.Fatalf("%d allowed, want 20", got)
	}
	others := ""
	for i := range 10 {
		s.reload(t, fmt.Sprintf("# version %d\nrules:\n%s%s", i, drained, others))
		if got, _ := s.allowed(t, "r", 1, 1); got != 0 {
			t.Errorf("reload %d refilled", i)
		}
		others += ruleLine(fmt.Sprintf("other-%d", i), tokenBucket(1, 1, 1))
	}
}

// REL-05: refused calls do not count against a raised limit.
func TestREL05(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"fixed_window", "sliding_window"} {
		rules := "rules:\n" + ruleLine("r", fmt.Sprintf("algorithm: %s, limit: 10, window_s: 3600", algorithm))
		s := serve(t, rules)
		if got, _ := s.allowed(t, "r", 50, 1); got != 10 {
			t.Errorf("%s: %d of 50 allowed, want 10", algorithm, got)
		}
		s.reload(t, rules+"overrides:\n  - {rule: r, key: k, limit: 20}\n")
		if got, _ := s.allowed(t, "r", 11, 1); got != 10 {
			t.Errorf("%s: %d of 11 allowed after the raise, want 10", algorithm, got)
		}
	}
}

// REL-07: one bad rule does not disable the others.
func TestREL07(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 5))+ruleLine("b", tokenBucket(1, 3600, 6))+ruleLine("c", tokenBucket(1, 3600, 7)))
	s.reload(t, "rules:\n"+ruleLine("a", tokenBucket(1, 3600, 5))+
		ruleLine("b", "algorithm: foo, rate: 1, burst: 60")+ruleLine("c", tokenBucket(1, 3600, 70))+ruleLine("d", "algorithm: foo"))
	for rule, limit := range map[string]int64{"a": 5, "b": 6, "c": 70} {
		if r := s.ask(t, rule, 1); r.Verdict != "allow" || r.Entries[0].Limit != limit {
			t.Errorf("%s: %+v, want limit %d", rule, r, limit)
		}
	}
	if r := s.ask(t, "d", 1); r.HTTP != http.StatusNotFound || r.Code != "unknown_rule" {
		t.Errorf("d: %+v, want unknown_rule", r)
	}
	if log := s.stderr.String(); !strings.Contains(log, "rule=b") || !strings.Contains(log, "foo") {
		t.Errorf("the log does not name b and the reason:\n%s", log)
	}
}

// REL-08: a changed window length holds from the next multiple on.
func TestREL08(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+ruleLine("r", windowOf("fixed_window", 5, 3600)))
	if got, _ := s.allowed(t, "r", 5, 1); got != 5 {
		t.Fatalf("%d of 5 allowed", got)
	}
	s.reload(t, "rules:\n"+ruleLine("r", windowOf("fixed_window", 5, 10)))
	// The first check under the new length carries the count into the window it
	// falls in; it may be a denied one.
	if got, _ := s.allowed(t, "r", 1, 1); got != 0 {
		t.Error("the change refilled the window")
	}
	s.clock.at(10_000)
	if got, _ := s.allowed(t, "r", 6, 1); got != 5 {
		t.Errorf("%d of 6 allowed in the next window, want 5", got)
	}
}

// REL-11: a new burst caps whatever is stored.
func TestREL11(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+ruleLine("r", tokenBucket(1, 30, 1_000_000)))
	if r := s.ask(t, "r", 1); r.Entries[0].Remaining != 999_999 {
		t.Fatalf("%+v", r)
	}
	s.reload(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 1)))
	if r := s.ask(t, "r", 1); r.Verdict != "allow" || r.Entries[0].Remaining != 0 {
		t.Errorf("%+v, want the one token", r)
	}
	if got, _ := s.allowed(t, "r", 3, 1); got != 0 {
		t.Errorf("%d more allowed, want none", got)
	}
}

// OVF-07, OVF-10, UX-02: numbers beyond bounds and misspelt fields are refused by
// name, and the old version stays in force.
func TestBadRules(t *testing.T) {
	t.Parallel()
	good := ruleLine("r", tokenBucket(1, 3600, 5))
	s := serve(t, "rules:\n"+good)
	tests := []struct{ id, rule, field, message string }{
		{"OVF-07 2^53+1", "algorithm: token_bucket, rate: 1, burst: 9007199254740993", "burst", "1000000000000"},
		{"OVF-07 int64", "algorithm: token_bucket, rate: 1, burst: 9223372036854775807", "burst", "1000000000000"},
		{"OVF-07 1e308", "algorithm: token_bucket, rate: 1e308, burst: 1", "rate", "1e308"},
		{"OVF-07 1e19", "algorithm: fixed_window, limit: 10000000000000000000, window_s: 60", "limit", "10000000000000000000"},
		{"OVF-10 rate 0", "algorithm: token_bucket, rate: 0, burst: 1", "rate", "0"},
		{"OVF-10 rate -1", "algorithm: token_bucket, rate: -1, burst: 1", "rate", "-1"},
		{"OVF-10 limit 0", "algorithm: fixed_window, limit: 0, window_s: 60", "limit", "0"},
		{"OVF-10 window 0", "algorithm: fixed_window, limit: 1, window_s: 0", "window_s", "0"},
		{"UX-02 windows_s", "algorithm: fixed_window, limit: 1, windows_s: 60", "windows_s", "unknown"},
		{"UX-02 enforced", "algorithm: fixed_window, limit: 1, window_s: 60, mode: enforced", "mode", "enforced"},
		{"UX-02 algorithm", "algorithm: token_buckets, rate: 1, burst: 1", "algorithm", "token_buckets"},
		{"not yet", "algorithm: token_bucket, rate: 1, burst: 1, regions: {us-east: 1}", "regions", "not supported yet"},
	}
	for _, test := range tests {
		t.Run(test.id, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "rules.yaml")
			write(t, path, "rules:\n"+ruleLine("r", test.rule))
			code, stdout, _ := run(t, nil, "rules", "lint", path)
			line := firstLine(stdout)
			if code != 1 || !strings.HasPrefix(line, path+":2:") || !strings.Contains(line, "error: rule r: "+test.field+": ") || !strings.Contains(line, test.message) {
				t.Errorf("lint: exit %d, %s", code, stdout)
			}
			s.reload(t, "rules:\n"+ruleLine("r", test.rule))
			if r := s.ask(t, "r", 0); r.Verdict != "allow" || r.Entries[0].Limit != 5 {
				t.Errorf("%+v, want the old version in force", r)
			}
		})
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "rules:\n  - {id: r, identity: api_key, "+tokenBucket(1, 1, 1)+"}\n")
	if code, stdout, _ := run(t, nil, "rules", "lint", path); code != 1 || !strings.Contains(stdout, "covers every route") {
		t.Errorf("UX-02 no match: exit %d, %s", code, stdout)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// A file that cannot be read leaves the rules as they are.
func TestReloadOfNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5)))
	if err := os.Remove(s.rules); err != nil {
		t.Fatal(err)
	}
	s.reloads <- syscall.SIGHUP
	await.That(t, "log", func() bool { return strings.Contains(s.stderr.String(), "rules stay as they were") })
	if r := s.ask(t, "r", 1); r.Verdict != "allow" {
		t.Errorf("%+v", r)
	}
}

// MEM-03: reloads leave nothing behind, and nothing is left after the stop.
func TestMEM03(t *testing.T) {
	before := runtime.NumGoroutine()
	s := serve(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5)))
	s.ask(t, "r", 1)
	s.client.CloseIdleConnections()
	running := runtime.NumGoroutine()
	for i := range 50 {
		s.reload(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, int64(5+i))))
	}
	if got := runtime.NumGoroutine(); got > running+5 {
		t.Errorf("%d goroutines after 50 reloads, %d before", got, running)
	}
	s.signals <- syscall.SIGTERM
	if code := s.wait(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	await.That(t, "goroutines", func() bool { return runtime.NumGoroutine() <= before })
}

// A start that fails at its last listener leaves nothing either.
func TestServe_failedStartLeavesNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := runtime.NumGoroutine()
	dir := inFolder(t, map[string]string{"rules.yaml": "rules: []\n"})
	for _, taken := range []string{"--http", "--grpc", "--admin"} {
		args := []string{"serve", "--rules", "file:" + filepath.Join(dir, "rules.yaml")}
		for _, port := range []string{"--http", "--grpc", "--admin"} {
			address := "127.0.0.1:0"
			if port == taken {
				address = l.Addr().String()
			}
			args = append(args, port, address)
		}
		if code, _, stderr := run(t, nil, args...); code != 1 || !strings.Contains(stderr, "in use") {
			t.Errorf("%s: exit %d: %s", taken, code, stderr)
		}
		await.That(t, "goroutines of "+taken, func() bool { return runtime.NumGoroutine() <= before })
	}
}

// A file of which not one rule can be used is no file without rules: nothing that was to
// be limited passes because of a typo.
func TestServe_noRuleCanBeUsed(t *testing.T) {
	t.Parallel()
	faulty := "rules:\n  - {id: a, algorithm: leaky, identity: [ip], covers_all: true}\n"
	for name, row := range map[string]struct {
		rules  string
		starts bool
	}{
		"one that cannot":        {faulty, false},
		"one that can beside it": {faulty + "  - {id: b, action: deny, match: {route: x}}\n", true},
		"an empty list":          {"rules: []\n", true},
		"a warning and no fault": {"rules:\n  - {id: b, action: deny, covers_all: true}\n", true},
		"an override of no rule": {"rules: []\noverrides:\n  - {key: k, rule: a, burst: 5, reason: r, owner: o}\n", false},
	} {
		dir := inFolder(t, map[string]string{"rules.yaml": row.rules})
		if row.starts {
			serve(t, row.rules)
			continue
		}
		code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--rules", "file:"+filepath.Join(dir, "rules.yaml"))
		if code != 1 || !strings.Contains(stderr, "not one rule can be used, for the 1 problem in the log above") {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
	}
}
