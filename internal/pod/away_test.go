package pod_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

var (
	errTimedOut = &store.StoreError{Kind: store.Timeout, Sent: true, Err: errors.New("slow")}
	errRefused  = &store.StoreError{Kind: store.Unavailable, Err: errors.New("refused connection")}
	errNoRights = &store.StoreError{Kind: store.Refused, Err: errors.New("NOPERM")}
)

// gone is the error of a shard that was given up on so long ago.
func gone(d time.Duration) error {
	return &store.StoreError{Kind: store.Unavailable, Down: d, Err: errors.New("breaker open")}
}

// small is a bucket of ten that refills in a year or so.
func small() *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 10, Revision: 2}
}

func op(rule, key string, l *limit.Limit, cost int64) store.Op {
	return store.Op{Bucket: store.Bucket{Domain: "d", Rule: rule, Key: key}, Limit: l, Cost: cost, MaxCost: max(cost, 1), Pods: 1}
}

var open = pod.Instead{Milli: pod.OpenShare}

// away asks without the store, all rules open unless given.
func away(p *pod.Pod, now int64, err error, ops []store.Op, rules ...pod.Instead) ([]store.Grant, int) {
	for len(rules) < len(ops) {
		rules = append(rules, open)
	}
	return p.Away(now, nil, ops, nil, rules, err)
}

// passes counts how many of n equal checks pass without the store.
func passes(p *pod.Pod, now int64, err error, n int, ops ...store.Op) (count int) {
	for range n {
		grants, closed := away(p, now, err, ops)
		if closed == pod.NoneClosed && !denied(ops, grants) {
			count++
		}
	}
	return count
}

func denied(ops []store.Op, grants []store.Grant) bool {
	for i := range grants {
		if g := &grants[i]; !g.OK && !g.Skipped && !ops[i].Shadow {
			return true
		}
	}
	return false
}

func TestAway(t *testing.T) {
	p := pod.New(0, 0)
	p.SetPods(5)
	k := op("r", "k", small(), 1)
	if n := passes(p, 0, errTimedOut, 10, k); n != 4 {
		t.Errorf("%d of 10 passed, want 2 × 10 ÷ 5", n)
	}
	grants, _ := away(p, 0, errTimedOut, []store.Op{k})
	if g := grants[0]; g.OK || g.Source != store.FromFallback || g.RetryMS != 1000 || g.Remaining != 0 || g.ResetMS != 0 {
		t.Errorf("%+v, want a denial that tells to wait, and nothing else", g)
	}
	// Another key has its own, and no cost above all of the limit ever passes.
	if n := passes(p, 0, errTimedOut, 10, op("r", "other", small(), 1)); n != 4 {
		t.Errorf("%d of another key passed, want 4", n)
	}
	if grants, _ := away(p, 0, errTimedOut, []store.Op{op("r", "third", small(), 11)}); grants[0].OK || !grants[0].Never {
		t.Errorf("%+v of a cost above the limit, want never", grants[0])
	}
	// Fewer pods or more are no reason to get tokens.
	for _, pods := range []int64{1, 10_000, 5} {
		p.SetPods(pods)
		if n := passes(p, 0, errTimedOut, 10, k); n != 0 {
			t.Errorf("%d passed with %d pods now", n, pods)
		}
	}
}

// What comes back, by how the store fails: the pod's equal part, and twice it while
// the store is surely away.
func TestAway_refill(t *testing.T) {
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 200, Revision: 2}
	second := int64(time.Second)
	for _, c := range []struct {
		name        string
		first, last error
		want        int
	}{
		{"timeouts", errTimedOut, errTimedOut, 100},
		{"refused connections", errRefused, errRefused, 100},
		{"given up on for a quarter of it", errTimedOut, gone(250 * time.Millisecond), 125},
		{"given up on all the time", gone(1), gone(time.Hour), 200},
		{"the store refuses", errNoRights, errNoRights, 200},
		{"the store refuses now", errTimedOut, errNoRights, 100},
		{"the store has refused", errNoRights, errTimedOut, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, k := pod.New(0, 0), op("r", "k", l, 1)
			if n := passes(p, 0, c.first, 500, k); n != 400 {
				t.Fatalf("%d passed of a full one, want 400", n)
			}
			if n := passes(p, second, c.last, 500, k); n != c.want {
				t.Errorf("%d passed a second later, want %d", n, c.want)
			}
		})
	}
}

