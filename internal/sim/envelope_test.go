package sim_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/limit"
)

type admitted struct{ atMS, tokens int64 }

func TestEnvelope(t *testing.T) {
	t.Parallel()
	bucket := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 200, Revision: 1}
	window := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, WindowMS: 100, Revision: 1}
	for _, tt := range []struct {
		name  string
		limit *limit.Limit
		in    []admitted
		want  int64
	}{
		{"the burst at once", bucket, []admitted{{0, 200}}, 0},
		{"a token more", bucket, []admitted{{0, 201}}, 1},
		{"the rate after it", bucket, []admitted{{0, 200}, {10, 1}, {20, 1}, {1020, 100}}, 0},
		{"a millisecond early", bucket, []admitted{{0, 200}, {9, 1}}, 0},
		{"two milliseconds early", bucket, []admitted{{0, 200}, {8, 1}}, 1},
		{"in another order", bucket, []admitted{{10, 1}, {0, 200}}, 0},
		{"too much over a long span, never at once", bucket, []admitted{{0, 150}, {100, 60}, {200, 25}}, 15},
		{"the worst span, not their sum", bucket, []admitted{{0, 203}, {10000, 205}}, 5},
		{"a window", window, []admitted{{0, 5}, {100, 5}}, 0},
		{"a window and one", window, []admitted{{0, 5}, {99, 1}}, 1},
	} {
		e := sim.NewEnvelope([]*limit.Limit{tt.limit}, 0, 20)
		for _, a := range tt.in {
			e.Admit(0, a.atMS, a.tokens)
		}
		e.Finish(20_000)
		if got := e.Above(0); got != tt.want {
			t.Errorf("%s: %d tokens above, want %d", tt.name, got, tt.want)
		}
	}
}

// TestEnvelope_allSpans compares it with what it stands for: every span is looked
// at by itself.
func TestEnvelope_allSpans(t *testing.T) {
	t.Parallel()
	l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 3, PeriodMS: 10, Burst: 7, Revision: 1}
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		e := sim.NewEnvelope([]*limit.Limit{l}, 0, 5)
		var list []admitted
		for now := int64(0); now < 200; now += rng.Int64N(8) {
			a := admitted{now, 1 + rng.Int64N(3)}
			list = append(list, a)
			e.Admit(0, a.atMS, a.tokens)
		}
		e.Finish(300)
		var want int64
		for i := range list {
			sum := int64(0)
			for _, a := range list[i:] {
				sum += a.tokens
				over := sum*l.PeriodMS - l.Burst*l.PeriodMS - l.Rate*(a.atMS-list[i].atMS+1)
				want = max(want, (over+l.PeriodMS-1)/l.PeriodMS)
			}
		}
		if got := e.Above(0); got != want {
			t.Fatalf("seed %d: %d tokens above, want %d: %v", seed, got, want, list)
		}
	}
}
