package pod_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

const ms = int64(time.Millisecond)

// fast is a bucket whose leases are worth while.
func fast() *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1000, PeriodMS: 1000, Burst: 2000, Revision: 2}
}

// take is a check of cost on one bucket, of which up to 1,000 tokens may be
// leased.
func take(l *limit.Limit, cost int64) []store.Op {
	return []store.Op{{Bucket: store.Bucket{Domain: "d", Rule: "r", Key: "k"}, Limit: l, Cost: cost, Want: 1000, MaxCost: cost}}
}

// leased is the store's answer with a lease for 900 ms.
func leased(op store.Op, tokens int64) []store.Grant {
	return []store.Grant{{OK: true, Lease: tokens, Generation: 7, LeaseMS: 900, Remaining: 1000, Limit: op.Limit}}
}

// local asks the pod and returns what it says of the one op.
func local(p *pod.Pod, now int64, ops []store.Op) (store.Grant, pod.Decision) {
	grants, d := p.Local(now, nil, ops, nil)
	return grants[0], d
}

// prime gives the pod a lease of so many tokens at time 0.
func prime(t *testing.T, p *pod.Pod, ops []store.Op, tokens int64) {
	t.Helper()
	if _, d := local(p, 0, ops); d.Outcome != pod.Ask {
		t.Fatalf("outcome %d, want to ask", d.Outcome)
	}
	w := &pod.Waiter{Ops: ops}
	c := p.Join(0, w)
	done, next := p.Reply(ms, c, leased(ops[0], tokens), nil)
	if len(done) != 1 || done[0] != w || next != nil || !w.Grants[0].OK {
		t.Fatalf("done %v, next %v", done, next)
	}
}

func TestLease(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 3)
	for i := range 3 {
		g, d := local(p, 2*ms, ops)
		if d.Outcome != pod.Allowed || g.Source != store.FromLease || d.TopUp != nil {
			t.Fatalf("check %d: %+v %+v", i, g, d)
		}
	}
	if _, d := local(p, 2*ms, ops); d.Outcome != pod.Ask || d.Lacking != 1 {
		t.Errorf("a fourth: %+v, want to ask", d)
	}
	// What was spent is told with the next call, once.
	c := p.Join(3*ms, &pod.Waiter{Ops: ops})
	if r := c.Ops[0].Reports; len(r) != 1 || r[0] != (store.Report{Generation: 7, Spent: 3}) {
		t.Errorf("reports %+v", r)
	}
	if c.Ops[0].Want != 4 {
		t.Errorf("want %d, demand was 4", c.Ops[0].Want)
	}
	p.Reply(4*ms, c, nil, &store.StoreError{Kind: store.Timeout, Sent: true})
	if r := p.Join(5*ms, &pod.Waiter{Ops: ops}).Ops[0].Reports; len(r) != 0 {
		t.Errorf("a report was sent again: %+v", r)
	}
}

// A pod that stood still spends nothing old: the lease's life is measured from
// before the call was sent, and checked at every spend.
func TestLease_ends(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 100)
	if _, d := local(p, 899*ms, ops); d.Outcome != pod.Allowed {
		t.Error("it ended too soon")
	}
	if _, d := local(p, 900*ms, ops); d.Outcome != pod.Ask {
		t.Error("it outlived itself")
	}
	if _, d := local(p, 10_000*ms, ops); d.Outcome != pod.Ask {
		t.Error("a suspended pod spends old tokens")
	}
}

func TestLease_goesBack(t *testing.T) {
	for name, calls := range map[string]func(p *pod.Pod) []*pod.Call{
		"before it ends": func(p *pod.Pod) []*pod.Call { return p.Tick(860 * ms) },
		"at the end":     func(p *pod.Pod) []*pod.Call { return p.Release(20 * ms) },
	} {
		t.Run(name, func(t *testing.T) {
			p := pod.New(0, 0)
			ops := take(fast(), 1)
			prime(t, p, ops, 100)
			local(p, 10*ms, ops)
			if early := p.Tick(500 * ms); name != "at the end" && len(early) != 0 {
				t.Errorf("%d calls while it lives", len(early))
			}
			list := calls(p)
			if len(list) != 1 || len(list[0].Ops) != 1 || list[0].Ops[0].Cost != 0 {
				t.Fatalf("calls %+v, want one of cost 0", list)
			}
			if r := list[0].Ops[0].Reports; len(r) != 1 || r[0] != (store.Report{Generation: 7, Spent: 1, Back: 99}) {
				t.Errorf("reports %+v", r)
			}
			if more := p.Tick(10_000 * ms); len(more) != 0 {
				t.Errorf("it goes back twice: %+v", more)
			}
		})
	}
}