// What came back in an outage and was not used is gone when the store answers.
func TestAway_flapsSaveNothingUp(t *testing.T) {
	p, k := pod.New(0, 0), op("r", "k", &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 200, Revision: 2}, 1)
	now := int64(0)
	passes(p, now, errTimedOut, 500, k)
	for range 3 {
		now += int64(time.Second)
		k.Cost = 0
		away(p, now, gone(900*time.Millisecond), []store.Op{k}) // 10 by then, and 190 after
		answer(p, now, k)
		k.Cost = 1
	}
	if n := passes(p, now, errTimedOut, 500, k); n != 30 {
		t.Errorf("%d passed after three seconds, want the 30 that came back while it answered", n)
	}
}

// answer asks the store for one op by a flight and lets it answer.
func answer(p *pod.Pod, now int64, k store.Op) []*pod.Call {
	return answerWith(p, now, k, func(o store.Op) store.Grant {
		return store.Grant{OK: true, Remaining: 1000, Limit: o.Limit, Receipt: store.Receipt{Cost: o.Cost}}
	})
}

func answerWith(p *pod.Pod, now int64, k store.Op, say func(store.Op) store.Grant) (made []*pod.Call) {
	c := p.Join(now, &pod.Waiter{Ops: []store.Op{k}})
	for c != nil {
		made = append(made, c)
		var grants []store.Grant
		for _, o := range c.Ops {
			grants = append(grants, say(o))
		}
		_, c = p.Reply(now, c, grants, nil)
	}
	return made
}

// A check passes as a whole or spends nothing.
func TestAway_allOrNothing(t *testing.T) {
	p := pod.New(0, 0)
	rich, poor := op("rich", "k", small(), 1), op("poor", "k", small(), 1)
	shadow := op("shadow", "k", small(), 1)
	shadow.Shadow = true
	if n := passes(p, 0, errTimedOut, 100, poor, shadow); n != 20 {
		t.Fatalf("%d passed, want 20: a shadow rule has no say", n)
	}
	grants, _ := away(p, 0, errTimedOut, []store.Op{rich, poor, shadow})
	if !grants[0].Skipped || grants[1].OK || grants[1].Skipped || !grants[2].Skipped {
		t.Errorf("%+v, want denied by the second, of the others nothing", grants)
	}
	shut := op("shut", "k", small(), 1)
	if _, closed := away(p, 0, errTimedOut, []store.Op{rich, shut}, open, pod.Instead{}); closed != 1 {
		t.Errorf("closed %d, want the second", closed)
	}
	if _, closed := away(p, 0, errTimedOut, []store.Op{poor, shut}, open, pod.Instead{}); closed != 1 {
		t.Errorf("closed %d, want the second, also where the first denies", closed)
	}
	if n := passes(p, 0, errTimedOut, 100, rich); n != 20 {
		t.Errorf("%d of the first left, want all 20", n)
	}
	if n := passes(p, 0, errTimedOut, 100, op("shadow", "k", small(), 1)); n != 20 {
		t.Errorf("%d of the shadow rule left, want all 20", n)
	}
}

