package pod_test

import (
	"errors"
	"testing"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// crowd is a head whose call is under way and who joined behind it.
func crowd(t *testing.T, p *pod.Pod, l *limit.Limit, costs ...int64) (*pod.Call, []*pod.Waiter) {
	t.Helper()
	waiters := make([]*pod.Waiter, len(costs))
	var call *pod.Call
	for i, cost := range costs {
		waiters[i] = &pod.Waiter{Ops: take(l, cost)}
		c := p.Join(int64(i), waiters[i])
		if (c != nil) != (i == 0) {
			t.Fatalf("waiter %d: call %v; only the first makes one", i, c)
		}
		if c != nil {
			call = c
		}
	}
	return call, waiters
}

func granted(l *limit.Limit, queue, lease int64) []store.Grant {
	return []store.Grant{{OK: true, Queue: queue, Lease: lease, Generation: 1, LeaseMS: 900, Limit: l}}
}

func order(waiters, done []*pod.Waiter) []int {
	var list []int
	for _, d := range done {
		for i, w := range waiters {
			if w == d {
				list = append(list, i)
			}
		}
	}
	return list
}

func TestFlight_queue(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	l.Burst = 5000 // slow to fill: surplus may go back
	call, w := crowd(t, p, l, 1, 2, 3, 4)
	// The first call speaks for the head alone, since nobody waited when it left.
	done, next := p.Reply(10, call, granted(l, 0, 0), nil)
	if got := order(w, done); len(got) != 1 || got[0] != 0 {
		t.Fatalf("done %v", got)
	}
	if op := next.Ops[0]; op.Cost != 2 || op.Queue != 7 {
		t.Fatalf("the next call asks %d and %d, want 2 and 3+4", op.Cost, op.Queue)
	}
	// Five of the seven: the third of cost 3 fits, the fourth does not.
	done, next = p.Reply(20, next, granted(l, 5, 0), nil)
	if got := order(w, done); len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Fatalf("done %v, want 1 and 2", got)
	}
	if op := next.Ops[0]; op.Cost != 4 || op.Queue != 0 {
		t.Errorf("the next call asks %d and %d, want 4 and 0", op.Cost, op.Queue)
	}
	// What was granted and not taken goes back.
	calls := p.Tick(30)
	if len(calls) != 1 || calls[0].Ops[0].How != store.Undo || calls[0].Ops[0].Receipt.Cost != 2 {
		t.Errorf("calls %+v, want 2 tokens back", calls)
	}
}

func TestFlight_leaseServesWhoCameLater(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	call, w := crowd(t, p, l, 1, 1, 1, 1)
	done, next := p.Reply(10, call, granted(l, 0, 2), nil)
	if got := order(w, done); len(got) != 3 || next == nil || next.Ops[0].Cost != 1 {
		t.Errorf("done %v, next %+v, want the head, two from the lease, one more call", got, next)
	}
}

func TestFlight_noOvertaking(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	call, w := crowd(t, p, l, 1, 5, 1)
	done, next := p.Reply(10, call, granted(l, 0, 3), nil)
	if got := order(w, done); len(got) != 1 || next.Ops[0].Cost != 5 {
		t.Errorf("done %v, next %+v: the third must not overtake the second", got, next.Ops)
	}
}

func TestFlight_denied(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	call, w := crowd(t, p, l, 5, 9, 3, 5, 1)
	done, next := p.Reply(10, call, []store.Grant{{RetryMS: 50, Remaining: 4, Limit: l}}, nil)
	if got := order(w, done); len(got) != 3 || got[0] != 0 || got[1] != 1 || got[2] != 3 {
		t.Fatalf("denied %v, want all that ask no less than the head", got)
	}
	for _, d := range done {
		// One token comes back a millisecond: who asks four more waits four longer.
		if d.Grants[0].OK || d.Grants[0].RetryMS != 45+d.Ops[0].Cost {
			t.Errorf("grants %+v", d.Grants)
		}
	}
	if op := next.Ops[0]; op.Cost != 1 || op.Queue != 3 {
		t.Errorf("the next call asks %d and %d, want the smallest and 3", op.Cost, op.Queue)
	}
}

func TestFlight_error(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	call, w := crowd(t, p, l, 1, 1)
	why := errors.New("away")
	done, next := p.Reply(10, call, nil, why)
	if got := order(w, done); len(got) != 1 || !errors.Is(w[0].Err, why) || next == nil {
		t.Errorf("done %v, err %v: who came after the call was sent has not asked yet", got, w[0].Err)
	}
	done, next = p.Reply(20, next, nil, why)
	if len(done) != 1 || next != nil {
		t.Errorf("done %v, next %v", done, next)
	}
	if p.Join(30, &pod.Waiter{Ops: take(l, 1)}) == nil {
		t.Error("the flight has not ended")
	}
}

func TestFlight_leave(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	call, w := crowd(t, p, l, 1, 2, 3)
	if p.Leave(w[1]) {
		t.Error("the second was not asked for")
	}
	if !p.Leave(w[0]) {
		t.Error("the head was")
	}
	done, next := p.Reply(10, call, granted(l, 0, 0), nil)
	if len(done) != 1 || next.Ops[0].Cost != 3 || next.Ops[0].Queue != 0 {
		t.Errorf("done %d, next %+v: who has left is not asked for", len(done), next.Ops)
	}
}

// A bucket in shadow that denies holds nobody up: all who wait have their answer
// from one call.
func TestFlight_shadowDenied(t *testing.T) {
	p := pod.New(0, 0)
	l := fast()
	ops := func() []store.Op {
		both := append(take(l, 1), take(l, 1)...)
		both[1].Bucket.Rule, both[1].Shadow = "shadow", true
		return both
	}
	call := p.Join(0, &pod.Waiter{Ops: ops()})
	p.Join(0, &pod.Waiter{Ops: ops()})
	p.Join(0, &pod.Waiter{Ops: ops()})
	ok := store.Grant{OK: true, Remaining: 100, Limit: l}
	no := store.Grant{RetryMS: 5000, Limit: l}
	done, call := p.Reply(ms, call, []store.Grant{ok, no}, nil)
	if len(done) != 1 || call == nil || call.Ops[0].Queue != 1 {
		t.Fatalf("done %v, next %+v", done, call)
	}
	p.Join(2*ms, &pod.Waiter{Ops: ops()})
	ok.Queue = 2
	done, call = p.Reply(3*ms, call, []store.Grant{ok, no}, nil)
	if len(done) != 2 || call == nil {
		t.Fatalf("done %v, next %+v", done, call)
	}
	for _, w := range done {
		if !w.Grants[0].OK || w.Grants[1].OK {
			t.Errorf("got %+v", w.Grants)
		}
	}
}
