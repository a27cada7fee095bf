package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

func exactly(t *testing.T, s *redisstore.Store, key string) {
	t.Helper()
	for _, l := range []*limit.Limit{slow(3), window(limit.SlidingLog, 3, time.Hour), window(limit.FixedWindow, 3, time.Hour)} {
		allowed := 0
		for range 5 {
			if ok, _ := must(t, s, take(l.Algorithm.String(), key, l)); ok {
				allowed++
			}
		}
		if allowed != 3 {
			t.Errorf("%s: allowed = %d, want 3", l.Algorithm, allowed)
		}
	}
}

func TestSentinel(t *testing.T) {
	set := redistest.Sentinel(t)
	s := open(t, patient("redis+sentinel://"+strings.Join(set.Addrs(), ",")+"/"+redistest.SentinelName))
	exactly(t, s, "sentinel")
	op := take("kept", "sentinel", slow(5))
	must(t, s, op)
	eventually(t, 5*time.Second, "the replica has it", func() bool {
		n, _ := set.Replica.MustDo(t, "EXISTS", name(op)).(int64)
		return n == 1
	})
	set.Primary.Kill()
	eventually(t, 20*time.Second, "the promoted replica answers", func() bool {
		_, err := s.Take(context.Background(), []store.Op{op})
		return err == nil
	})
	if got := left(t, s, op); got != 3 {
		t.Errorf("%d left after the failover, want 3", got)
	}
}

// TestRefusedIsToldAtOnce: a pod without its store answers checks, and does not begin to
// only once the time of a first connection is over.
func TestRefusedIsToldAtOnce(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1,127.0.0.1:2/primary"} {
		least := time.Duration(math.MaxInt64) // of three: the machine may stand still in one
		for range 3 {
			begin := time.Now()
			if _, err := redisstore.New(t.Context(), as(url)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("%s: %v", url, err)
			}
			least = min(least, time.Since(begin))
		}
		if least >= redisstore.FirstDial {
			t.Errorf("%s: refused after %s", url, least)
		}
	}
}

func TestTLS(t *testing.T) {
	server := redistest.TLS(t, "--tls-auth-clients", "yes")
	conf := patient("rediss://" + server.Addr)
	conf.TLS = server.Config
	exactly(t, open(t, conf), "tls")

	conf.TLS = nil
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := redisstore.New(ctx, conf); err == nil {
		t.Error("a server with an unknown authority was trusted")
	}
}

func TestAudit(t *testing.T) {
	server := redistest.Standalone(t, "--maxmemory-policy", "allkeys-lru")
	s := open(t, patient("redis://"+server.Addr))
	found, err := s.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for setting, word := range map[string]string{
		"maxmemory-policy": "noeviction",
		"appendonly":       "forgets",
		"user default":     "wrong password",
		"maxmemory":        "only the machine",
	} {
		if !has(found, setting, word) {
			t.Errorf("%s: no word of %q in %v", setting, word, found)
		}
	}
	if has(found, "script", "") || has(found, "version", "") {
		t.Errorf("a good server is faulted: %v", found)
	}

	server.MustDo(t, "CONFIG", "SET", "maxmemory-policy", "noeviction", "appendonly", "yes", "maxmemory", "100mb", "stop-writes-on-bgsave-error", "no")
	server.MustDo(t, "ACL", "SETUSER", "tally", "reset", "on", ">x", "~*", "+@all")
	server.DisableDefaultUser(t)
	conf := patient("redis://tally:x@" + server.Addr)
	if found, err = open(t, conf).Audit(context.Background()); err != nil || len(found) != 0 {
		t.Errorf("a well-set server: %v, %v; want nothing", found, err)
	}
}