// A rule that fails closed passes what its list and its allowance let pass.
func TestAway_closed(t *testing.T) {
	p, k := pod.New(0, 0), op("r", "k", small(), 1)
	grants, closed := away(p, 0, errTimedOut, []store.Op{k}, pod.Instead{Pass: true})
	if closed != pod.NoneClosed || !grants[0].OK || grants[0].Source != store.FromAllowlist {
		t.Errorf("%+v, %d; want passed by the list", grants, closed)
	}
	var n int
	for range 10 {
		if grants, _ := away(p, 0, errTimedOut, []store.Op{k}, pod.Instead{Milli: 300}); grants[0].OK {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d passed, want 0.3 of ten", n)
	}
}

// What a lease covers is spent from the lease, also of a rule that fails closed.
func TestAway_leases(t *testing.T) {
	p := pod.New(0, 0)
	leased := take(fast(), 1)
	prime(t, p, leased, 3)
	other := op("other", "k", small(), 1)
	ops := []store.Op{leased[0], other}
	for i := range 3 {
		grants, closed := away(p, 2*ms, errTimedOut, ops, pod.Instead{}, open)
		if closed != pod.NoneClosed || grants[0].Source != store.FromLease || grants[1].Source != store.FromFallback || !grants[1].OK {
			t.Fatalf("check %d: %+v, %d", i, grants, closed)
		}
	}
	if _, closed := away(p, 2*ms, errTimedOut, ops, pod.Instead{}, open); closed != 0 {
		t.Errorf("closed %d, want the first: its lease is spent", closed)
	}
	if n := passes(p, 2*ms, errTimedOut, 100, other); n != 17 {
		t.Errorf("%d of the other left, want 20 less the three", n)
	}
}

// Rules that only report count once and never deny.
func TestAway_reports(t *testing.T) {
	p, k := pod.New(0, 0), op("report", "k", small(), 50)
	k.How = store.Add
	terms := []pod.Terms{{Counting: pod.Report}}
	p.Local(0, nil, []store.Op{k}, terms)
	grants, closed := p.Away(0, nil, []store.Op{k}, terms, []pod.Instead{open}, errTimedOut)
	if closed != pod.NoneClosed || !grants[0].OK || grants[0].Source != store.FromAsync {
		t.Errorf("%+v, %d", grants, closed)
	}
	told := int64(0)
	for _, c := range p.Tick(int64(time.Second)) {
		told += c.Ops[0].Cost
	}
	if told != 50 {
		t.Errorf("told %d, want 50", told)
	}
}

// Keys beyond the table share one fallback a rule, and a bucket whose fallback is not
// full keeps its place.
func TestAway_overflow(t *testing.T) {
	p := pod.New(0, 4)
	for i := range 4 {
		if n := passes(p, 0, errTimedOut, 100, op("r", fmt.Sprint("k", i), small(), 1)); n != 20 {
			t.Fatalf("%d of key %d passed, want 20", n, i)
		}
	}
	n := 0
	for i := range 1000 {
		n += passes(p, 0, errTimedOut, 1, op("r", fmt.Sprint("invented", i), small(), 1))
	}
	if n != 20 {
		t.Errorf("%d of 1,000 invented keys passed, want 20 together", n)
	}
	if n := passes(p, 0, errTimedOut, 100, op("other", "new", small(), 1)); n != 20 {
		t.Errorf("%d of another rule passed, want 20", n)
	}
	if n := passes(p, 0, errTimedOut, 100, op("r", "k0", small(), 1)); n != 0 {
		t.Errorf("%d of the first key passed again", n)
	}
	if buckets, overflowed := p.Fallbacks(); buckets != 6 || overflowed != 40 || p.Entries() != 4 {
		t.Errorf("%d fallbacks, %d draws on shared ones, %d entries; want 6, 40, 4", buckets, overflowed, p.Entries())
	}
	// A full one makes room.
	later := int64(100 * time.Hour)
	if n := passes(p, later, errTimedOut, 100, op("r", "late", small(), 1)); n != 20 || p.Entries() > 4 {
		t.Errorf("%d passed of a key that comes when all are full again, %d entries", n, p.Entries())
	}
	// So many rules that not each can have one of its own.
	for i := range 2000 {
		passes(p, later, errTimedOut, 25, op(fmt.Sprint("r", i), "x", small(), 1))
	}
	if buckets, _ := p.Fallbacks(); buckets > 1005 {
		t.Errorf("%d fallbacks", buckets)
	}
}

// What was admitted for calls that did not run is told once: a look, a charge, and
// then the check.
func TestTell(t *testing.T) {
	p, k := pod.New(0, 0), op("r", "k", small(), 1)
	passes(p, 0, errTimedOut, 3, k) // may have run: never told
	answer(p, 0, k)                 // of before the failure it says nothing
	passes(p, 0, errRefused, 7, k)
	made := answer(p, ms, k)
	want := []store.Op{
		{How: store.Take, Cost: 0}, {How: store.Add, Cost: 7}, {How: store.Take, Cost: 1},
	}
	if len(made) != len(want) {
		t.Fatalf("%d calls, want a look, a charge and the check", len(made))
	}
	for i, c := range made {
		if o := c.Ops[0]; len(c.Ops) != 1 || o.How != want[i].How || o.Cost != want[i].Cost || o.Bucket != k.Bucket {
			t.Errorf("call %d: %+v, want %+v", i, o, want[i])
		}
	}
	if made := answer(p, 2*ms, k); len(made) != 1 {
		t.Errorf("%d calls of the next check, want its own", len(made))
	}
	// In line for keys that go quiet, it was told meanwhile.
	if calls := p.Tick(int64(2 * time.Second)); len(calls) != 0 {
		t.Errorf("told again: %+v", calls[0].Ops)
	}
	if over := p.Over(); len(over) != 0 {
		t.Errorf("%+v over the limit", over)
	}
}

// A charge that surely did not arrive is kept; one that may have is not sent again. A
// look loses nothing. Who waited behind them has not asked.
func TestTell_fails(t *testing.T) {
	for _, c := range []struct {
		name       string
		look, pays error
		told       int64
	}{
		{"the look is lost", errTimedOut, nil, 7},
		{"the look is not sent", gone(time.Second), nil, 7},
		{"the charge is not sent", nil, errRefused, 7},
		{"the charge is lost", nil, errTimedOut, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, k := pod.New(0, 0), op("r", "k", small(), 1)
			passes(p, 0, errRefused, 7, k)
			w := &pod.Waiter{Ops: []store.Op{k}}
			call := p.Join(ms, w)
			if c.look == nil {
				_, call = p.Reply(ms, call, []store.Grant{{OK: true, Remaining: 10}}, nil)
			}
			done, next := p.Reply(ms, call, nil, errors.Join(c.look, c.pays))
			var e *store.StoreError
			if len(done) != 1 || next != nil || !errors.As(w.Err, &e) || e.Sent {
				t.Fatalf("done %v, next %v, %v; want an error that nothing was sent", done, next, w.Err)
			}
			told := int64(0)
			for _, made := range answer(p, 2*ms, k) {
				if made.Ops[0].How == store.Add {
					told += made.Ops[0].Cost
				}
			}
			if told != c.told {
				t.Errorf("told %d, want %d", told, c.told)
			}
		})
	}
}

