package algorithm_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

func TestCheck(t *testing.T) {
	calendar := limit.NewCalendar(limit.Month, time.UTC)
	for _, c := range []struct {
		name string
		l    *limit.Limit
		ok   bool
	}{
		{"nothing", nil, false},
		{"no algorithm", &limit.Limit{Capacity: 1, WindowMS: 1}, false},
		{"unknown algorithm", &limit.Limit{Algorithm: 9, Capacity: 1, WindowMS: 1}, false},
		{"bucket", perSecond(1, 1, 1), true},
		{"bucket of rate 0 (OVF-10)", perSecond(0, 1, 1), false},
		{"bucket of period 0", perSecond(1, 0, 1), false},
		{"bucket of burst 0", perSecond(1, 1, 0), false},
		{"bucket of the longest period", perSecond(1, limit.MaxPeriodMS/1000, 1), true},
		{"bucket of a longer period", perSecond(1, limit.MaxPeriodMS/1000+1, 1), false},
		{"burst × period at 2^53", &limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.MaxNumber, PeriodMS: 1 << 20, Burst: 1 << 33}, true},
		{"burst × period above (OVF-07)", &limit.Limit{Algorithm: limit.TokenBucket, Rate: limit.MaxNumber, PeriodMS: 1 << 20, Burst: 1<<33 + 1}, false},
		{"full in 366 days", perSecond(1, 1, limit.MaxWindowMS/1000), true},
		{"full a second later (TTL-04)", perSecond(1, 1, limit.MaxWindowMS/1000+1), false},
		{"sliding", sliding(1, 1), true},
		{"sliding of 183 days", sliding(1, limit.MaxSlidingWindowMS), true},
		{"sliding longer", sliding(1, limit.MaxSlidingWindowMS+1), false},
		{"capacity × window above 2^53", sliding(limit.MaxNumber, limit.MaxSlidingWindowMS), false},
		{"fixed of capacity 0", fixed(0, 1), false},
		{"fixed of window 0", fixed(1, 0), false},
		{"fixed of 366 days", fixed(1, limit.MaxWindowMS), true},
		{"fixed longer", fixed(1, limit.MaxWindowMS+1), false},
		{"log of 10,000", slidingLog(10_000, 1000), true},
		{"log of more", slidingLog(10_001, 1000), false},
		{"calendar", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 1, Align: limit.AlignCalendar, Calendar: calendar}, true},
		{"calendar without one", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 1, Align: limit.AlignCalendar}, false},
		{"calendar with a length", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 1, WindowMS: 1, Align: limit.AlignCalendar, Calendar: calendar}, false},
		{"calendar by the clock", &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 1, WindowMS: 1, Calendar: calendar}, false},
		{"negative revision", at(-1, fixed(1, 1)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := algorithm.Check(c.l); (err == nil) != c.ok {
				t.Errorf("Check = %v, want ok %v", err, c.ok)
			}
		})
	}
}
