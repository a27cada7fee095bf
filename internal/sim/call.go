package sim

import (
	"time"

	"github.com/tallygate/tallygate/internal/breaker"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// call is a call of the store under way.
type call struct {
	// asked is the pod's, or nil for a check that asks alone. Such a check, and one
	// that waits for a call that tells, is check; or none.
	asked  *pod.Call
	check  int32
	serial int32 // of the check
	pod    int32
	shard  int32
	set    uint64 // names the pod's bucket set
	marks  bool   // it only writes the pod's beat
	sent   bool   // it left the pod
	gone   bool   // it was sent to a shard that was down
	// open counts what is still to happen: that it runs, that the pod hears of it.
	open int8
	// err is what the pod hears instead of an answer, at the latest at patience.
	err      *store.StoreError
	patience int64
	failure  store.StoreError
	permit   breaker.Permit
	seen     int // how often the shard had lost spends when it was sent
	ranMS    int64
	ranNS    int64

	ops     []store.Op
	numbers []int32
	grants  []store.Grant
}

// none is the check of a call that none waits for.
const none = -1

// lateBy is how long after the pod gave up a late call runs at most.
const lateBy = time.Second

// reason is what a call is made for.
type reason uint8

const (
	forChecks reason = iota // somebody waits for it
	forLeases               // the next lease, before the last one is used up
	forNobody               // to give back, or to tell
)

// send makes a pod's call.
func (f *fleet) send(p int32, asked *pod.Call, why reason) {
	f.launch(p, none, asked, asked.Ops, why)
}

// sendAlone makes the call of a check that no lease helps, after the store has been
// told what was admitted without it: see Runner.
func (f *fleet) sendAlone(p, check int32) {
	m, w := &f.pods[p], &f.checks[check]
	if w.told < tellsFirst {
		if asked := m.pod.Tell(f.podNow(m), w.waiter.Ops); asked != nil {
			w.told++
			f.launch(p, check, asked, asked.Ops, forNobody)
			return
		}
	}
	w.sent = f.launch(p, check, nil, w.waiter.Ops, forChecks)
}

// tellsFirst is how many calls tell before a check asks: one looks, one charges.
const tellsFirst = 2

// launch sends a call and reports whether it left the pod.
func (f *fleet) launch(p, check int32, asked *pod.Call, ops []store.Op, why reason) (sent bool) {
	at := f.newCall()
	c := &f.calls[at]
	c.asked, c.pod, c.check, c.open, c.marks = asked, p, check, 2, false
	if check != none {
		c.serial = f.checks[check].serial
	}
	// What is sent is bytes: nothing the pod does later may change it.
	c.ops = append(c.ops[:0], ops...)
	c.numbers, c.set = c.numbers[:0], 0
	for i := range ops {
		number := f.number(&ops[i].Bucket)
		c.numbers = append(c.numbers, number)
		c.set += mix(uint64(number) + 1) // a set has no order
	}
	c.shard = f.shardOf(c.numbers[0] / int32(len(f.config.Rules)))
	if sent = f.depart(at, 0, 0); sent {
		f.tally.calls[why]++
		for _, number := range c.numbers {
			f.tally.rules[int(number)%len(f.config.Rules)].ops++
		}
		f.pods[p].launched(c.set, &f.tally)
	}
	return sent
}

// depart plans what becomes of a call: of a pod's beat with the times that both ways
// take, of another with what the network makes of it.
func (f *fleet) depart(at int32, there, back int64) (sent bool) {
	c := &f.calls[at]
	s := &f.shards[c.shard]
	c.seen, c.permit, c.patience = len(s.lost), breaker.Refuse, f.now+int64(f.config.Network.Patience)
	c.err = f.permit(&f.pods[c.pod], c)
	if c.sent = c.err == nil; !c.sent {
		c.open = 1
		f.heap.push(event{at: f.now, what: replies, pod: c.pod, ref: at})
		return false
	}
	mood := 1.0
	if !c.marks {
		there, back = f.way(), f.way()
		mood = f.mood()
	}
	there, back = s.takes(there), s.takes(back)
	arrive := f.now + there
	heard := arrive + back
	c.gone = s.down()
	switch {
	case s.refusing > 0:
		c.err, heard = errRefused, min(heard, c.patience)
	case s.hanging > 0, mood < f.config.Faults.LostReply, heard > c.patience:
		c.err, heard = errTimeout, c.patience
	case mood < f.config.Faults.LostReply+f.config.Faults.Late:
		c.err, heard = errTimeout, c.patience
		arrive = c.patience + f.network.Int64N(int64(lateBy))
	}
	f.heap.push(event{at: arrive, what: runs, ref: at})
	f.heap.push(event{at: heard, what: replies, pod: c.pod, ref: at})
	return true
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

// runCall has the store decide, if the call reaches it.
func (f *fleet) runCall(at int32) {
	c := &f.calls[at]
	s := &f.shards[c.shard]
	if c.gone || c.seen < len(s.lost) || s.down() {
		f.loses(c)
	} else {
		c.ranMS, c.ranNS = f.nowMS(), f.now
		c.grants = f.store.take(c.ranMS, c.ops, c.numbers, c.grants[:0])
		f.told(c)
	}
	f.close(at)
}

// loses ends a call that finds its connection gone, or nobody.
func (f *fleet) loses(c *call) {
	switch {
	case c.err != nil: // the pod hears of that
	case f.shards[c.shard].hanging > 0:
		c.err = errTimeout
	default:
		c.err = errLost
	}
}

// told counts what the store was told that pods admitted without it.
func (f *fleet) told(c *call) {
	if c.asked == nil || !c.asked.Tells() {
		return
	}
	for i := range c.ops {
		if c.ops[i].How == store.Add {
			b := &f.tally.buckets[c.numbers[i]]
			b.told += c.ops[i].Cost
			b.charged += c.grants[i].Receipt.Cost
		}
	}
}

// reply tells a pod what the store said, or that it said nothing in time.
func (f *fleet) reply(at int32) {
	c := &f.calls[at]
	m := &f.pods[c.pod]
	if c.err == nil && c.seen < len(f.shards[c.shard].lost) {
		c.err = errLost // with its connection
	}
	if c.err == errTimeout && f.now < c.patience { // it was lost under way
		f.heap.push(event{at: c.patience, what: replies, pod: c.pod, ref: at})
		return
	}
	if c.sent && !m.crashed {
		f.note(m, c)
	}
	switch {
	case c.marks:
		if c.err == nil {
			m.views[c.shard].ackedNS = c.ranNS
		}
	default:
		f.hear(m, c)
	}
	f.close(at)
}

// hear tells a pod the answer to a call of its own.
func (f *fleet) hear(m *machine, c *call) {
	if c.sent {
		m.landed(c.set)
	}
	f.bounds.heard(c)
	if m.crashed {
		return
	}
	if c.asked == nil {
		f.answerAlone(m, c)
		return
	}
	p, ranMS, check, serial, failure := c.pod, c.ranMS, c.check, c.serial, c.err
	var grants []store.Grant
	var err error // nil of no type, or the pod would see one
	if failure != nil {
		err = failure
	} else {
		grants = c.grants
	}
	done, next := m.pod.Reply(f.podNow(m), c.asked, grants, err)
	for _, w := range done {
		f.answered(w, ranMS)
	}
	if next != nil {
		f.send(p, next, forChecks)
	}
	switch {
	case check == none || f.checks[check].serial != serial:
	case err != nil:
		f.failed(check, unsent(failure))
	default:
		f.sendAlone(p, check)
	}
}

// unsent is the error of a check for which another call failed before its own.
func unsent(err *store.StoreError) *store.StoreError {
	before := *err
	before.Sent = false
	return &before
}

// answerAlone hands a check that asked alone its answer.
func (f *fleet) answerAlone(m *machine, c *call) {
	if c.err == nil {
		m.pod.Answered(f.podNow(m), c.ops, c.grants)
	}
	if f.checks[c.check].serial != c.serial {
		return // it has left
	}
	w := f.checks[c.check].waiter
	if c.err != nil {
		w.Err = c.err
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