// What the bucket could not take is dropped, and known.
func TestTell_over(t *testing.T) {
	for _, c := range []struct {
		name    string
		l       *limit.Limit
		charged int64
	}{
		{"a bucket takes what it has", small(), 4},
		{"a window is told no more than it has", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 10, WindowMS: 1000, Revision: 2}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, k := pod.New(0, 0), op("r", "k", c.l, 1)
			passes(p, 0, errRefused, 7, k)
			made := answerWith(p, ms, k, func(o store.Op) store.Grant {
				return store.Grant{OK: true, Remaining: 4, Limit: o.Limit, Receipt: store.Receipt{Cost: min(o.Cost, c.charged)}}
			})
			if c.l.Algorithm == limit.FixedWindow && made[1].Ops[0].Cost != 4 {
				t.Errorf("told %d, want the 4 that were left", made[1].Ops[0].Cost)
			}
			if over := p.Over()["r"]; over.Fallback != 3 || over.Async != 0 {
				t.Errorf("%+v over the limit, want 3", over)
			}
			if again := answer(p, 2*ms, k); len(again) != 1 {
				t.Errorf("%d calls of the next check, want its own", len(again))
			}
		})
	}
}

// Keys that have gone quiet are told by ticks, a few at a time and fewer while that
// fails.
func TestTell_quiet(t *testing.T) {
	const keys = 300
	p := pod.New(0, 0)
	for i := range keys {
		passes(p, 0, gone(1), 2, op("r", fmt.Sprint("k", i), small(), 1))
	}
	now := int64(0)
	tick := func() []*pod.Call {
		now += int64(pod.TickEvery)
		return p.Tick(now)
	}
	calls := 0
	for now < int64(5*time.Second) { // still away
		made := tick()
		calls += len(made)
		for _, c := range made {
			if _, next := p.Reply(now, c, nil, gone(time.Second)); next != nil {
				t.Fatal("a call that failed has another one follow it")
			}
		}
	}
	if calls < 5 || calls > 250 {
		t.Errorf("%d calls in 4 s of a store that is away, want a few", calls)
	}
	told := map[string]int64{}
	most := 0
	for now < int64(30*time.Second) {
		made := tick()
		most = max(most, len(made))
		for _, c := range made {
			for c != nil {
				o := c.Ops[0]
				if o.How == store.Add {
					told[o.Bucket.Key] += o.Cost
				}
				_, c = p.Reply(now, c, []store.Grant{{OK: true, Remaining: 10, Limit: o.Limit, Receipt: store.Receipt{Cost: o.Cost}}}, nil)
			}
		}
	}
	if len(told) != keys || most > 16 {
		t.Errorf("told of %d keys, %d at a time", len(told), most)
	}
	for key, n := range told {
		if n != 2 {
			t.Errorf("told %d of %s, want 2", n, key)
		}
	}
	if made := tick(); len(made) != 0 {
		t.Errorf("%d more calls", len(made))
	}
}

