package pod

import (
	"github.com/tallygate/tallygate/store"
)

// Held returns the tokens of a bucket that the pod has paid for and not spent,
// those included that have ended and wait to go back. It is for figures.
func (p *Pod) Held(name store.Bucket) (tokens int64) {
	b, mask := p.lockOne(name)
	defer p.buckets.Unlock(mask)
	if b == nil {
		return 0
	}
	for i, back := range b.leases.back {
		tokens += int64(b.leases.left[i]) + int64(back)
	}
	return tokens
}
