package rules

import "github.com/tallygate/tallygate/limit"

// Bounds of a rule's fields. Those of its numbers that follow from arithmetic
// stand in package limit.
const (
	// MaxKeyBytes bounds an encoded key: it goes into store keys.
	MaxKeyBytes = 4 << 10
	// MaxMatch bounds the attributes of match: each is looked up for each request.
	MaxMatch = 16
	// MaxIdentity bounds the names of identity.
	MaxIdentity = 4
	// MaxSupersedes bounds the ids a rule supersedes.
	MaxSupersedes = 1_000
	// MaxClosedAllow bounds the keys that pass while the store does not answer.
	MaxClosedAllow = 1_000
	// MaxReplicas bounds the replicas that a spend waits for.
	MaxReplicas = 5
	// MaxIDBytes bounds ids and domains, which go into store keys and metrics.
	MaxIDBytes = 128
	// MaxNameBytes bounds the name of an attribute.
	MaxNameBytes = 128
	// MaxTextBytes bounds description, owner, reason and one match value.
	MaxTextBytes = 4 << 10
	// MaxPatterns bounds the overrides of one rule that stand for many keys: a key is
	// compared with those that begin or end as it does.
	MaxPatterns = 1_000
	// MaxNewKeysPerS bounds max_new_keys_per_s.
	MaxNewKeysPerS = 1_000_000_000
	// MaxTombstones bounds what a snapshot remembers of removed overrides and
	// resets of one rule; beyond it the rule itself gets a new revision, which says the same.
	MaxTombstones = 10_000

	minBurstFactorMilli = 1_000
	maxBurstFactorMilli = 10_000

	maxPeriodS = limit.MaxPeriodMS / 1_000
	maxWindowS = limit.MaxWindowMS / 1_000
	maxSlideS  = limit.MaxSlidingWindowMS / 1_000
)

// The words a rules file may use, as they stand there.
const (
	alignClock        = "clock"
	alignFirstRequest = "first_request"
)
