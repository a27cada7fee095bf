package pod_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// once asks the pod, and the store for what it cannot say; the store answers g.
func once(p *pod.Pod, now int64, ops []store.Op, terms []pod.Terms, g store.Grant) (grant store.Grant, asked bool) {
	grants, d := p.Local(now, nil, ops, terms)
	if d.Outcome != pod.Ask {
		return grants[0], false
	}
	w := &pod.Waiter{Ops: ops, Terms: terms}
	c := p.Join(now, w)
	g.Limit = ops[0].Limit
	p.Reply(now, c, []store.Grant{g}, nil)
	if !g.OK {
		p.Refund(now, ops, terms, d.Lacking)
	}
	return g, true
}

// A pod that alone has admitted all there is need not ask, and is right.
func TestPreLimit_ofTheLimit(t *testing.T) {
	p := pod.New(0, 0)
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 200}
	ops := take(l, 1)
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}
	asked := 0
	for range 300 {
		g, did := once(p, 0, ops, terms, store.Grant{OK: true, Remaining: 5})
		if !did {
			if g.Source != store.FromPreLimit || g.RetryMS != 40 {
				t.Fatalf("%+v, want a denial of the pre-limit, until four tokens are back: the slack is no part of a wait", g)
			}
			break
		}
		asked++
	}
	// The whole burst, one percent, and ten milliseconds of the rate.
	if asked < 203 || asked > 205 {
		t.Errorf("asked %d times, want the burst of 200 and a slack of 3 or 4", asked)
	}
	if _, did := once(p, 30*ms, ops, terms, store.Grant{OK: true}); !did {
		t.Error("30 ms later, with three tokens back, it still refuses")
	}
}

func TestPreLimit_ofAWindow(t *testing.T) {
	p := pod.New(0, 0)
	l := window(100, 60_000)
	ops := take(l, 1)
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}
	start := store.Grant{OK: true, Remaining: 5, NowMS: 1_800_000_030_000} // half a minute in
	asked := 0
	for range 150 {
		if _, did := once(p, 0, ops, terms, start); !did {
			break
		}
		asked++
	}
	if asked < 101 || asked > 103 {
		t.Errorf("asked %d times, want 100 and a slack of one or two", asked)
	}
	if _, did := once(p, 29_000*ms, ops, terms, start); did {
		t.Error("asked again in the same window")
	}
	if _, did := once(p, 30_000*ms, ops, terms, start); !did {
		t.Error("the next window is refused")
	}
}

func TestPreLimit_ofAFairShare(t *testing.T) {
	p := pod.New(0, 0)
	p.SetPods(50)
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 500}
	ops := take(l, 1)
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 2000, FairShare: true}}}
	asked := 0
	for range 100 {
		if _, did := once(p, 0, ops, terms, store.Grant{OK: true, Remaining: 5}); did {
			asked++
		}
	}
	if asked != 20 {
		t.Errorf("asked %d times, want 500 ÷ 50 × 2", asked)
	}
}

func window(capacity, windowMS int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.SlidingWindow, Capacity: capacity, WindowMS: windowMS}
}

