package rules

import (
	"slices"
	"time"

	"github.com/tallygate/tallygate/limit"
)

// written is an [Override] as a compiler keeps it. There may be 100,000, most of which
// say the same of many keys: that they share.
type written struct {
	key []string
	at  Position
	*terms
}

// terms are what an override says, beside of whom.
type terms struct {
	rule      string
	numbers   Numbers
	maxCost   int64
	expiresAt time.Time
	reason    string
	owner     string
}

// keep returns an override that shares nothing with o.
func (c *run) keep(o *Override) *written {
	t := terms{rule: o.Rule, numbers: o.Numbers, maxCost: o.MaxCost, expiresAt: o.ExpiresAt, reason: o.Reason, owner: o.Owner}
	shared := c.terms[t]
	if shared == nil {
		shared = &t
		c.terms[t] = shared
	}
	return &written{key: slices.Clone(o.Key), at: o.At, terms: shared}
}

// asWritten returns the override, nil for none.
func (w *written) asWritten() *Override {
	if w == nil {
		return nil
	}
	return &Override{
		Rule: w.rule, Key: w.key, Numbers: w.numbers, MaxCost: w.maxCost, ExpiresAt: w.expiresAt, Reason: w.reason, Owner: w.owner, At: w.at,
	}
}

// followShared is follow, after which keys with the same new numbers have one limit.
func (c *run) followShared(last *limit.Limit, slowMS int64, next *limit.Limit, revision int64) (*limit.Limit, int64) {
	lim, slowMS := c.follow(last, slowMS, next, revision)
	if lim == last {
		return lim, slowMS // pods know it by its pointer
	}
	shared := c.limits[*lim]
	if shared == nil {
		shared = lim
		c.limits[*lim] = lim
	}
	return shared, slowMS
}
