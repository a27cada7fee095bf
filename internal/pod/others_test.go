package pod_test

import (
	"testing"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// minute is a fixed window of a minute.
func minute(revision, capacity int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.FixedWindow, Capacity: capacity, WindowMS: 60_000, Revision: revision}
}

// waiting is a take whose new numbers wait for the next window.
func waiting(l *limit.Limit, cost int64) []store.Op {
	ops := take(l, cost)
	ops[0].NextWindow = true
	return ops
}

// answered has the store answer a take.
func answered(t *testing.T, p *pod.Pod, now int64, ops []store.Op, g store.Grant) {
	t.Helper()
	w := &pod.Waiter{Ops: ops, Terms: []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}}
	c := p.Join(now, w)
	if done, _ := p.Reply(now, c, []store.Grant{g}, nil); len(done) != 1 || done[0] != w {
		t.Fatal("the check was not answered")
	}
}

// What the pod answers from leases while its numbers wait speaks of those in force.
func TestOthers_leasesTellTheNumbersInForce(t *testing.T) {
	p := pod.New(0, 0)
	old, ops := minute(2, 100), waiting(minute(4, 5), 1)
	answered(t, p, 0, ops, store.Grant{OK: true, Lease: 10, Generation: 7, LeaseMS: 900, Remaining: 60, ResetMS: 30_000, Limit: old})
	g, d := local(p, ms, ops)
	if d.Outcome != pod.Allowed || g.Limit != old || g.Remaining != 69 {
		t.Errorf("%+v %+v, want 69 of the old limit", d, g)
	}
	// What the pod says by itself brings the change no sooner.
	for _, c := range append(p.Tick(900*ms), p.Release(901*ms)...) {
		for _, op := range c.Ops {
			if len(op.Reports) == 0 || !op.NextWindow {
				t.Errorf("%+v, want a report that lets the numbers wait", op)
			}
		}
	}
}

// A remembered denial by the old numbers ends with their window, however long it was
// to last, and whatever no waiting was to help.
func TestOthers_denialEndsWithTheWindow(t *testing.T) {
	for name, g := range map[string]store.Grant{
		"a long wait": {RetryMS: 9000},
		"never":       {Never: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod.New(0, 0)
			ops := waiting(minute(4, 200), 150)
			g.ResetMS, g.Limit = 2000, minute(2, 100)
			answered(t, p, 0, ops, g)
			if denied, d := local(p, 1999*ms, ops); d.Outcome != pod.Denied || denied.Limit != g.Limit {
				t.Errorf("in the window: %+v %+v, want denied by the old numbers", d, denied)
			}
			if _, d := local(p, 2000*ms, ops); d.Outcome != pod.Ask {
				t.Errorf("after it: outcome %d, want to ask", d.Outcome)
			}
		})
	}
}

// What the store granted by the old numbers does not count against the new ones' pre-limit,
// nor does that refuse what the store may allow by the old.
func TestOthers_preLimit(t *testing.T) {
	p := pod.New(0, 0)
	hour := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, WindowMS: 3_600_000, Revision: 4}
	ops := waiting(hour, 1)
	ops[0].Want = 1
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}
	says := func(now int64) pod.Outcome {
		_, d := p.Local(now, nil, ops, terms)
		return d.Outcome
	}
	const start = 1_800_000_000_000 // an hour's
	for i := range int64(20) {
		if got := says(i * ms); got != pod.Ask {
			t.Fatalf("check %d by the old numbers: outcome %d, want to ask", i, got)
		}
		answered(t, p, i*ms, ops, store.Grant{OK: true, Remaining: 80 - i, ResetMS: 10_000 - i, NowMS: start + i, Limit: minute(2, 100)})
	}
	for i := range int64(6) {
		now := (10_000 + i) * ms
		if got := says(now); got != pod.Ask {
			t.Fatalf("check %d by the new numbers: outcome %d, want to ask", i, got)
		}
		answered(t, p, now, ops, store.Grant{OK: true, Remaining: 5 - i, ResetMS: 3_590_000 - i, NowMS: start + 10_000 + i, Limit: hour})
	}
	if got := says(10_006 * ms); got != pod.Denied {
		t.Errorf("outcome %d, want the pre-limit to refuse a seventh of 5", got)
	}
}

// Checks that share a denial: what only the new numbers can hold waits for them.
func TestOthers_sharedDenial(t *testing.T) {
	for _, tt := range []struct {
		name       string
		cost       int64
		never      bool
		nextWindow bool
	}{
		{"fits later", 150, false, true},
		{"fits neither", 300, true, true},
		{"a pod that is behind", 150, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pod.New(0, 0)
			l, decided := minute(4, 200), minute(2, 100)
			if !tt.nextWindow {
				l, decided = minute(2, 200), minute(4, 100)
			}
			head, behind := take(l, 90), take(l, tt.cost)
			head[0].NextWindow, behind[0].NextWindow = tt.nextWindow, tt.nextWindow
			first, second := &pod.Waiter{Ops: head}, &pod.Waiter{Ops: behind}
			c := p.Join(0, first)
			p.Join(0, second)
			p.Reply(ms, c, []store.Grant{{RetryMS: 5000, ResetMS: 5000, Remaining: 50, Limit: decided}}, nil)
			if g := second.Grants[0]; g.OK || g.Never != tt.never {
				t.Errorf("%+v, want never %v", g, tt.never)
			}
		})
	}
}

// A cost above the whole limit is the store's to refuse: a pre-limit would tell to wait.
func TestPreLimit_costAboveTheLimit(t *testing.T) {
	p := pod.New(0, 0)
	ops := take(&limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 1000, Burst: 5, Revision: 2}, 50)
	answered(t, p, 0, ops, store.Grant{Never: true, Remaining: 5, Limit: ops[0].Limit})
	terms := []pod.Terms{{Before: pod.PreLimit{Milli: 1000}}}
	for _, now := range []int64{ms, 20_000 * ms} { // remembered, and not any more
		if grants, d := p.Local(now, nil, ops, terms); d.Outcome == pod.Denied && !grants[0].Never {
			t.Errorf("at %d: %+v, want no wait told", now, grants[0])
		}
	}
}