func TestAsync(t *testing.T) {
	p := pod.New(0, 0)
	p.SetPods(10)
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 100}
	ops := take(l, 1)
	ops[0].Want = 0
	terms := []pod.Terms{{Counting: pod.Async, Sync: 50 * time.Millisecond}}
	once(p, 0, ops, terms, store.Grant{OK: true, Remaining: 99}) // unknown: asked
	once(p, 0, ops, terms, store.Grant{OK: true, Remaining: 98}) // the estimate begins
	admitted := 0
	var call *pod.Call
	w := &pod.Waiter{Ops: ops}
	for call == nil {
		grants, d := p.Local(ms, nil, ops, terms)
		if d.Outcome == pod.Ask {
			call = p.Join(ms, w)
			break
		}
		if grants[0].Source != store.FromAsync {
			t.Fatalf("%+v", grants[0])
		}
		admitted++
	}
	// What the rate brings in 50 ms is 5 tokens, the part of half of 98 over ten
	// pods 4.
	if admitted != 5 {
		t.Errorf("admitted %d on the estimate, want 5", admitted)
	}
	// When that is used up it is told at once, and only then the store is asked.
	if op := call.Ops[0]; op.How != store.Add || op.Cost != 5 {
		t.Fatalf("call %+v, want 5 added", call.Ops)
	}
	// The store had only three of them: two are owed.
	done, next := p.Reply(2*ms, call, []store.Grant{{OK: true, Receipt: store.Receipt{Cost: 3}, Limit: l}}, nil)
	if len(done) != 0 || next == nil || next.Ops[0].How != store.Take || next.Ops[0].Cost != 1 {
		t.Fatalf("done %v, next %+v, want to ask", done, next)
	}
	p.Reply(3*ms, next, []store.Grant{{RetryMS: 10, Limit: l}}, nil)
	if w.Grants[0].OK {
		t.Error("an empty bucket allowed")
	}
	calls := p.Tick(100 * ms)
	if len(calls) != 1 || calls[0].Ops[0].How != store.Add || calls[0].Ops[0].Cost != 2 {
		t.Fatalf("calls %+v, want the two that are owed", calls)
	}
	// With more left than is owed the estimate begins again.
	p.Reply(101*ms, calls[0], []store.Grant{{OK: true, Remaining: 50, Receipt: store.Receipt{Cost: 2}, Limit: l}}, nil)
	if g, d := p.Local(102*ms, nil, ops, terms); d.Outcome != pod.Allowed || g[0].Source != store.FromAsync {
		t.Errorf("%+v", g)
	}
	// An estimate is good for one sync.
	if _, d := p.Local(200*ms, nil, ops, terms); d.Outcome != pod.Ask {
		t.Error("an old estimate was used")
	}
}

