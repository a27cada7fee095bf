package store

import "time"

// Health is what a store that others run knows of its servers and of itself.
type Health struct {
	// Shards are the primaries, by address.
	Shards []ShardHealth
	// LostUndos is how many buckets stayed spent for a request that another slot
	// denied, since their undo could not be delivered.
	LostUndos int64
}

// ShardHealth is one primary. Counts only grow, from when this pod first saw it.
type ShardHealth struct {
	// Shard is its address, as StoreError.Shard names it.
	Shard string
	// Down is for how long it has not been asked since it did not answer; 0 while it
	// is.
	Down time.Duration
	// Timeouts are the calls without an answer in time, Failures those and all others
	// that count against the shard; Opened is how often it was given up on.
	Timeouts, Failures, Opened int64
	// Behind is how often it was found to have lost the last spends, Empty all of
	// them.
	Behind, Empty int64
	// UsedBytes of MaxBytes of memory are used; MaxBytes is 0 where nothing bounds it
	// but the machine. MemoryKnown is false where that may not be read.
	UsedBytes, MaxBytes int64
	MemoryKnown         bool
}

// A Healther is a Store that knows of its health. It is safe for concurrent use.
type Healther interface {
	Health() Health
}
