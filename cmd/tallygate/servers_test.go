package main_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
)

// checked is store check -o json.
type checked struct {
	Servers []struct {
		Address, Role, Version string
		Slots                  int
		RoundTripMS            float64 `json:"round_trip_ms"`
		Error                  string
	}
	Findings []struct{ Server, Level, Setting, Value, Message string }
}

func (c *checked) has(level, setting string) bool {
	for _, f := range c.Findings {
		if f.Level == level && f.Setting == setting && f.Message != "" {
			return true
		}
	}
	return false
}

func storeCheck(t *testing.T, url string, args ...string) (code int, c checked, stderr string) {
	t.Helper()
	code, stdout, stderr := run(t, nil, append([]string{"store", "check", "--store", url, "-o", "json"}, args...)...)
	if stdout != "" {
		if err := json.Unmarshal([]byte(stdout), &c); err != nil {
			t.Fatalf("%v in %s", err, stdout)
		}
	}
	return code, c, stderr
}

func TestStoreCheck(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	url := "redis://" + redis.Addr
	code, c, stderr := storeCheck(t, url)
	if code != 0 || len(c.Servers) != 1 || c.Servers[0].Address != redis.Addr || c.Servers[0].Role != "primary" || c.Servers[0].RoundTripMS <= 0 {
		t.Errorf("exit %d, %+v, %s", code, c, stderr)
	}
	for _, setting := range []string{"appendonly", "maxmemory", "user default"} {
		if !c.has("warning", setting) {
			t.Errorf("no warning of %s in %+v", setting, c.Findings)
		}
	}
	code, stdout, _ := run(t, nil, "store", "check", "--store", url)
	if code != 0 || !strings.Contains(stdout, redis.Addr) || !strings.Contains(stdout, "warning: "+redis.Addr+`: appendonly is "no"`) {
		t.Errorf("exit %d: %s", code, stdout)
	}

	// Rights that lack are told, and that the script does not run is an error.
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, "secret\n")
	redis.AddUser(t, "weak", "secret", "~tg:*", "+ping", "+time")
	code, c, stderr = storeCheck(t, url, "--store-username", "weak", "--store-password-file", password)
	if code != 1 || !c.has("broken", "script") || !strings.Contains(stderr, "broken") {
		t.Errorf("without rights: exit %d, %+v, %s", code, c, stderr)
	}
	code, _, stderr = storeCheck(t, "redis://weak:wrong@"+redis.Addr)
	if code != 1 || !strings.Contains(stderr, "WRONGPASS") || !strings.Contains(stderr, "check store-username") || strings.Contains(stderr, "wrong@") {
		t.Errorf("a wrong password: exit %d, %s", code, stderr)
	}

	redis.Pause(t)
	code, _, stderr = storeCheck(t, url)
	redis.Resume(t)
	if code != 1 || !strings.Contains(stderr, "the store cannot be used") || !strings.Contains(stderr, "check that the servers run") {
		t.Errorf("the store hangs: exit %d, %s", code, stderr)
	}

	redis.Kill()
	code, _, stderr = storeCheck(t, url)
	if code != 1 || !strings.Contains(stderr, "connection refused") || !strings.Contains(stderr, "check that the servers run") {
		t.Errorf("the store is down: exit %d, %s", code, stderr)
	}
	if code, _, stderr = run(t, nil, "store", "check"); code != 2 || !strings.Contains(stderr, "memory") {
		t.Errorf("the memory store: exit %d, %s", code, stderr)
	}
	if code, _, stderr = run(t, nil, "store", "check", "--http", ":1"); code != 2 {
		t.Errorf("a flag of serve: exit %d, %s", code, stderr)
	}
}

// slotOf is store slot -o json.
type slotOf struct {
	Key      string
	Cluster  bool
	Slot     int
	Primary  string
	Replicas []string
	Advice   string
	Move     []string
}

func storeSlot(t *testing.T, args ...string) slotOf {
	t.Helper()
	code, stdout, stderr := run(t, nil, append([]string{"store", "slot", "-o", "json"}, args...)...)
	var s slotOf
	if err := json.Unmarshal([]byte(stdout), &s); code != 0 || err != nil {
		t.Fatalf("exit %d, %v: %s %s", code, err, stdout, stderr)
	}
	return s
}

