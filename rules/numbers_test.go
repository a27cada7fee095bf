package rules_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
)

// TestWhatIsAcceptedCanBeCounted draws numbers around every bound: what a rule may
// say, the algorithms must accept, or each request would end in an error.
func TestWhatIsAcceptedCanBeCounted(t *testing.T) {
	t.Parallel()
	large := rapid.OneOf(
		rapid.Int64Range(1, 20),
		rapid.SampledFrom([]int64{
			3_600, 86_400, 2_678_400, 15_811_200, 15_811_201, 31_622_400, 3_257_812, 3_257_813, 10_000, 10_001, 3_362_902, 3_362_903,
			limit.MaxNumber, limit.MaxNumber + 1,
		}),
		rapid.Custom(func(t *rapid.T) int64 { return 1 << rapid.IntRange(0, 41).Draw(t, "power") }),
	)
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		r := rules.Rule{ID: "r", CoversAll: true, Identity: []string{"k"}}
		r.Algorithm = limit.Algorithm(rapid.IntRange(1, 4).Draw(t, "algorithm"))
		switch r.Algorithm {
		case limit.TokenBucket:
			r.Rate, r.PerS, r.Burst = large.Draw(t, "rate"), large.Draw(t, "per_s"), large.Draw(t, "burst")
		case limit.SlidingWindow:
			r.Limit, r.WindowS = large.Draw(t, "limit"), large.Draw(t, "window_s")
			r.BurstFactorMilli = rapid.Int64Range(1_000, 10_000).Draw(t, "factor")
		case limit.SlidingLog:
			r.Limit, r.WindowS = large.Draw(t, "limit"), large.Draw(t, "window_s")
		case limit.FixedWindow:
			r.Limit = large.Draw(t, "limit")
			if rapid.Bool().Draw(t, "calendar") {
				r.Window = rapid.SampledFrom([]string{"day", "week", "month"}).Draw(t, "window")
			} else {
				r.WindowS = large.Draw(t, "window_s")
			}
		}
		s, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{r}}, 1, start)
		if problems.Err() != nil {
			return
		}
		accepted++
		lim, _ := s.Rule("r").Effective("any", start)
		if err := algorithm.Check(lim); err != nil {
			t.Fatalf("%+v is accepted, and %s cannot be counted: %v", r.Numbers, lim, err)
		}
	})
	if accepted == 0 {
		t.Error("no numbers were accepted")
	}
}
