package bench_test

import (
	"context"
	"hash/maphash"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/internal/server"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// manyKeys is over how many keys a table is measured.
const manyKeys = 100_000

// lender is a store that always says yes and lends a million tokens: what is
// measured on it is the pod.
type lender struct{ epoch time.Time }

func (l lender) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	grants := make([]store.Grant, len(ops))
	for i := range ops {
		grants[i] = loan(&ops[i], int64(time.Since(l.epoch)/(500*time.Millisecond)))
	}
	return grants, nil
}

// loan is the answer to an op that lends a million tokens for 900 ms.
func loan(op *store.Op, generation int64) store.Grant {
	return store.Grant{OK: true, Lease: 1_000_000, Generation: generation, LeaseMS: 900, Remaining: 1_000_000_000, Limit: op.Limit}
}

// lending is a limiter that answers from leases.
func lending(t testing.TB) *tallygate.Limiter {
	t.Helper()
	set := growth()
	for i := range set.Rules {
		set.Rules[i].MaxLease = 1_000_000
	}
	snapshot, problems := rules.Compile(nil, set, 1, time.Now())
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: lender{time.Now()}, Deadline: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// local is a pod whose clock is read but stands still, so that nothing it knows
// ends while it is measured.
type local struct {
	t      *testing.T
	pod    *pod.Pod
	epoch  time.Time
	ops    []store.Op // the one asked; its key changes
	terms  []pod.Terms
	grants []store.Grant
}

func newLocal(t *testing.T) *local {
	t.Helper()
	fast := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1_000_000_000, PeriodMS: 1000, Burst: 1_000_000_000}
	return &local{
		t: t, pod: pod.New(0, manyKeys), epoch: time.Now(), terms: make([]pod.Terms, 1),
		ops: []store.Op{{Bucket: store.Bucket{Domain: "public-api", Rule: "growth-global"}, Limit: fast, Cost: 1, Want: 1_000_000, MaxCost: 1}},
	}
}

// learn has the pod be told g of a key.
func (l *local) learn(key string, g store.Grant) {
	l.ops[0].Bucket.Key = key
	g.Limit = l.ops[0].Limit
	ops := append([]store.Op(nil), l.ops...)
	c := l.pod.Join(0, &pod.Waiter{Ops: ops})
	l.pod.Reply(1, c, []store.Grant{g}, nil)
}

func (l *local) lease(key string) { l.learn(key, loan(&l.ops[0], 1)) }
func (l *local) deny(key string)  { l.learn(key, store.Grant{RetryMS: 9000}) }

// ask asks for a key and pays for a top-up at once.
func (l *local) ask(key string, want pod.Outcome) {
	l.ops[0].Bucket.Key = key
	now := 2 + int64(time.Since(l.epoch))&1
	var d pod.Decision
	l.grants, d = l.pod.Local(now, l.grants[:0], l.ops, l.terms)
	if d.TopUp != nil {
		l.pod.Reply(now, d.TopUp, []store.Grant{loan(&l.ops[0], 1)}, nil)
	}
	if d.Outcome != want {
		l.t.Fatalf("outcome %d of %s, want %d", d.Outcome, key, want)
	}
}

// striped is the yardstick of many keys: 256 mutexes, each before a map of
// buckets that count as x/time/rate does.
type striped struct {
	seed    maphash.Seed
	stripes [256]stripe
}

type stripe struct {
	mu      sync.Mutex
	buckets map[string]*floatBucket
}

type floatBucket struct {
	tokens float64
	lastNS int64
}

