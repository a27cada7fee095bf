package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
)

// members are the names of the pods a store knows of.
func members(t testing.TB, redis *redistest.Server) []string {
	t.Helper()
	list, _ := redis.MustDo(t, "ZRANGE", "tg:pods", "0", "-1").([]any)
	var names []string
	for _, name := range list {
		names = append(names, fmt.Sprint(name))
	}
	return names
}

// Two pods on one host are two members; a stop is told to the store at once; a
// fixed number of pods needs no membership.
func TestPods(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	rules := "rules:\n" + ruleLine("r", tokenBucket(1, 3600, 5))
	with := []string{"--store", "redis://" + redis.Addr, "--store-deadline", patient, "--log-level", "debug"}
	first, second := serve(t, rules, with...), serve(t, rules, with...)
	await.That(t, "two members", func() bool { return len(members(t, redis)) == 2 })
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	names := members(t, redis)
	if names[0] == names[1] || !strings.HasPrefix(names[0], host+"-") {
		t.Errorf("members %q on host %s", names, host)
	}
	for _, s := range []*service{first, second} {
		await.That(t, "both know of two", func() bool { return strings.Contains(s.stderr.String(), "pods=2") })
	}

	named := serve(t, rules, append(with, "--pod-id", "blue")...)
	fixed := serve(t, rules, append(with, "--pods", "3", "--pod-id", "red")...)
	await.That(t, "blue", func() bool { return strings.Contains(fmt.Sprint(members(t, redis)), "blue") })
	named.signals <- syscall.SIGTERM
	if code := named.wait(t); code != 0 {
		t.Errorf("exit %d: %s", code, named.stderr)
	}
	fixed.signals <- syscall.SIGTERM
	if code := fixed.wait(t); code != 0 {
		t.Errorf("exit %d: %s", code, fixed.stderr)
	}
	if names := fmt.Sprint(members(t, redis)); strings.Contains(names, "blue") || strings.Contains(names, "red") {
		t.Errorf("members %s, want neither blue, who left, nor red, who knows the number", names)
	}
}

// A pod that starts while the store is away is a member once it is there, and
// ends in good order when it is away again.
func TestPods_storeAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	redis.Kill()
	s := serve(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5)), "--store", "redis://"+redis.Addr, "--pod-id", "late")
	redis.Restart(t)
	await.That(t, "a member", func() bool { return fmt.Sprint(members(t, redis)) == "[late]" })
	redis.Kill()
	s.signals <- syscall.SIGTERM
	if code := s.wait(t); code != 0 {
		t.Errorf("exit %d: %s", code, s.stderr)
	}
}