// Local answers allocate nothing and see nothing of a fallback.
func TestAway_allocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := pod.New(0, 0)
	ops := take(fast(), 1)
	passes(p, 0, errRefused, 3, ops[0])
	prime2(t, p, ops)
	grants := make([]store.Grant, 0, 1)
	if n := testing.AllocsPerRun(100, func() { grants, _ = p.Local(2*ms, grants[:0], ops, nil) }); n != 0 {
		t.Errorf("%v allocations on a lease hit", n)
	}
	rules := []pod.Instead{open}
	if n := testing.AllocsPerRun(100, func() { grants, _ = p.Away(3*ms, grants[:0], ops, nil, rules, errTimedOut) }); n != 0 {
		t.Errorf("%v allocations on an answer without the store", n)
	}
}

// prime2 gives the pod a lease of 900 after an outage.
func prime2(t *testing.T, p *pod.Pod, ops []store.Op) {
	t.Helper()
	local(p, 0, ops)
	c := p.Join(0, &pod.Waiter{Ops: ops})
	for c != nil {
		_, c = p.Reply(ms, c, leased(c.Ops[0], 900), nil)
	}
	if p.Held(ops[0].Bucket) == 0 {
		t.Fatal("no lease")
	}
}

// A check that leaves while the pod only tells has not been sent.
func TestTell_leave(t *testing.T) {
	p, k := pod.New(0, 0), op("r", "k", small(), 1)
	passes(p, 0, errRefused, 7, k)
	w := &pod.Waiter{Ops: []store.Op{k}}
	look := p.Join(ms, w)
	if p.Leave(w) {
		t.Error("sent, while the pod looks")
	}
	late := &pod.Waiter{Ops: []store.Op{k}}
	p.Join(ms, late)
	_, pay := p.Reply(ms, look, []store.Grant{{OK: true, Remaining: 10}}, nil)
	_, own := p.Reply(ms, pay, []store.Grant{{OK: true, Receipt: store.Receipt{Cost: 7}}}, nil)
	if own == nil || own.Ops[0].How != store.Take || !p.Leave(late) {
		t.Errorf("%+v, want the call of who waits still", own)
	}
}

// A check that a closed rule refuses leaves nothing behind.
func TestAway_refusedLeavesNothing(t *testing.T) {
	p := pod.New(0, 1)
	leased := take(fast(), 1)
	prime(t, p, leased, 3)
	if _, closed := away(p, 2*ms, errTimedOut, []store.Op{leased[0], op("shut", "k", small(), 1)}, open, pod.Instead{}); closed != 1 {
		t.Fatalf("closed %d", closed)
	}
	for now := int64(0); now < int64(3*time.Second); now += int64(pod.TickEvery) {
		p.Tick(now)
	}
	passes(p, int64(time.Hour), errTimedOut, 1, op("r", "new", small(), 1))
	if _, overflowed := p.Fallbacks(); overflowed != 0 {
		t.Error("the bucket of a check that was refused keeps its place for good")
	}
}