// What was counted is told once; only what surely did not arrive is told again.
func TestAsync_lostCalls(t *testing.T) {
	l := window(100, 1000)
	for _, c := range []struct {
		name string
		err  error
	}{
		{"refused before it was sent", &store.StoreError{Kind: store.Unavailable}},
		{"timed out", &store.StoreError{Kind: store.Timeout, Sent: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pod.New(0, 0)
			ops := take(l, 3)
			ops[0].Want, ops[0].How = 0, store.Add
			p.Local(0, nil, ops, []pod.Terms{{Counting: pod.Report}})
			calls := p.Release(ms)
			if len(calls) != 1 {
				t.Fatal("nothing to tell")
			}
			p.Reply(2*ms, calls[0], nil, c.err)
			p.Local(3*ms, nil, ops, []pod.Terms{{Counting: pod.Report}})
			want := int64(3)
			var e *store.StoreError
			if errors.As(c.err, &e) && !e.Sent {
				want = 6
			}
			if again := p.Release(4 * ms); len(again) != 1 || again[0].Ops[0].Cost != want {
				t.Errorf("told %+v, want %d", again, want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	p := pod.New(0, 0)
	l := window(5, 1000)
	ops := take(l, 1)
	ops[0].Want, ops[0].How = 0, store.Add
	terms := []pod.Terms{{Counting: pod.Report}}
	for i := range 20 {
		if g, d := p.Local(0, nil, ops, terms); d.Outcome != pod.Allowed || !g[0].OK {
			t.Fatalf("report %d: %+v", i, g)
		}
	}
	if calls := p.Tick(80 * ms); len(calls) != 1 || calls[0].Ops[0].Cost != 20 {
		t.Errorf("told %+v, want 20", calls)
	}
}

// A denial is believed for ten seconds; what is told to wait is the truth.
func TestDenial_tellsTheWholeWait(t *testing.T) {
	p := pod.New(0, 0)
	l := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, WindowMS: 86_400_000}
	ops := take(l, 1)
	const wait = 22_695_133
	once(p, 0, ops, nil, store.Grant{RetryMS: wait, ResetMS: wait, NowMS: 1_800_000_000_000})
	g, asked := once(p, 2_000*ms, ops, nil, store.Grant{})
	if asked || g.RetryMS != wait-2000 || g.ResetMS != wait-2000 || g.NowMS != 1_800_000_002_000 {
		t.Errorf("asked %v, %+v, want the rest of the wait, and the store's clock", asked, g)
	}
	if _, asked := once(p, 10_001*ms, ops, nil, store.Grant{}); !asked {
		t.Error("believed for more than ten seconds")
	}
}

// Whatever the phase of the ticks, what nobody spent goes back.
func TestLease_goesBackAtAnyPhase(t *testing.T) {
	for phase := range int64(20) {
		p := pod.New(0, 0)
		ops := take(fast(), 1)
		now := phase * ms
		p.Local(now, nil, ops, nil)
		c := p.Join(now, &pod.Waiter{Ops: ops})
		p.Reply(now+ms, c, leased(ops[0], 50), nil)
		var back int64
		for at := int64(0); at < 1000*ms; at += int64(pod.TickEvery) {
			for _, call := range p.Tick(at) {
				back += call.Ops[0].Reports[0].Back
			}
		}
		if back != 50 {
			t.Errorf("phase %d ms: %d tokens came back, want 50", phase, back)
		}
	}
}

// Counts that did not arrive are told again, also when nobody comes any more.
func TestReport_toldAgain(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(fast(), 3)
	ops[0].How, ops[0].Want = store.Add, 0
	p.Local(0, nil, ops, []pod.Terms{{Counting: pod.Report}})
	calls := p.Tick(100 * ms)
	if len(calls) != 1 {
		t.Fatalf("%d calls, want one that tells", len(calls))
	}
	p.Reply(101*ms, calls[0], nil, &store.StoreError{Kind: store.Unavailable})
	if calls = p.Release(102 * ms); len(calls) != 1 || calls[0].Ops[0].Cost != 3 {
		t.Errorf("%d calls at the end: %+v", len(calls), calls)
	}
}

// Tokens that go back since whoever asked for them has left credit the pre-limit.
func TestPreLimit_creditsSurplus(t *testing.T) {
	p := pod.New(0, 0)
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 1000, Burst: 100, Revision: 2}
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}
	waiter := func(cost int64) *pod.Waiter { return &pod.Waiter{Ops: take(l, cost), Terms: terms} }
	first, second := p.Join(0, waiter(1)), waiter(90)
	p.Join(0, second)
	third := waiter(1)
	p.Join(0, third)
	_, call := p.Reply(ms, first, []store.Grant{{OK: true, Remaining: 99, Limit: l}}, nil)
	p.Leave(third)
	p.Leave(second)
	p.Reply(2*ms, call, []store.Grant{{OK: true, Queue: 1, Remaining: 8, Limit: l}}, nil)
	backs := p.Tick(20 * ms)
	if len(backs) != 1 || backs[0].Ops[0].How != store.Undo {
		t.Fatalf("calls %+v, want an undo", backs)
	}
	p.Reply(21*ms, backs[0], []store.Grant{{OK: true, Remaining: 9, Limit: l}}, nil)
	// Admitted: 1 + 90. Of the whole limit and its slack 10 are left.
	if g, d := p.Local(22*ms, nil, take(l, 10), terms); d.Outcome != pod.Ask {
		t.Errorf("got %+v %+v", g, d)
	}
}

// What an empty bucket could not take is told again, also of a key that went
// quiet, and ends when it is paid.
func TestAsync_owedOfAQuietKey(t *testing.T) {
	p := pod.New(0, 0)
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 10, PeriodMS: 1000, Burst: 10}
	ops := take(l, 1)
	ops[0].Want = 0
	terms := []pod.Terms{{Counting: pod.Async, Sync: 50 * time.Millisecond}}
	once(p, 0, ops, terms, store.Grant{OK: true, Remaining: 5})
	once(p, 0, ops, terms, store.Grant{OK: true, Remaining: 4})
	if g, asked := once(p, ms, ops, terms, store.Grant{}); asked || g.Source != store.FromAsync {
		t.Fatalf("%+v, want an estimate", g)
	}
	var told []int64
	for now := int64(0); now < 3_000*ms; now += int64(pod.TickEvery) {
		for _, c := range p.Tick(now) {
			told = append(told, c.Ops[0].Cost)
			paid := int64(0)
			if len(told) == 3 {
				paid = 1
			}
			p.Reply(now, c, []store.Grant{{OK: true, Receipt: store.Receipt{Cost: paid}, Limit: l}}, nil)
		}
	}
	if len(told) != 3 || told[0] != 1 || told[1] != 1 || told[2] != 1 {
		t.Errorf("told %v, want the one token three times: twice the bucket was empty", told)
	}
}
