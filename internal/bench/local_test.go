package bench_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// casBucket is the yardstick of local decisions: a token bucket in one word,
// spent by compare-and-swap.
type casBucket struct {
	fullAt      atomic.Int64
	cost, burst int64 // ns a token, ns a full bucket
}

func (b *casBucket) take(now int64) bool {
	for {
		at := b.fullAt.Load()
		next := max(at, now) + b.cost
		if next-now > b.burst {
			return false
		}
		if b.fullAt.CompareAndSwap(at, next) {
			return true
		}
	}
}

// casSample times that bucket with the clock.
func casSample() sample {
	cas := &casBucket{cost: 1, burst: int64(time.Hour)}
	return sample{"cas", nsPerOp(func(n int) {
		for range n {
			cas.take(time.Now().UnixNano())
		}
	})}
}

// casNS is what the bucket takes on the machine for which goals are told in ns, at most.
const casNS = 49

// slower is how many times slower than that this machine was, by the bucket's time in
// the same rounds: goals in ns grow by it. A faster machine is given nothing.
func slower(cas float64) float64 { return max(1, cas/casNS) }

func testLocal(t *testing.T) {
	xrate := rate.NewLimiter(1e9, 1e9)
	m := store.NewMemoryStore(store.MemoryConfig{})
	fast := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1_000_000_000, PeriodMS: 1000, Burst: 1_000_000_000}
	one := []store.Op{{Bucket: store.Bucket{Domain: "public-api", Rule: "growth-global", Key: "acct_7Q2"}, Limit: fast, Cost: 1}}
	two := append(one[:1:1], store.Op{Bucket: store.Bucket{Domain: "public-api", Rule: "labels-route", Key: "acct_7Q2"}, Limit: fast, Cost: 1})
	grants := make([]store.Grant, 0, 2)
	ask := func(ops []store.Op) func(n int) {
		return func(n int) {
			for range n {
				grants, _ = m.AppendTake(context.Background(), grants[:0], ops)
			}
		}
	}
	l := limiter(t)
	decide := func(check tallygate.Check) func(n int) {
		var v tallygate.Verdict
		return func(n int) {
			for range n {
				_ = l.Decide(context.Background(), check, &v)
			}
		}
	}
	got := interleave(
		casSample(),
		sample{"x/time/rate", nsPerOp(func(n int) {
			for range n {
				xrate.Allow()
			}
		})},
		sample{"memory", nsPerOp(ask(one))},
		sample{"memory two", nsPerOp(ask(two))},
		sample{"decide", nsPerOp(decide(tallygate.Check{Domain: "public-api", Entries: []tallygate.Entry{{Rule: "growth-global", Key: []string{"acct_7Q2"}}}}))},
		sample{"decide two", nsPerOp(decide(tallygate.Check{Domain: "public-api", Attributes: map[string]string{"plan": "growth", "route": "POST /v1/labels", "api_key": "acct_7Q2"}}))},
	)
	row(t, "x/time/rate Allow / CAS bucket", got[1], got[0], "ns", "-", true)
	row(t, "MemoryStore, one bucket / CAS bucket", got[2], got[0], "ns", atMost(6), got[2] <= 6*got[0])
	row(t, "MemoryStore, two buckets / CAS bucket", got[3], got[0], "ns", "-", true)
	row(t, "Limiter on MemoryStore, an entry / CAS bucket", got[4], got[0], "ns", "-", true)
	row(t, "Limiter, two buckets from attributes / CAS bucket", got[5], got[0], "ns", "-", true)
	once := ask(one)
	allocs := testing.AllocsPerRun(1000, func() { once(1) })
	t.Logf("%-52s %10.1f allocs", "MemoryStore, one bucket", allocs)
}
