package breaker

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

func TestHold(t *testing.T) {
	quick := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 10, PeriodMS: 1000, Burst: 50} // full in 5 s
	hour := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, WindowMS: 3_600_000}
	day := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, Calendar: &limit.Calendar{}}
	for name, row := range map[string]struct {
		finding        Finding
		limit          *limit.Limit
		closed         bool
		after          time.Duration
		refuses, stale bool
	}{
		"current":                             {Current, hour, true, 0, false, false},
		"behind, closed":                      {Behind, hour, true, 1999 * time.Millisecond, true, false},
		"behind, closed, after the hold":      {Behind, hour, true, 2 * time.Second, false, false},
		"behind, open":                        {Behind, hour, false, 0, false, false},
		"empty, closed":                       {Empty, hour, true, 59 * time.Second, true, true},
		"empty, closed, after the hold":       {Empty, hour, true, time.Minute, false, false},
		"empty, open":                         {Empty, hour, false, 59 * time.Second, false, true},
		"empty, a bucket that fills, before":  {Empty, quick, true, 4999 * time.Millisecond, true, true},
		"empty, a bucket that fills, after":   {Empty, quick, true, 5 * time.Second, false, false},
		"empty, a day's quota, for as long …": {Empty, day, true, 59 * time.Second, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := Hold{BehindFor: 2 * time.Second, EmptyFor: time.Minute}
			h.Note(second, row.finding)
			op, now := &store.Op{Limit: row.limit, Closed: row.closed}, second+int64(row.after)
			if got := h.Refuses(now, op); got != row.refuses {
				t.Errorf("refuses = %v, want %v", got, row.refuses)
			}
			if got := h.Stale(now, op); got != row.stale {
				t.Errorf("stale = %v, want %v", got, row.stale)
			}
		})
	}
}