// Newer numbers end everything learnt under the old ones; an older check does not
// bring those back.
func TestLease_boundToNumbers(t *testing.T) {
	p := pod.New(0, 0)
	old, raised := fast(), fast()
	raised.Revision, raised.Burst = 4, 5000
	prime(t, p, take(old, 1), 100)
	if _, d := local(p, 10*ms, take(raised, 1)); d.Outcome != pod.Ask {
		t.Error("a lease of old numbers was spent under new ones")
	}
	c := p.Join(10*ms, &pod.Waiter{Ops: take(raised, 1)})
	if r := c.Ops[0].Reports; len(r) != 1 || r[0].Back != 100 {
		t.Errorf("reports %+v, want the lease back", r)
	}
	if _, d := local(p, 11*ms, take(old, 1)); d.Outcome != pod.Ask {
		t.Error("a check of the old numbers was answered locally")
	}
	// The same numbers under a newer revision are other numbers in a bucket: the
	// rule was touched, and leases are cheap.
	same := fast()
	same.Revision = 6
	p = pod.New(0, 0)
	prime(t, p, take(old, 1), 100)
	if _, d := local(p, 10*ms, take(same, 1)); d.Outcome != pod.Ask {
		t.Error("a lease outlived its revision")
	}
}

func TestTopUp(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 10)
	var call *pod.Call
	for range 9 {
		if _, d := local(p, 2*ms, ops); d.TopUp != nil {
			call = d.TopUp
		}
	}
	if call == nil {
		t.Fatal("no call at a fifth left")
	}
	// The call pays for the check that caused it: nine were spent, eight are told.
	if r := call.Ops[0].Reports; r[0].Spent != 8 {
		t.Errorf("reports %+v", r)
	}
	// While it is under way nobody else asks: who needs more waits for it.
	local(p, 3*ms, ops)
	w := &pod.Waiter{Ops: ops}
	if c := p.Join(3*ms, w); c != nil {
		t.Fatal("a second call for the same bucket")
	}
	done, next := p.Reply(4*ms, call, leased(ops[0], 20), nil)
	if len(done) != 1 || done[0] != w || next != nil {
		t.Errorf("done %v, next %v", done, next)
	}
	left := 0
	for {
		if _, d := local(p, 5*ms, ops); d.Outcome != pod.Allowed {
			break
		}
		left++
	}
	if left != 20 { // 20 leased, 1 for the waiter, 1 back for the check the call paid
		t.Errorf("%d tokens left, want 20", left)
	}
}

func TestDenyCache(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	costly, cheap := take(l, 10), take(l, 1)
	c := p.Join(0, &pod.Waiter{Ops: costly})
	p.Reply(2*ms, c, []store.Grant{{RetryMS: 500, Remaining: 5, Limit: l}}, nil)
	g, d := local(p, 100*ms, costly)
	if d.Outcome != pod.Denied || g.Source != store.FromDenyCache || g.RetryMS != 400 {
		t.Errorf("the same cost: %+v %+v, want denied for 400 ms more", g, d)
	}
	if _, d := local(p, 100*ms, cheap); d.Outcome != pod.Ask {
		t.Error("a smaller cost was denied by a denial of a larger one")
	}
	if _, d := local(p, 500*ms, costly); d.Outcome != pod.Ask {
		t.Error("it was denied past its time")
	}
	other := take(l, 10)
	other[0].Bucket.Rule = "labels-route"
	if _, d := local(p, 100*ms, other); d.Outcome != pod.Ask {
		t.Error("a denial says something of another bucket")
	}
	raised := fast()
	raised.Revision = 4
	if _, d := local(p, 100*ms, take(raised, 10)); d.Outcome != pod.Ask {
		t.Error("a denial outlived its numbers")
	}
}

// OVF-08: a wait of a month is believed for ten seconds.
func TestDenyCache_OVF08(t *testing.T) {
	p := pod.New(0, 0)
	month := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 2_592_000_000, Burst: 1}
	ops, calls := take(month, 1), 0
	for now := int64(0); now < 10_000*ms; now += 100 * ms {
		if _, d := local(p, now, ops); d.Outcome == pod.Denied {
			continue
		}
		calls++
		c := p.Join(now, &pod.Waiter{Ops: ops})
		p.Reply(now, c, []store.Grant{{RetryMS: 2_592_000_000, Limit: month}}, nil)
	}
	if calls > 2 {
		t.Errorf("%d calls in ten seconds, want at most 2", calls)
	}
}

// What was set aside for a check that another bucket denied comes back.
func TestRefund(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	has, lacks := take(l, 1)[0], take(l, 1)[0]
	lacks.Bucket.Rule = "other"
	prime(t, p, []store.Op{has}, 5)
	both := []store.Op{has, lacks}
	_, d := p.Local(2*ms, nil, both, nil)
	if d.Outcome != pod.Ask || d.Lacking != 2 {
		t.Fatalf("%+v, want to ask for the second", d)
	}
	p.Refund(3*ms, both, nil, d.Lacking)
	spent := 0
	for {
		if _, d := local(p, 4*ms, []store.Op{has}); d.Outcome != pod.Allowed {
			break
		}
		spent++
	}
	if spent != 5 {
		t.Errorf("%d tokens after the refund, want 5", spent)
	}
}

