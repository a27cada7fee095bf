package admin

import (
	"context"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// maxPaced bounds the tokens and addresses whose pace is known; beyond it new
// ones share a bucket.
const maxPaced = 10_000

// pace is the API's own limit: Tallygate's, in this process.
type pace struct {
	store *store.MemoryStore
	limit limit.Limit
}

func newPace(rate, burst int64, cfg store.MemoryConfig) *pace {
	return &pace{
		store: store.NewMemoryStore(cfg),
		limit: limit.Limit{Algorithm: limit.TokenBucket, Rate: rate, PeriodMS: 1_000, Burst: burst, Revision: 2},
	}
}

// take spends one request of who asks. Where it is not there it returns how long
// until it is.
func (p *pace) take(ctx context.Context, who string) (ok bool, wait time.Duration) {
	ops := [1]store.Op{{Bucket: store.Bucket{Domain: "admin", Rule: "pace", Key: who}, Limit: &p.limit, How: store.Take, Cost: 1}}
	grants, err := p.store.Take(ctx, ops[:])
	if err != nil {
		return true, 0 // the caller has gone; nobody waits for the answer
	}
	return grants[0].OK, time.Duration(grants[0].RetryMS) * time.Millisecond
}