// What store slot says of a key is where serve puts its bucket, and what it says of
// moving the slot moves it.
func TestStoreSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewCluster(t)
	url := "redis://" + cluster.Addrs()[0]
	rules := "rules:\n" + ruleLine("one", tokenBucket(1, 3600, 5)) +
		"  - {id: two, domain: other, covers_all: true, identity: [ip, user], algorithm: token_bucket, rate: 1, per_s: 3600, burst: 5}\n"
	s := serve(t, rules, "--store", url, "--store-deadline", patient)
	s.post(t, `{"entries":[{"rule":"one","key":"acct_7Q2"}]}`)
	s.post(t, `{"domain":"other","entries":[{"rule":"two","key":["2001:db8::99","ann"]}]}`)
	for _, args := range [][]string{
		{"acct_7Q2", "--rule", "one"},
		{"acct_7Q2", "--rule", "one", "--rules", "file:" + s.rules},
		{"2001:db8::", "ann", "--domain", "other", "--rule", "two"},                 // canonical already
		{"2001:DB8::99", "ann", "--rule", "two", "--rules", "file:" + s.rules},      // as the rule counts it
		{"[2001:db8::1]:443", "ann", "--rule", "two", "--rules", "file:" + s.rules}, // the same network
	} {
		got := storeSlot(t, append(args, "--store", url)...)
		if want := cluster.Slot(t, got.Key); !got.Cluster || got.Slot != want {
			t.Errorf("%q: %+v, want slot %d", args, got, want)
		}
		owner := cluster.Owner(t, got.Slot)
		if n, _ := owner.MustDo(t, "EXISTS", got.Key).(int64); n != 1 || got.Primary != owner.Addr {
			t.Errorf("%q: %+v; no such key at %s", args, got, owner.Addr)
		}
	}
	code, stdout, _ := run(t, nil, "store", "slot", "acct_7Q2", "--store", url)
	if code != 0 || !strings.Contains(stdout, "}:RULE") || !strings.Contains(stdout, "cluster setslot") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	moveAsTold(t, cluster, s, url)
}

// moveAsTold runs the commands that store slot tells.
func moveAsTold(t *testing.T, cluster *redistest.Cluster, s *service, url string) {
	t.Helper()
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Log("NOT TESTED: redis-cli is not installed")
		return
	}
	before := storeSlot(t, "acct_7Q2", "--rule", "one", "--store", url)
	left := s.ask0(t, "one", "acct_7Q2")
	for _, line := range before.Move {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	await.That(t, "the slot has moved", func() bool {
		after := storeSlot(t, "acct_7Q2", "--rule", "one", "--store", url)
		return after.Primary != before.Primary && cluster.Owner(t, before.Slot).Addr == after.Primary
	})
	if got := s.ask0(t, "one", "acct_7Q2"); got != left {
		t.Errorf("%d left after the move, want %d as before", got, left)
	}
}

// ask0 is how much a key has left.
func (s *service) ask0(t *testing.T, rule, key string) int64 {
	t.Helper()
	r := s.post(t, `{"entries":[{"rule":"`+rule+`","key":"`+key+`","cost":0}]}`)
	if len(r.Entries) != 1 {
		t.Fatalf("%+v", r)
	}
	return r.Entries[0].Remaining
}

func TestStoreSlot_single(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	url := "redis://" + redis.Addr
	if got := storeSlot(t, "k", "--store", url, "--plain-identities", "--domain", "d", "--rule", "r"); got.Key != "tg:{d/k}:r" || got.Cluster || got.Primary != redis.Addr || !strings.Contains(got.Advice, "one server") {
		t.Errorf("%+v", got)
	}
	secret := filepath.Join(t.TempDir(), "hash")
	write(t, secret, "swordfish\n")
	if one, two := storeSlot(t, "k", "--store", url), storeSlot(t, "k", "--store", url, "--key-hash-file", secret); one.Key == two.Key {
		t.Errorf("%s with a hash key and without", one.Key)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "rules:\n"+ruleLine("right", tokenBucket(1, 3600, 5)))
	for want, args := range map[string][]string{
		"takes the 1 to 4": {},
		"is empty":         {""},
		"did you mean":     {"k", "--rule", "rigth", "--rules", "file:" + path},
		"of domain":        {"k", "--rule", "right", "--domain", "x", "--rules", "file:" + path},
		"has 2 values":     {"a", "b", "--rule", "right", "--rules", "file:" + path},
		"no server":        {"k", "--store", "memory"},
	} {
		code, _, stderr := run(t, nil, append([]string{"store", "slot", "--store", url}, args...)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %s", strconv.Quote(want), code, stderr)
		}
	}
}
