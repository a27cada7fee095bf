package pod_test

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// adds checks that figures add up and are the wanted ones.
func adds(t *testing.T, p *pod.Pod, want pod.LeaseFigures) {
	t.Helper()
	got := p.Leases()["r"]
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Granted != got.Spent+got.Returned+got.Expired+got.Out {
		t.Errorf("%+v does not add up", got)
	}
}

// A lease is out until the store was told: what is spent, and what goes back.
func TestLeases(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 4)
	adds(t, p, pod.LeaseFigures{Granted: 4, Out: 4, Idle: 4})
	for range 3 {
		local(p, 2*ms, ops)
	}
	adds(t, p, pod.LeaseFigures{Granted: 4, Out: 4, Idle: 1})
	p.Release(3 * ms)
	adds(t, p, pod.LeaseFigures{Granted: 4, Spent: 3, Returned: 1})
}

// What was held past its end cannot be given back.
func TestLeases_expired(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 4)
	local(p, 2*ms, ops)
	p.Tick(2000 * ms)
	adds(t, p, pod.LeaseFigures{Granted: 4, Spent: 1, Expired: 3})
}

// A background call pays for the spend that caused it; that the lease has its
// tokens again is a grant. Where it fails they were spent.
func TestLeases_topUp(t *testing.T) {
	for _, paid := range []bool{true, false} {
		t.Run(fmt.Sprintf("paid %t", paid), func(t *testing.T) {
			p := pod.New(0, 0)
			ops := take(fast(), 1)
			prime(t, p, ops, 5)
			var c *pod.Call
			for range 5 {
				if _, d := local(p, 2*ms, ops); d.TopUp != nil {
					c = d.TopUp
				}
			}
			if c == nil || p.TopUps() != 1 {
				t.Fatalf("%d top-ups, %v", p.TopUps(), c)
			}
			if !paid {
				p.Reply(3*ms, c, nil, &store.StoreError{Kind: store.Timeout, Sent: true})
				p.Release(4 * ms)
				adds(t, p, pod.LeaseFigures{Granted: 5, Spent: 5})
				return
			}
			p.Reply(3*ms, c, leased(c.Ops[0], 10), nil)
			p.Release(4 * ms)
			adds(t, p, pod.LeaseFigures{Granted: 16, Spent: 5, Returned: 11})
		})
	}
}

// The generation before last goes without a report.
func TestLeases_generations(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	for g := range int64(3) {
		w := &pod.Waiter{Ops: ops}
		grants := leased(ops[0], 4)
		grants[0].Generation = g + 1
		p.Reply(ms, p.Join(0, w), grants, nil)
	}
	adds(t, p, pod.LeaseFigures{Granted: 12, Expired: 4, Out: 8, Idle: 8})
}

// Rules beyond a thousand share their figures.
func TestLeases_bounded(t *testing.T) {
	p := pod.New(0, 0)
	for i := range 1100 {
		ops := take(fast(), 1)
		ops[0].Bucket.Rule = fmt.Sprint("rule-", i)
		local(p, 0, ops)
		p.Reply(ms, p.Join(0, &pod.Waiter{Ops: ops}), leased(ops[0], 2), nil)
	}
	all := p.Leases()
	if len(all) != 1001 || all[""] != (pod.LeaseFigures{Granted: 200, Out: 200, Idle: 200}) {
		t.Errorf("%d rules, the rest %+v", len(all), all[""])
	}
}

// A lease that was spent to the end keeps no bucket in the table: what the store is
// not told of it takes for spent.
func TestLeases_spentToTheEnd(t *testing.T) {
	p := pod.New(0, 1)
	ops := take(fast(), 1)
	prime(t, p, ops, 2)
	for range 2 {
		local(p, 2*ms, ops)
	}
	if calls := p.Tick(900 * ms); len(calls) != 0 {
		t.Errorf("%d calls", len(calls))
	}
	adds(t, p, pod.LeaseFigures{Granted: 2, Spent: 2})
	next := take(fast(), 1)
	next[0].Bucket.Key = "newcomer"
	local(p, 2000*ms, next)
	p.Reply(2001*ms, p.Join(2000*ms, &pod.Waiter{Ops: next}), leased(next[0], 3), nil)
	adds(t, p, pod.LeaseFigures{Granted: 5, Spent: 2, Out: 3, Idle: 3})
}

// A lease that comes so late that two newer ones are there has ended.
func TestLeases_late(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	for _, g := range []int64{8, 9, 7} {
		grants := leased(ops[0], 4)
		grants[0].Generation = g
		p.Reply(ms, p.Join(0, &pod.Waiter{Ops: ops}), grants, nil)
	}
	adds(t, p, pod.LeaseFigures{Granted: 12, Expired: 4, Out: 8, Idle: 8})
}

// BenchmarkLeases looks at a full table, as a scrape does.
func BenchmarkLeases(b *testing.B) {
	p := pod.New(0, 0)
	for i := range pod.DefaultEntries {
		ops := take(fast(), 1)
		ops[0].Bucket.Rule, ops[0].Bucket.Key = fmt.Sprint("rule-", i%100), fmt.Sprint("acct_", i)
		local(p, 0, ops)
		p.Reply(ms, p.Join(0, &pod.Waiter{Ops: ops}), leased(ops[0], 10), nil)
	}
	for b.Loop() {
		p.Leases()
	}
}
