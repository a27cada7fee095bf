package wire

import (
	"context"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Copy is all rows of a reader, for who looks through them again and again: from the
// first question on they are in memory, and each question asks what changed since. It
// is safe for concurrent use.
type Copy struct {
	// Reader is asked. Required.
	Reader rulestore.Reader
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu       sync.Mutex // guards what follows
	set      rulestore.Set
	compared time.Time // with everything; zero before the first question
}

var _ rulestore.Reader = (*Copy)(nil)

// Whole returns everything as it is now, which is not to be changed.
func (c *Copy) Whole(ctx context.Context) (rulestore.Set, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.Now != nil {
		now = c.Now()
	}
	if !c.compared.IsZero() && now.Sub(c.compared) < rulestore.WholeEvery {
		changes, err := c.Reader.Since(ctx, c.set.Revision)
		if err != nil {
			return rulestore.Set{}, err
		}
		if next, ok := follow(c.set, changes); ok {
			if changes.Hash != "" {
				c.compared = now
			}
			c.set = next
			return next, nil
		}
	}
	set, err := c.Reader.Whole(ctx)
	if err == nil {
		c.set, c.compared = set, now
	}
	return set, err
}

// follow returns what changes make of a set, unless the database is an older one than
// before, or they do not tell all.
func follow(set rulestore.Set, changes rulestore.Changes) (rulestore.Set, bool) {
	switch {
	case changes.Revision < set.Revision || changes.Forgotten:
		return set, false
	case len(changes.Rules)+len(changes.Overrides) > 0:
		set = Merge(set, changes)
	default:
		set.Revision, set.Now = changes.Revision, changes.Now
	}
	return set, changes.Hash == "" || changes.Hash == set.Hash
}

// Since implements rulestore.Reader.
func (c *Copy) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	return c.Reader.Since(ctx, revision)
}
