package store

import (
	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// memoryBucket is one bucket in the table: 48 bytes for any algorithm. Numbers
// are kept by reference; all buckets of a rule share them.
type memoryBucket struct {
	limit *limit.Limit // nil while a call has only reserved the place
	// n is level and time of a token bucket; start, end, previous and current
	// count of a window.
	n   [4]int64
	log *algorithm.Log // of a sliding log, else nil
}

// load unpacks the state. Lease accounts stay zero: nothing is leased here.
func (b *memoryBucket) load(s *algorithm.State) {
	s.Limit = b.limit
	switch b.limit.Algorithm {
	case limit.TokenBucket:
		s.Bucket = algorithm.Bucket{Level: b.n[0], TS: b.n[1]}
	case limit.SlidingWindow, limit.FixedWindow:
		s.Window = algorithm.Window{Start: b.n[0], End: b.n[1], Prev: b.n[2], Cur: b.n[3]}
	case limit.SlidingLog:
		s.Log = *b.log
	}
}

// save packs the state.
func (b *memoryBucket) save(s *algorithm.State) {
	b.limit = s.Limit
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		b.n, b.log = [4]int64{s.Bucket.Level, s.Bucket.TS}, nil
	case limit.SlidingWindow, limit.FixedWindow:
		b.n, b.log = [4]int64{s.Window.Start, s.Window.End, s.Window.Prev, s.Window.Cur}, nil
	case limit.SlidingLog:
		if b.log == nil {
			b.log = new(algorithm.Log)
		}
		*b.log = s.Log
	}
}

// full reports whether the bucket can be dropped and nobody gains a token.
func (b *memoryBucket) full(now int64) bool {
	var s algorithm.State
	b.load(&s)
	return s.Full(now)
}
