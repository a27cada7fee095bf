package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/pgtest"
	"github.com/tallygate/tallygate/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(redis{m})) }

// redis runs the tests with the Redis servers they share.
type redis struct{ *testing.M }

func (r redis) Run() int { return redistest.Main(r.M) }

// patient is the deadline of tests of counts: 5 ms are soon over on a busy
// machine, and an open rule then lets requests pass.
const patient = "5s"

// Three pods on one cluster hold a limit in total, exactly: with each algorithm,
// and with a second entry that is spent exactly as often as both allow. (A rule
// that leases never admits more, but a pod nobody asks may hold the last tokens.)
func TestThreePodsHoldOneLimit(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	url := "redis://" + strings.Join(cluster.Addrs(), ",")
	rules := "rules:\n" +
		ruleLine("bucket", tokenBucket(1, 3600, 1000)+", counting: exact") +
		ruleLine("day", "algorithm: fixed_window, limit: 1000, window: day, counting: exact") +
		ruleLine("log", windowOf("sliding_log", 1000, 3600)) +
		ruleLine("wide", tokenBucket(1, 3600, 5000)+", counting: exact")
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	var pods []*service
	for range 3 {
		pods = append(pods, serveAt(t, "--rules", "file:"+path, "--store", url, "--store-deadline", patient))
	}
	for _, rule := range []string{"bucket", "day", "log"} {
		key := fmt.Sprint(rule, time.Now().UnixNano()) // the cluster knows those of another -count
		body := fmt.Sprintf(`{"entries":[{"rule":"wide","key":%[1]q},{"rule":%[2]q,"key":%[1]q}]}`, key, rule)
		if got := hammer(t, pods, 5000, 64, body); got != 1000 {
			t.Errorf("%s: %d of 5,000 allowed, want exactly 1,000", rule, got)
		}
		r := pods[0].post(t, fmt.Sprintf(`{"entries":[{"rule":"wide","key":%q,"cost":0}]}`, key))
		if got := r.Entries[0].Remaining; got != 4000 {
			t.Errorf("%s: wide has %d left, want 4,000", rule, got)
		}
	}
}

// hammer sends n checks from several connections to the pods in turn and counts
// how many are allowed.
func hammer(t *testing.T, pods []*service, n, connections int, body string) int64 {
	t.Helper()
	var allowed, next atomic.Int64
	var group sync.WaitGroup
	for range connections {
		group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				response, err := client.Post(pods[i%int64(len(pods))].url+"/v1/ratelimit:check", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				var text bytes.Buffer
				_, err = text.ReadFrom(response.Body)
				_ = response.Body.Close()
				switch {
				case err != nil || response.StatusCode != http.StatusOK || bytes.Contains(text.Bytes(), []byte("degraded")):
					t.Errorf("%d %s %v", response.StatusCode, &text, err)
					return
				case bytes.HasPrefix(text.Bytes(), []byte(`{"verdict":"allow"`)):
					allowed.Add(1)
				}
			}
		})
	}
	group.Wait()
	return allowed.Load()
}

// A pod that starts while the store is away answers by fail mode, and counts as
// soon as the store is there.
func TestStartWithoutStore(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	redis.Kill()
	s := serve(t, "rules:\n"+ruleLine("open", tokenBucket(1, 3600, 5))+
		ruleLine("closed", tokenBucket(1, 3600, 5)+", fail_mode: closed"),
		"--store", "redis://"+redis.Addr, "--store-deadline", patient)
	if r := s.ask(t, "open", 1); r.HTTP != http.StatusOK || r.Verdict != "allow" || len(r.Headers) != 0 {
		t.Errorf("open: %+v", r)
	}
	if r := s.ask(t, "closed", 1); r.HTTP != http.StatusServiceUnavailable || r.Code != "store_unavailable" || r.Verdict != "deny" {
		t.Errorf("closed: %+v", r)
	}
	redis.Restart(t)
	await.That(t, "the store", func() bool { return s.ask(t, "closed", 0).HTTP == http.StatusOK })
	if got, _ := s.allowed(t, "closed", 6, 1); got != 5 {
		t.Errorf("%d of 6 allowed, want 5", got)
	}
}