func (s *striped) take(key string, now int64, perNS, burst float64) bool {
	p := &s.stripes[maphash.String(s.seed, key)%256]
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.buckets[key]
	if b == nil {
		if p.buckets == nil {
			p.buckets = map[string]*floatBucket{}
		}
		b = &floatBucket{tokens: burst, lastNS: now}
		p.buckets[strings.Clone(key)] = b // a request's text does not outlive it
	}
	b.tokens = min(burst, b.tokens+float64(now-b.lastNS)*perNS)
	b.lastNS = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// walk calls f for keys in an order that no cache line has two of.
func walk(keys []string, f func(key string)) func(n int) float64 {
	at := 0
	return nsPerOp(func(n int) {
		for range n {
			f(keys[at])
			if at += 7919; at >= len(keys) {
				at -= len(keys)
			}
		}
	})
}

// testLeases measures what a pod answers by itself.
func testLeases(t *testing.T) {
	cas := &casBucket{cost: 1, burst: int64(time.Hour)}
	one := []string{"acct_7Q2", "acct_7Q2"} // walk needs two
	keys := make([]string, manyKeys)
	leased, denied, all := newLocal(t), newLocal(t), newLocal(t)
	leased.lease(one[0])
	denied.deny(one[0])
	allDenied := newLocal(t)
	for i := range keys {
		keys[i] = "acct_" + strconv.Itoa(i)
		all.lease(keys[i])
		allDenied.deny(keys[i])
	}
	table := &striped{seed: maphash.MakeSeed()}
	l := lending(t)
	var v tallygate.Verdict
	decide := func(check tallygate.Check) func(n int) {
		return func(n int) {
			for range n {
				if err := l.Decide(context.Background(), check, &v); err != nil || !v.Allow {
					t.Fatal(v, err)
				}
			}
		}
	}
	entry := decide(tallygate.Check{Domain: "public-api", Entries: []tallygate.Entry{{Rule: "growth-global", Key: []string{"acct_7Q2"}}}})
	attributes := decide(tallygate.Check{Domain: "public-api", Attributes: map[string]string{"plan": "growth", "route": "POST /v1/labels", "api_key": "acct_7Q2"}})
	ask := func(l *local, want pod.Outcome) func(string) { return func(key string) { l.ask(key, want) } }
	got := interleave(
		sample{"cas", nsPerOp(func(n int) {
			for range n {
				if !cas.take(time.Now().UnixNano()) {
					t.Fatal("the CAS bucket denies")
				}
			}
		})},
		sample{"lease", nsPerOp(func(n int) {
			for range n {
				leased.ask(one[0], pod.Allowed)
			}
		})},
		sample{"denial", nsPerOp(func(n int) {
			for range n {
				denied.ask(one[0], pod.Denied)
			}
		})},
		sample{"map", walk(keys, func(key string) {
			if !table.take(key, time.Now().UnixNano(), 1, 1e9) {
				t.Fatal("the map denies")
			}
		})},
		sample{"lease of many", walk(keys, ask(all, pod.Allowed))},
		sample{"denial of many", walk(keys, ask(allDenied, pod.Denied))},
		sample{"entry", nsPerOp(entry)},
		sample{"attributes", nsPerOp(attributes)},
	)
	row(t, "pod, a lease hit / CAS bucket", got[1], got[0], "ns", atMost(3), got[1] <= 3*got[0])
	row(t, "pod, a deny-cache hit / CAS bucket", got[2], got[0], "ns", atMost(3), got[2] <= 3*got[0])
	row(t, "pod, lease hits on 100,000 keys / striped map", got[4], got[3], "ns", atMost(2), got[4] <= 2*got[3])
	row(t, "pod, deny-cache hits on 100,000 keys / striped map", got[5], got[3], "ns", atMost(2), got[5] <= 2*got[3])
	row(t, "Limiter from leases, an entry / CAS bucket", got[6], got[0], "ns", "-", true)
	row(t, "Limiter from leases, two from attributes / CAS", got[7], got[0], "ns", atMost(12), got[7] <= 12*got[0])
	for name, f := range map[string]func(){
		"pod, a lease hit":                               func() { leased.ask(one[0], pod.Allowed) },
		"pod, a deny-cache hit":                          func() { denied.ask(one[0], pod.Denied) },
		"Limiter from leases, two buckets by attributes": func() { attributes(1) },
	} {
		t.Logf("%-52s %10.1f allocs", name, testing.AllocsPerRun(1000, f))
	}
}

// testHTTPLeases measures the check API where the pod answers by itself.
func testHTTPLeases(t *testing.T) {
	s, err := server.New(server.Config{Limiter: lending(t)})
	if err != nil {
		t.Fatal(err)
	}
	ours, yard := httptest.NewServer(s.Handler()), httptest.NewServer(http.HandlerFunc(echo))
	defer ours.Close()
	defer yard.Close()
	for _, name := range []string{"an entry", "attributes"} {
		got := interleave(
			sample{"echo", posts(t, yard, bodies[name])},
			sample{"check", posts(t, ours, bodies[name])},
		)
		row(t, "JSON check from leases, "+name+" / JSON echo", got[1], got[0], "calls/s", atLeast(0.7), got[1] >= 0.7*got[0])
	}
}
