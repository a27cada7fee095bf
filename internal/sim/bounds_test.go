package sim_test

import (
	"testing"

	"github.com/tallygate/tallygate/internal/sim"
	"github.com/tallygate/tallygate/limit"
)

// What fallbacks may admit is what docs/failure-modes.md says.
func TestFallbackLimit(t *testing.T) {
	t.Parallel()
	slow := bucketRule("slow", 4, 8, 1)
	slow.Limit.PeriodMS = 10_000
	closed := bucketRule("closed", 100, 200, 1)
	closed.Closed, closed.AllowanceMilli = true, 100
	window := sim.Rule{ID: "window", MaxCost: 1, Limit: limit.Limit{Algorithm: limit.FixedWindow, Capacity: 600, WindowMS: 60_000}}
	for _, tt := range []struct {
		name         string
		rule         sim.Rule
		lived, least int64
		burst        int64
		rate         int64 // in a period of the rule's, or its window
	}{
		{"twice", bucketRule("open", 100, 200, 1), 50, 50, 400, 200},
		{"each pod a request at least", slow, 150, 150, 150, 8},
		{"an allowance", closed, 4, 4, 20, 10},
		{"a second of a window", window, 5, 5, 20, 1200},
		{"a fleet that grew from 2 to 3", bucketRule("grown", 100, 200, 1), 3, 2, 600, 300},
	} {
		got := sim.FallbackLimit(&tt.rule, tt.lived, tt.least)
		period := tt.rule.Limit.PeriodMS
		if tt.rule.Limit.Algorithm != limit.TokenBucket {
			period = tt.rule.Limit.WindowMS
		}
		if got.Burst != tt.burst || got.Rate*period != tt.rate*got.PeriodMS {
			t.Errorf("%s: holds %d and gets %d in %d ms, want %d and %d in %d ms", tt.name, got.Burst, got.Rate, got.PeriodMS, tt.burst, tt.rate, period)
		}
	}
}
