package faults_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
)

var suite = flag.String("faults", "", `run the suite: "short" or "full"`)

func TestMain(m *testing.M) {
	flag.Parse()
	if *suite != "" {
		hurry()
		deadline = fitDeadline()
		_, _ = fmt.Fprintf(os.Stderr, "a check waits for the store for %s here\n", deadline)
	}
	os.Exit(redistest.Main(m))
}

const (
	shards = 3
	// keysEach is how many keys of each shard are asked for: enough that few checks
	// wait for one another's call.
	keysEach = 24
)

// The rules, all for one key each. A key of tight is always near its limit.
const (
	open   = "open"
	first  = "first" // for checks of two buckets, which stay in the store a while
	second = "second"
	closed = "closed"
	strict = "strict" // the same as closed
	tight  = "tight"
	leased = "leased"

	tightRate, tightBurst   = 50, 100
	leasedRate, leasedBurst = 10, 5_000
)

// fixture is a pod in front of the shared cluster, and keys by shard. Shard 0 is
// the one that is hurt.
type fixture struct {
	t         *testing.T
	c         *redistest.ProxiedCluster
	store     *redisstore.Store
	pod       *tallygate.Limiter
	primaries [shards]*redistest.Server // when the test began
	keys      [shards][]string
	idle      idle
}

// setup mends the shared cluster, connects a new pod and measures it while nothing
// is wrong.
func setup(t *testing.T) *fixture {
	t.Helper()
	needSuite(t)
	f := &fixture{t: t, c: redistest.SharedProxiedCluster(t)}
	f.c.Mend(t)
	f.pickKeys(t)
	for {
		f.store = connect(t, f.conf())
		f.pod = pod(t, f.store)
		for i := range 2 * lanes * keysEach { // connections and scripts are made
			f.ask(i)
		}
		f.idle = f.measure()
		if f.idle.odd == 0 && f.idle.p999 < deadline/2 || deadline >= mostDeadline {
			return f
		}
		deadline = min(2*deadline, mostDeadline) // the machine has become worse
		t.Logf("a check waits for the store for %s from now on", deadline)
	}
}

func needSuite(t *testing.T) {
	t.Helper()
	if *suite == "" {
		t.Skip("the fault suite runs alone: make test-faults")
	}
}

// long is how long a fault lasts that may take its time.
func long(short, full time.Duration) time.Duration {
	if *suite == "full" {
		return full
	}
	return short
}

func (f *fixture) hurt() *redistest.Server { return f.primaries[0] }
func (f *fixture) front() *redistest.Proxy { return f.c.Front(f.hurt()) }

func (f *fixture) conf() redisstore.Config { return config("redis://" + f.c.Addrs()[0]) }

func config(url string) redisstore.Config {
	return redisstore.Config{URL: url, Tags: identity.Plain{}, Deadline: deadline, Log: slog.New(slog.DiscardHandler)}
}

func connect(t *testing.T, conf redisstore.Config) *redisstore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := redisstore.New(ctx, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func pod(t *testing.T, s *redisstore.Store) *tallygate.Limiter {
	t.Helper()
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(ruleSet(t)), Store: s, Deadline: deadline})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func ruleSet(t *testing.T) *rules.Snapshot {
	t.Helper()
	rule := func(id string, rate, burst int64, mode rules.FailMode, counting rules.Counting) rules.Rule {
		return rules.Rule{
			ID: id, CoversAll: true, Identity: []string{"api_key"}, Algorithm: limit.TokenBucket, MaxCost: 1,
			Numbers: rules.Numbers{Rate: rate, PerS: 1, Burst: burst}, FailMode: mode, Counting: counting,
		}
	}
	snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{
		rule(open, 10_000, 20_000, rules.FailOpen, rules.CountingExact),
		rule(first, 1, 5_000, rules.FailOpen, rules.CountingExact),
		rule(second, 1, 5_000, rules.FailOpen, rules.CountingExact),
		rule(closed, 10_000, 20_000, rules.FailClosed, rules.CountingExact),
		rule(strict, 10_000, 20_000, rules.FailClosed, rules.CountingExact),
		rule(tight, tightRate, tightBurst, rules.FailOpen, rules.CountingExact),
		rule(leased, leasedRate, leasedBurst, rules.FailClosed, rules.CountingLease),
	}}, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// pickKeys finds keys of each shard, as it is now.
func (f *fixture) pickKeys(t *testing.T) {
	t.Helper()
	for i, n := range f.c.Primaries() {
		f.primaries[i] = n
	}
	for k, missing := 0, shards*keysEach; missing > 0; k++ {
		key := fmt.Sprintf("acct_%d", k)
		owner := f.c.Owner(t, f.slot(t, key))
		for i, n := range f.primaries {
			if n == owner && len(f.keys[i]) < keysEach {
				f.keys[i] = append(f.keys[i], key)
				missing--
			}
		}
	}
}

// slot is the hash slot of all buckets of a key.
func (f *fixture) slot(t *testing.T, key string) int {
	t.Helper()
	return f.c.Slot(t, bucketKey(open, key))
}

// bucketKey is the name of a bucket in the store.
func bucketKey(rule, key string) string {
	return "tg:{" + string(identity.Plain{}.AppendTag(nil, rules.DefaultDomain, key)) + "}:" + rule
}

// check is a check of one key by some rules.
func check(key string, ruleIDs ...string) tallygate.Check {
	var c tallygate.Check
	for _, id := range ruleIDs {
		c.Entries = append(c.Entries, tallygate.Entry{Rule: id, Key: []string{key}})
	}
	return c
}

// kindOf says what came of a check.
func kindOf(v *tallygate.Verdict, err error) string {
	fallback := v.Degraded != ""
	for i := range v.Entries {
		fallback = fallback || v.Entries[i].Source == tallygate.SourceFallback
	}
	switch code := tallygate.CodeOf(err); {
	case code == tallygate.CodeStoreTimeout:
		return refusedTimeout
	case code == tallygate.CodeStoreUnavailable:
		return refusedAway
	case err != nil:
		return "error " + string(code)
	case fallback && v.Allow:
		return fallbackAllow
	case fallback:
		return fallbackDeny
	case v.Allow:
		return allow
	}
	return deny
}

// What may come of a check: the first two are normal.
const (
	allow          = "allow"
	deny           = "deny"
	fallbackAllow  = "fallback allow"
	fallbackDeny   = "fallback deny"
	refusedTimeout = "refused 504"
	refusedAway    = "refused 503"
)

// one asks once.
func one(l *tallygate.Limiter, c tallygate.Check) string {
	var v tallygate.Verdict
	err := l.Decide(context.Background(), c, &v)
	return kindOf(&v, err)
}

// hold lets time pass in which nothing is to be waited for: a fault lasts.
func hold(d time.Duration) { time.Sleep(d) }

// soon polls until f says yes.
func soon(t *testing.T, within time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