// Credentials reach the store; wrong ones end the start. Plain identities show in
// the store's keys, hashed ones do not.
func TestStoreSettings(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	redis.AddUser(t, "tally", "s3cret", "~*", "+@all")
	redis.DisableDefaultUser(t)
	password := filepath.Join(t.TempDir(), "password")
	write(t, password, "s3cret\n")
	rules := "rules:\n" + ruleLine("r", tokenBucket(1, 3600, 5))
	with := []string{"--store", "redis://" + redis.Addr, "--store-deadline", patient, "--store-username", "tally", "--store-password-file", password}

	hashed := serve(t, rules, with...)
	hashed.post(t, `{"entries":[{"rule":"r","key":"acct_secret"}]}`)
	if keys := fmt.Sprint(redis.MustDo(t, "KEYS", "*")); strings.Contains(keys, "acct_secret") || !strings.Contains(keys, "}:r") {
		t.Errorf("keys %s, want a hashed one of rule r", keys)
	}
	plain := serve(t, rules, append(with, "--plain-identities")...)
	plain.post(t, `{"entries":[{"rule":"r","key":"acct_plain"}]}`)
	if keys := fmt.Sprint(redis.MustDo(t, "KEYS", "*")); !strings.Contains(keys, "acct_plain") {
		t.Errorf("keys %s, want a plain one", keys)
	}

	code, _, stderr := run(t, nil, "serve", "--http", "127.0.0.1:0", "--rules", "file:"+hashed.rules, "--store", "redis://tally:wrong@"+redis.Addr)
	if code != 1 || !strings.Contains(stderr, "WRONGPASS") || strings.Contains(stderr, "wrong@") {
		t.Errorf("wrong password: exit %d, %s", code, stderr)
	}
}

// FLT-12: a store that does not answer in time is a deny for closed rules, within
// the deadline; an open rule passes and says why.
func TestFLT12(t *testing.T) {
	t.Parallel()
	redis := redistest.Standalone(t)
	s := serve(t, "rules:\n"+ruleLine("open", tokenBucket(1, 3600, 5))+
		ruleLine("closed", tokenBucket(1, 3600, 5)+", fail_mode: closed"), "--store", "redis://"+redis.Addr)
	redis.Pause(t)
	t.Cleanup(func() { redis.Resume(t) })
	if r := s.ask(t, "closed", 1); r.HTTP != http.StatusGatewayTimeout || r.Code != "store_timeout" || r.Verdict != "deny" {
		t.Errorf("closed: %+v, want 504 store_timeout", r)
	}
	if r := s.ask(t, "open", 1); r.HTTP != http.StatusOK || r.Verdict != "allow" || r.Degraded != "store_timeout" {
		t.Errorf("open: %+v, want allowed and degraded", r)
	}
}

// Certificates for the store are read from files.
func TestStoreTLS(t *testing.T) {
	t.Parallel()
	redis := redistest.TLS(t)
	rules := "rules:\n" + ruleLine("r", tokenBucket(1, 3600, 5))
	url := "rediss://" + redis.Addr
	s := serve(t, rules, "--store", url, "--store-deadline", patient,
		"--store-ca-file", redis.CAFile, "--store-cert-file", redis.CertFile, "--store-key-file", redis.KeyFile)
	if got, _ := s.allowed(t, "r", 6, 1); got != 5 {
		t.Errorf("%d of 6 allowed, want 5", got)
	}
	for name, args := range map[string][]string{
		"no authority":   {"--store", url},
		"no PEM":         {"--store", url, "--store-ca-file", s.rules},
		"no such file":   {"--store", url, "--store-ca-file", "/nonexistent"},
		"wrong pair":     {"--store", url, "--store-ca-file", redis.CAFile, "--store-cert-file", redis.CertFile, "--store-key-file", redis.CAFile},
		"without rediss": {"--store", "redis://" + redis.Addr, "--store-ca-file", redis.CAFile},
	} {
		code, _, stderr := run(t, nil, append([]string{"serve", "--http", "127.0.0.1:0", "--rules", "file:" + s.rules}, args...)...)
		if code != 1 || !strings.Contains(stderr, "tallygate: store: ") {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// Behind Sentinel the primary is found by its name.
func TestStoreSentinel(t *testing.T) {
	t.Parallel()
	sentinels := redistest.Sentinel(t)
	s := serve(t, "rules:\n"+ruleLine("r", tokenBucket(1, 3600, 5)),
		"--store", "redis+sentinel://"+strings.Join(sentinels.Addrs(), ",")+"/"+redistest.SentinelName, "--store-deadline", patient)
	if got, _ := s.allowed(t, "r", 6, 1); got != 5 {
		t.Errorf("%d of 6 allowed, want 5", got)
	}
}
