package sim

import (
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// call is a call of the store under way.
type call struct {
	// asked is the pod's, or nil for a check that asks alone: check.
	asked  *pod.Call
	check  int32
	serial int32 // of the check
	pod    int32
	set    uint64 // names the pod's bucket set
	// open counts what is still to happen: that it runs, that the pod hears of it.
	open  int8
	lost  bool // the pod hears of a timeout
	ranMS int64

	ops     []store.Op
	numbers []int32
	grants  []store.Grant
}

// lateBy is how long after the pod gave up a late call runs at most.
const lateBy = time.Second

// reason is what a call is made for.
type reason uint8

const (
	forChecks reason = iota // somebody waits for it
	forLeases               // the next lease, before the last one is used up
	forNobody               // to give back
)

// send makes a pod's call.
func (f *fleet) send(p int32, asked *pod.Call, why reason) {
	f.tally.calls[why]++
	f.launch(p, asked, asked.Ops)
}

// sendAlone makes the call of a check that no lease helps.
func (f *fleet) sendAlone(p, check int32) {
	f.tally.calls[forChecks]++
	at := f.launch(p, nil, f.checks[check].waiter.Ops)
	f.calls[at].check, f.calls[at].serial = check, f.checks[check].serial
}

func (f *fleet) launch(p int32, asked *pod.Call, ops []store.Op) (at int32) {
	at = f.newCall()
	c := &f.calls[at]
	c.asked, c.pod, c.open, c.lost = asked, p, 2, false
	// What is sent is bytes: nothing the pod does later may change it.
	c.ops = append(c.ops[:0], ops...)
	c.numbers, c.set = c.numbers[:0], 0
	for i := range ops {
		number := f.number(&ops[i].Bucket)
		c.numbers = append(c.numbers, number)
		f.tally.rules[int(number)%len(f.config.Rules)].ops++
		c.set += mix(uint64(number) + 1) // a set has no order
	}
	f.pods[p].launched(c.set, &f.tally)
	there, back := f.way(), f.way()
	arrive := f.now + there
	heard := arrive + back
	patience := f.now + int64(f.config.Network.Patience)
	switch mood := f.mood(); {
	case mood < f.config.Faults.LostReply || heard > patience:
		c.lost, heard = true, patience
	case mood < f.config.Faults.LostReply+f.config.Faults.Late:
		c.lost, heard = true, patience
		arrive = patience + f.network.Int64N(int64(lateBy))
	}
	f.heap.push(event{at: arrive, what: runs, ref: at})
	f.heap.push(event{at: heard, what: replies, pod: p, ref: at})
	return at
}

// way is the time of one way to the store or back.
func (f *fleet) way() int64 {
	t := int64(f.config.Network.Latency) / 2
	if j := int64(f.config.Network.Jitter) / 2; j > 0 {
		t += f.network.Int64N(j + 1)
	}
	return t
}

// mood is what the network does to a call, from 0 to 1; 1 is nothing.
func (f *fleet) mood() float64 {
	if f.config.Faults.LostReply+f.config.Faults.Late == 0 {
		return 1
	}
	return f.network.Float64()
}

func (f *fleet) newCall() int32 {
	if n := len(f.freeCalls); n > 0 {
		at := f.freeCalls[n-1]
		f.freeCalls = f.freeCalls[:n-1]
		return at
	}
	f.calls = append(f.calls, call{})
	return int32(len(f.calls) - 1)
}

// runCall has the store decide.
func (f *fleet) runCall(at int32) {
	c := &f.calls[at]
	c.ranMS = f.nowMS()
	c.grants = f.store.take(c.ranMS, c.ops, c.numbers, c.grants[:0])
	f.close(at)
}

// reply tells a pod what the store said, or that it said nothing in time.
func (f *fleet) reply(at int32) {
	c := &f.calls[at]
	m := &f.pods[c.pod]
	p, ranMS, asked := c.pod, c.ranMS, c.asked
	m.landed(c.set)
	switch {
	case m.crashed:
	case asked == nil:
		f.answerAlone(c)
	default:
		var grants []store.Grant
		var err error
		if c.lost {
			err = errTimeout
		} else {
			grants = c.grants
		}
		done, next := m.pod.Reply(f.podNow(m), asked, grants, err)
		for _, w := range done {
			f.answered(w, ranMS)
		}
		if next != nil {
			f.send(p, next, forChecks)
		}
	}
	f.close(at)
}

// answerAlone hands a check that asked alone its answer.
func (f *fleet) answerAlone(c *call) {
	if f.checks[c.check].serial != c.serial {
		return // it has left
	}
	w := f.checks[c.check].waiter
	if c.lost {
		w.Err = errTimeout
	} else {
		w.Grants = append(w.Grants[:0], c.grants...)
	}
	f.answered(w, c.ranMS)
}

// close frees a call once it has run and the pod knows.
func (f *fleet) close(at int32) {
	c := &f.calls[at]
	if c.open--; c.open == 0 {
		c.asked = nil
		f.freeCalls = append(f.freeCalls, at)
	}
}

// mix spreads the bits of a number.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}
