package sim

import (
	"strconv"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/store"
)

// source is a kind of traffic under way. All its keys share one event: the sum
// of Poisson streams is a Poisson stream whose keys come at random, and the sum
// of even ones is even with its keys in turn.
type source struct {
	gap   float64 // mean ns between checks
	clock float64 // ns of the next check, not rounded: or rates would drift
	count int64
	// ops is a check's ops but for the key, terms how pods may answer each.
	ops   []store.Op
	terms []pod.Terms
	// instead says how each may be answered without the store.
	instead []pod.Instead
}

// domain is the domain of all buckets.
const domain = "sim"

// keyName names a key, so that keyNumber can tell it without a map.
func keyName(n int) string { return "k" + strconv.Itoa(n) }

func keyNumber(name string) (n int32) {
	for i := 1; i < len(name); i++ {
		n = n*10 + int32(name[i]-'0')
	}
	return n
}

// start plans the first check of a kind.
func (f *fleet) start(kind int32) {
	t, s := &f.config.Traffic[kind], &f.kinds[kind]
	s.gap = 1e9 / (t.PerSecond * float64(t.Keys))
	for _, r := range t.Rules {
		rule := &f.config.Rules[r]
		s.ops = append(s.ops, store.Op{
			Bucket: store.Bucket{Domain: domain, Rule: rule.ID}, Limit: &rule.Limit,
			Cost: t.Cost, Want: rule.MaxLease, Pods: 1, MaxCost: rule.MaxCost, Closed: rule.Closed,
		})
		s.terms = append(s.terms, rule.Terms)
		s.instead = append(s.instead, pod.Instead{Milli: rule.share()})
	}
	s.clock = f.gap(kind)
	f.heap.push(event{at: int64(s.clock), what: arrives, ref: kind})
}

// gap is the time to the next check of a kind.
func (f *fleet) gap(kind int32) float64 {
	if f.config.Traffic[kind].Even {
		return f.kinds[kind].gap
	}
	return f.kinds[kind].gap * f.traffic.ExpFloat64()
}

// arrive takes the check of the event on top of the heap and plans the next.
func (f *fleet) arrive() {
	kind := f.heap.events[0].ref
	if f.ended {
		f.heap.pop()
		return
	}
	t, s := &f.config.Traffic[kind], &f.kinds[kind]
	s.clock += f.gap(kind)
	f.heap.again(max(int64(s.clock), f.now))
	key, turn := 0, 0
	if t.Even {
		key, turn = int(s.count%int64(t.Keys)), int(s.count/int64(t.Keys))
		turn += key
	} else if t.Keys > 1 {
		key = f.traffic.IntN(t.Keys)
	}
	s.count++
	spread := t.Pinned
	if spread == 0 || spread > len(f.live) {
		spread = len(f.live)
	}
	if !t.Even {
		turn = f.traffic.IntN(spread)
	}
	at := turn % spread
	if t.Pinned > 0 {
		// Neighbouring keys start far apart, so that pods carry about the same.
		at = (at + key*7919) % len(f.live)
	}
	p, number := f.live[at], int32(t.FirstKey+key)
	f.offer(kind, number)
	if e := (event{at: f.now, what: delivers, pod: p, ref: kind, extra: number}); !f.defers(&e) {
		f.check(p, kind, number)
	}
}

// offer counts a check as offered, and asks the exact limiter what it would say.
func (f *fleet) offer(kind, key int32) {
	s, ms := &f.kinds[kind], f.nowMS()
	t := &f.config.Traffic[kind]
	ok := true
	for i := range s.ops {
		number := f.bucket(key, t.Rules[i])
		f.tally.buckets[number].offered += t.Cost
		var g store.Grant
		f.exact.ask(ms, &s.ops[i], &f.exact.states[number], &g)
		ok = ok && g.OK
	}
	if !ok {
		return
	}
	f.tally.exact++
	for i := range s.ops {
		f.exact.states[f.bucket(key, t.Rules[i])].Spend(ms, t.Cost)
	}
}

// bucket is the number of the bucket of a rule and a key.
func (f *fleet) bucket(key int32, rule int) int32 {
	return key*int32(len(f.config.Rules)) + int32(rule)
}

// number is the number of a bucket by its name.
func (f *fleet) number(b *store.Bucket) int32 {
	for i := range f.config.Rules {
		if f.config.Rules[i].ID == b.Rule {
			return f.bucket(keyNumber(b.Key), i)
		}
	}
	return -1 // not one of ours: nobody asks for it
}
