package algorithm_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

func name(b byte) [16]byte { return [16]byte{b} }

// reserving are limits of 100 tokens by which nothing comes back within an hour.
func reserving() []*limit.Limit {
	const long = 100 * limit.DayMS
	return []*limit.Limit{perSecond(1, 1_000_000, 100), sliding(100, long), fixed(100, long)}
}

// What is left is the limit less what is open and what was committed, whatever the
// order: nothing is won and nothing lost by a reservation.
func TestReserve_sums(t *testing.T) {
	for _, l := range reserving() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				const ttl = 10_000
				now := int64(1_800_000_000_000)
				s := algorithm.Fresh(l, now)
				open, ends, spent := map[byte]int64{}, map[byte]int64{}, int64(0)
				for range rapid.IntRange(1, 60).Draw(r, "ops") {
					now += rapid.Int64Range(0, 2000).Draw(r, "ms")
					s.Advance(l, now)
					for id, at := range ends {
						if at <= now {
							delete(open, id)
							delete(ends, id)
						}
					}
					id, cost := rapid.Byte().Draw(r, "id")%40+1, rapid.Int64Range(1, 6).Draw(r, "cost")
					_, was := open[id]
					switch rapid.IntRange(0, 2).Draw(r, "what") {
					case 0:
						if a, held := s.AskReserve(now, cost, name(id)); held == algorithm.HeldNow {
							if !a.OK || was {
								r.Fatalf("reserved %d, which was open: %v, ok %v", id, was, a.OK)
							}
							s.Reserve(now, cost, ttl, name(id))
							open[id], ends[id] = cost, now+ttl
						}
					case 1:
						if held := s.Commit(now, min(cost, open[id]), ttl, name(id)); was != (held == algorithm.HeldNow) {
							r.Fatalf("commit of %d, open %v, met %d", id, was, held)
						}
						spent += min(cost, open[id])
						delete(open, id)
						delete(ends, id)
					default:
						if held := s.Cancel(now, ttl, name(id)); was != (held == algorithm.HeldNow) {
							r.Fatalf("cancel of %d, open %v, met %d", id, was, held)
						}
						delete(open, id)
						delete(ends, id)
					}
					want := l.Full() - spent
					for _, n := range open {
						want -= n
					}
					if got := s.Remaining(now); got != want {
						r.Fatalf("%d left, want %d", got, want)
					}
				}
			})
		})
	}
}

// A bucket is kept for as long as a reservation in it, and is not full by then.
func TestReserve_life(t *testing.T) {
	const ttl, now = 3_600_000, int64(1_800_000_000_000)
	for _, l := range []*limit.Limit{perSecond(100, 1, 10), sliding(10, 1000), fixed(10, 1000)} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			s := algorithm.Fresh(l, now)
			s.Reserve(now, 1, ttl, name(1))
			if got := s.TTLMS(now); got < ttl {
				t.Errorf("kept for %d ms, want at least %d", got, ttl)
			}
			if s.Full(now + ttl - 1) {
				t.Error("it may be dropped while the reservation is open")
			}
			if !s.Full(now + 3*ttl) {
				t.Error("it may not be dropped after the reservation has ended")
			}
		})
	}
}

// Copies of a state share their reservations: none may change another's.
func TestReserve_copies(t *testing.T) {
	const now = int64(1_800_000_000_000)
	l := perSecond(1, 1000, 100)
	s := algorithm.Fresh(l, now)
	for i := range byte(5) {
		s.Reserve(now, 1, 10_000, name(i))
	}
	kept := s
	s.Commit(now, 1, 10_000, name(0))
	s.Unreserve(name(1))
	s.Reserve(now, 1, 10_000, name(9))
	other := kept
	other.Reserve(now, 1, 10_000, name(8))
	for i := range byte(5) {
		if held := kept.Cancel(now, 10_000, name(i)); held != algorithm.HeldNow {
			t.Errorf("reservation %d met %d in a copy", i, held)
		}
	}
}
