package pod_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// After a reset a pod has no lease and no denial of the bucket, gives nothing back,
// and its figures still add up.
func TestForget(t *testing.T) {
	t.Parallel()
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 10)
	if g, d := local(p, 1, ops); d.Outcome != pod.Allowed {
		t.Fatalf("%+v %+v, want the lease to be spent", g, d)
	}
	p.Forget(ops[0].Bucket)
	if got := p.Held(ops[0].Bucket); got != 0 {
		t.Errorf("%d tokens are held", got)
	}
	if _, d := local(p, 2, ops); d.Outcome != pod.Ask {
		t.Errorf("%+v, want the store to be asked", d)
	}
	for _, f := range p.Leases() {
		if f.Granted != 10 || f.Expired == 0 || f.Granted != f.Spent+f.Returned+f.Expired+f.Out {
			t.Errorf("%+v do not add up", f)
		}
	}
	for _, c := range p.Tick(int64(2 * time.Second)) {
		t.Errorf("%+v is told of a bucket that was reset", c.Ops)
	}
	p.Forget(ops[0].Bucket)
	p.Forget(store.Bucket{Rule: "nothing"})
}

// A denial is forgotten with its bucket.
func TestForget_denial(t *testing.T) {
	t.Parallel()
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	c := p.Join(0, &pod.Waiter{Ops: ops})
	p.Reply(0, c, []store.Grant{{RetryMS: 5000, NowMS: 1}}, nil)
	if _, d := local(p, 1, ops); d.Outcome != pod.Denied {
		t.Fatalf("%+v, want the denial to be remembered", d)
	}
	p.Forget(ops[0].Bucket)
	if _, d := local(p, 2, ops); d.Outcome != pod.Ask {
		t.Errorf("%+v, want the store to be asked", d)
	}
}

// Busiest finds the buckets with most demand in the last second, and only those.
func TestBusiest(t *testing.T) {
	t.Parallel()
	p := pod.New(0, 0)
	numbers := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1000, PeriodMS: 1000, Burst: 1_000_000, Revision: 1}
	const keys = 300
	for i := range int64(keys) {
		op := store.Op{Bucket: store.Bucket{Domain: "d", Rule: "r", Key: fmt.Sprintf("k%d", i)}, Limit: numbers, Want: 1000, Cost: i + 1, MaxCost: 1}
		c := p.Join(0, &pod.Waiter{Ops: []store.Op{op}})
		p.Reply(0, c, []store.Grant{{OK: true, Remaining: 100, NowMS: 1}}, nil)
	}
	all := func(store.Bucket) bool { return true }
	got := p.Busiest(int64(200*time.Millisecond), 3, all)
	if len(got) != 3 {
		t.Fatalf("%+v, want 3", got)
	}
	for i, r := range got {
		if want := fmt.Sprintf("k%d", keys-1-i); r.Bucket.Key != want || r.Bucket.Domain != "d" || r.Bucket.Rule != "r" {
			t.Errorf("%d: %+v, want %s", i, r, want)
		}
		if want := float64(keys-i) / 0.95; r.PerSecond < want-0.01 || r.PerSecond > want+0.01 {
			t.Errorf("%d: %v a second, want %v", i, r.PerSecond, want)
		}
	}
	for name, c := range map[string]struct {
		now  time.Duration
		want func(store.Bucket) bool
		n    int
	}{
		"those that are wanted":   {0, func(b store.Bucket) bool { return b.Key == "k7" }, 1},
		"still within a second":   {999 * time.Millisecond, all, keys},
		"none after a second":     {time.Second, all, 0},
		"none before their spend": {-time.Hour, all, 0},
	} {
		if got := len(p.Busiest(int64(c.now), keys, c.want)); got != c.n {
			t.Errorf("%s: %d, want %d", name, got, c.n)
		}
	}
}

// A pod knows the buckets that it has met, for a second at least, and however many
// others come.
func TestKnows(t *testing.T) {
	t.Parallel()
	p := pod.New(0, 64)
	op := take(fast(), 1)[0]
	if p.Knows(0, op.Bucket) {
		t.Error("a bucket is known before it was met")
	}
	p.Meet(0, &op)
	for i := range int64(1000) {
		now := i * int64(time.Millisecond) * 10
		if !p.Knows(now, op.Bucket) {
			t.Fatalf("forgotten after %d others, though it was asked for all the time", i)
		}
		other := op
		other.Bucket.Key = fmt.Sprint(i)
		p.Meet(now, &other)
	}
	if got := p.Entries(); got > 64 {
		t.Errorf("%d entries, at most 64", got)
	}
}