func TestAudit_cluster(t *testing.T) {
	c := redistest.SharedCluster(t)
	s := open(t, patient("redis://"+c.Addrs()[0]))
	c.Nodes[0].MustDo(t, "CONFIG", "SET", "cluster-require-full-coverage", "yes")
	defer c.Nodes[0].MustDo(t, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	found, err := s.Audit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	shards := map[string]bool{}
	for _, f := range found {
		shards[f.Shard] = true
	}
	if len(shards) != 3 {
		t.Errorf("%d servers were audited, want the 3 primaries: %v", len(shards), found)
	}
	if !has(found, "cluster-require-full-coverage", "one lost shard") {
		t.Errorf("full coverage is not faulted: %v", found)
	}
}

func has(found []redisstore.Finding, setting, word string) bool {
	for _, f := range found {
		if f.Setting == setting && strings.Contains(f.String(), word) {
			return true
		}
	}
	return false
}

// TestDeadline: a server that hangs costs a caller its deadline and no more.
func TestDeadline(t *testing.T) {
	server := redistest.Standalone(t)
	conf := patient("redis://" + server.Addr)
	conf.Deadline, conf.MaxInFlight, conf.Log = 20*time.Millisecond, 50, slog.New(slog.DiscardHandler)
	s := open(t, conf)
	op := take("rule", "deadline", slow(1000))
	eventually(t, 5*time.Second, "a first answer", func() bool {
		_, err := s.Take(context.Background(), []store.Op{op})
		return err == nil
	})
	server.Pause(t)
	defer server.Resume(t)
	full := 0
	for range 60 {
		_, err := s.Take(context.Background(), []store.Op{op})
		var e *store.StoreError
		if !errors.As(err, &e) {
			t.Fatalf("err = %v, want a StoreError", err)
		}
		switch {
		case e.Kind == store.Timeout: // unsent where a new connection was made meanwhile
		case e.Kind == store.Unavailable && !e.Sent && strings.Contains(e.Error(), "too many"):
			full++
		case e.Kind == store.Unavailable: // the connection was given up
		default:
			t.Errorf("err = %v, want a timeout", e)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Take(ctx, []store.Op{op}); err == nil {
		t.Error("a cancelled call was answered by a paused server")
	}
	server.Resume(t)
	eventually(t, 10*time.Second, "an answer after the pause", func() bool {
		_, err := s.Take(context.Background(), []store.Op{op})
		return err == nil
	})
	t.Logf("%d of 60 were refused for too many in flight", full)
}

func TestNew_errors(t *testing.T) {
	for url, word := range map[string]string{
		"":                                "scheme",
		"http://h":                        "scheme",
		"redis://":                        "host is empty",
		"redis://a,,b":                    "host is empty",
		"redis://h:1/x":                   "database",
		"redis://h:1/-1":                  "database",
		"redis://h/1/2":                   "too many parts",
		"redis://h?timeout=1":             "no query",
		"redis+sentinel://h":              "name of the primary is missing",
		"redis://user:pa%zzss@h":          "invalid URL escape",
		"redis://user:secret\x00word@h:1": "invalid",
	} {
		_, err := redisstore.New(context.Background(), patient(url))
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: err = %v, want a word of %q", url, err, word)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the password is in the message: %v", url, err)
		}
	}
	for what, conf := range map[string]redisstore.Config{
		"Tags":        {URL: "redis://h"},
		"Deadline":    {URL: "redis://h", Tags: patient("").Tags, Deadline: -1},
		"MaxInFlight": {URL: "redis://h", Tags: patient("").Tags, MaxInFlight: -1},
	} {
		if _, err := redisstore.New(context.Background(), conf); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: err = %v", what, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if _, err := redisstore.New(ctx, patient("redis://127.0.0.1:1")); err == nil {
		t.Error("connected to nobody")
	}
}

func TestClose(t *testing.T) {
	s := open(t, patient("redis://"+redistest.SharedStandalone(t).Addr))
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Take(context.Background(), []store.Op{take("r", "k", slow(1))})
	var e *store.StoreError
	if !errors.As(err, &e) || e.Kind != store.Unavailable || e.Sent {
		t.Errorf("after Close: %v, want unavailable and not sent", err)
	}
}
