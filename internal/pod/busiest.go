package pod

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/keyed"
	"github.com/tallygate/tallygate/store"
)

// Rate is how fast a pod spends on a bucket.
type Rate struct {
	Bucket    store.Bucket
	PerSecond float64
}

// Busiest returns the buckets the pod spends most on, of those that want says yes to,
// the busiest first, at most n: by what it spent in the current demandSpan and the
// three before. It looks at every bucket, one shard's lock held at a time.
func (p *Pod) Busiest(now int64, n int, want func(store.Bucket) bool) []Rate {
	var list []Rate
	p.buckets.Each(func(name keyed.Name, b *bucket) {
		rate := b.perSecond(now)
		if rate == 0 || !want(store.Bucket(name)) {
			return
		}
		name.Key, name.Rule, name.Domain = strings.Clone(name.Key), strings.Clone(name.Rule), strings.Clone(name.Domain)
		if list = append(list, Rate{store.Bucket(name), rate}); len(list) >= 2*n+64 {
			list = busiest(list, n)
		}
	})
	return busiest(list, n)
}

// Busiest is Pod.Busiest now.
func (r *Runner) Busiest(n int, want func(store.Bucket) bool) []Rate {
	return r.pod.Busiest(r.now(), n, want)
}

// busiest sorts a list and cuts it to n.
func busiest(list []Rate, n int) []Rate {
	slices.SortFunc(list, func(a, b Rate) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(a.Bucket.Rule, b.Bucket.Rule), cmp.Compare(a.Bucket.Key, b.Bucket.Key))
	})
	return list[:min(n, len(list))]
}

// perSecond is what was spent in the last second or so, by the second. It changes
// nothing.
func (b *bucket) perSecond(now int64) float64 {
	span := int64(demandSpan)
	slots := int(now/span) - int(b.demand.slot)
	if slots < 0 || slots > len(b.earlier) {
		return 0
	}
	tokens := int64(b.demand.tokens)
	for _, n := range b.earlier[:len(b.earlier)-slots] {
		tokens += int64(n)
	}
	looked := time.Duration(int64(len(b.earlier))*span + now%span)
	return float64(tokens) / looked.Seconds()
}