// A shadow rule never denies, and is not asked about while its denial is known.
func TestShadow(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	ops[0].Shadow = true
	c := p.Join(0, &pod.Waiter{Ops: ops})
	p.Reply(0, c, []store.Grant{{RetryMS: 500, Limit: ops[0].Limit}}, nil)
	g, d := local(p, ms, ops)
	if d.Outcome != pod.Allowed || g.OK || g.Source != store.FromDenyCache {
		t.Errorf("%+v %+v, want allowed with a shadow denial", g, d)
	}
}

// An exact rule, a look and a log always ask.
func TestAlwaysAsk(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	prime(t, p, ops, 10)
	exact, look := ops[0], ops[0]
	exact.Want, look.Cost = 0, 0
	for _, op := range []store.Op{exact, look} {
		if _, d := local(p, ms, []store.Op{op}); d.Outcome != pod.Ask {
			t.Errorf("%+v was answered locally", op)
		}
	}
}

func TestLocal_allocates_nothing(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	ops[0].Want = 1_000_000
	prime(t, p, ops, 1_000_000)
	grants := make([]store.Grant, 0, 1)
	if n := testing.AllocsPerRun(1000, func() { grants, _ = p.Local(2*ms, grants[:0], ops, nil) }); n != 0 {
		t.Errorf("%v allocations for a lease hit", n)
	}
	denied := take(fast(), 2)
	c := p.Join(0, &pod.Waiter{Ops: denied})
	p.Reply(0, c, []store.Grant{{RetryMS: 500, Limit: denied[0].Limit}}, nil)
	if n := testing.AllocsPerRun(1000, func() { grants, _ = p.Local(2*ms, grants[:0], denied, nil) }); n != 0 {
		t.Errorf("%v allocations for a remembered denial", n)
	}
}

// A denial of a large cost makes no smaller one wait: that still asks.
func TestDenial_smallerCostAsks(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	c := p.Join(0, &pod.Waiter{Ops: take(l, 10)})
	p.Reply(ms, c, []store.Grant{{RetryMS: 5, Remaining: 5, Limit: l}}, nil)
	if g, d := local(p, 2*ms, take(l, 1)); d.Outcome != pod.Ask {
		t.Errorf("a cost of 1 got %+v, %+v", g, d)
	}
	if g, d := local(p, 2*ms, take(l, 10)); d.Outcome != pod.Denied {
		t.Errorf("a cost of 10 got %+v, %+v", g, d)
	}
}

// A store that breaks its contract is an error, not the end of the process.
func TestReply_tooManyGrants(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	grants := append(leased(ops[0], 100), leased(ops[0], 100)...)
	done, _ := p.Reply(ms, p.Join(0, &pod.Waiter{Ops: ops}), grants, &store.StoreError{Kind: store.Refused, Sent: true})
	if len(done) != 1 || done[0].Err == nil {
		t.Errorf("done %+v", done)
	}
}

// A store whose clock stepped back and that forgot the bucket starts again with
// older generations: its leases are as good as any.
func TestLease_olderGenerations(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	grant := func(now, generation, tokens int64) {
		c := p.Join(now, &pod.Waiter{Ops: ops})
		p.Reply(now+ms, c, []store.Grant{{OK: true, Lease: tokens, Generation: generation, LeaseMS: 900, Remaining: 9, Limit: ops[0].Limit}}, nil)
	}
	p.Local(0, nil, ops, nil)
	grant(0, 100, 1)
	grant(500*ms, 101, 1)
	for range 2 {
		local(p, 600*ms, ops)
	}
	grant(700*ms, 50, 3)
	if _, d := local(p, 800*ms, ops); d.Outcome != pod.Allowed {
		t.Error("a lease of an older generation is not spent")
	}
	// One that ends before both others came too late.
	p = pod.New(0, 0)
	p.Local(0, nil, ops, nil)
	late := p.Join(0, &pod.Waiter{Ops: ops})
	other := take(fast(), 1)
	other[0].Bucket.Rule = "other"
	for i := range int64(2) {
		c := p.Join((300+500*i)*ms, &pod.Waiter{Ops: append(take(fast(), 1), other...)})
		grants := append(leased(ops[0], 1), leased(other[0], 1)...)
		grants[0].Generation, grants[0].Limit, grants[1].Limit = 10+i, ops[0].Limit, other[0].Limit
		p.Reply((301+500*i)*ms, c, grants, nil)
	}
	p.Reply(805*ms, late, leased(ops[0], 50), nil)
	if held := p.Held(ops[0].Bucket); held != 2 {
		t.Errorf("%d tokens held, want the two that came in time", held)
	}
}
