package sim

import (
	"time"

	"github.com/tallygate/tallygate/store"
)

// sampleEvery is how often tokens are counted: a time that has no common measure
// with ticks and generations, so that it meets all of their phases.
const sampleEvery = 23 * time.Millisecond

// maxSampled bounds pods × buckets looked at in one sample; of more buckets, some
// evenly chosen ones stand for all.
const maxSampled = 500

// tally is what is counted on the way.
type tally struct {
	outcomes [outcomes]int64
	exact    int64 // checks that an exact limiter would have let pass
	hash     uint64

	calls     [forNobody + 1]int64
	callsMost int32 // of one pod in one whole second
	openMost  int32 // calls under way for one pod and bucket set
	stranded  int64

	waits   [waitSlots + 1]int64 // checks that the store was asked for, by 0.1 ms
	waitSum int64
	waitMax int64

	buckets []bucketTally
	sampled []int32 // buckets that samples look at
	rules   []ruleTally
	shards  []shardTally
}

// bucketTally is the tokens of one bucket.
type bucketTally struct {
	offered, admitted int64
	// fallback is what of it was admitted without the store, told what of that the
	// store heard of, and charged what it could still take.
	fallback, told, charged int64
}

// shardTally is what happened at one shard.
type shardTally struct {
	// fallback are the checks that a fallback answered, open those answered without
	// the store and closed those refused since it did not answer.
	fallback, open, closed int64
	openings               int64 // of breakers
}

// ruleTally is the sampled tokens of one rule's buckets.
type ruleTally struct {
	samples          int64
	burst            int64 // of the sampled buckets
	outSum, outMax   int64
	heldSum, heldMax int64
	ops              int64 // in calls of the store
	out, held        int64 // in the sample being taken
}

// waitSlots and waitSlot make a histogram of up to 10 ms.
const (
	waitSlots = 100
	waitSlot  = int64(100 * time.Microsecond)
)

func newTally(c *Config, buckets int) tally {
	t := tally{hash: 14695981039346656037, buckets: make([]bucketTally, buckets), rules: make([]ruleTally, len(c.Rules)), shards: make([]shardTally, c.shards())}
	keys := buckets / len(c.Rules)
	used := make([]bool, buckets)
	for i := range c.Traffic {
		for _, r := range c.Traffic[i].Rules {
			for k := range c.Traffic[i].Keys {
				used[(c.Traffic[i].FirstKey+k)*len(c.Rules)+r] = true
			}
		}
	}
	per := max(1, maxSampled/(len(c.Rules)*c.Pods))
	for r := range c.Rules {
		var all []int32
		for k := range keys {
			if b := k*len(c.Rules) + r; used[b] {
				all = append(all, int32(b))
			}
		}
		n := min(per, len(all))
		for i := range n {
			t.sampled = append(t.sampled, all[i*len(all)/n])
			t.rules[r].burst += c.Rules[r].Limit.Full()
		}
	}
	return t
}

// trace adds a word to the hash of all decisions: FNV-1a, on words.
func (t *tally) trace(word uint64) {
	t.hash = (t.hash ^ word) * 1099511628211
	t.hash ^= t.hash >> 29
}

// waited counts how long a check waited for the store.
func (t *tally) waited(ns int64) {
	t.waits[min(ns/waitSlot, waitSlots)]++
	t.waitSum += ns
	t.waitMax = max(t.waitMax, ns)
}

// sample counts the tokens out, and those that pods hold.
func (f *fleet) sample() {
	t, ms := &f.tally, f.nowMS()
	if f.ended {
		return
	}
	f.heap.push(event{at: f.now + int64(sampleEvery), what: samples})
	for i := range t.rules {
		t.rules[i].out, t.rules[i].held = 0, 0
	}
	for _, number := range t.sampled {
		r := int(number) % len(t.rules)
		rule := &t.rules[r]
		rule.out += f.store.out(ms, number)
		name := store.Bucket{Domain: domain, Rule: f.config.Rules[r].ID, Key: f.keys[int(number)/len(t.rules)]}
		for p := range f.pods {
			if m := &f.pods[p]; !m.crashed && !m.drained {
				rule.held += m.pod.Held(name)
			}
		}
	}
	for i := range t.rules {
		t.rules[i].sampled()
	}
}

func (r *ruleTally) sampled() {
	r.samples++
	r.outSum += r.out
	r.outMax = max(r.outMax, r.out)
	r.heldSum += r.held
	r.heldMax = max(r.heldMax, r.held)
}

// second ends a second: a pod's calls are counted by whole ones.
func (f *fleet) second() {
	for i := range f.pods {
		f.tally.callsMost = max(f.tally.callsMost, f.pods[i].calls)
		f.pods[i].calls = 0
	}
	if !f.ended {
		f.heap.push(event{at: f.now + int64(time.Second), what: seconds})
	}
}
