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
	n [4]int64
	// more is what few buckets have: nil without.
	more *memoryMore
}

// memoryMore is the log of a bucket, or its reservations.
type memoryMore struct {
	log          algorithm.Log
	reservations []algorithm.Reservation
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
		s.Log = b.more.log
		return
	}
	if b.more != nil {
		s.Reservations = b.more.reservations
	}
}

// save packs the state.
func (b *memoryBucket) save(s *algorithm.State) {
	b.limit = s.Limit
	switch s.Limit.Algorithm {
	case limit.TokenBucket:
		b.n = [4]int64{s.Bucket.Level, s.Bucket.TS}
	case limit.SlidingWindow, limit.FixedWindow:
		b.n = [4]int64{s.Window.Start, s.Window.End, s.Window.Prev, s.Window.Cur}
	case limit.SlidingLog:
		if b.more == nil {
			b.more = new(memoryMore)
		}
		b.more.log = s.Log
		return
	}
	b.more = nil
	if len(s.Reservations) > 0 {
		b.more = &memoryMore{reservations: s.Reservations}
	}
}

// full reports whether the bucket can be dropped and nobody gains a token.
func (b *memoryBucket) full(now int64) bool {
	var s algorithm.State
	b.load(&s)
	return s.Full(now)
}
