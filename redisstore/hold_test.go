package redisstore

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
		finding        finding
		limit          *limit.Limit
		closed         bool
		after          time.Duration
		refuses, stale bool
	}{
		"current":                             {current, hour, true, 0, false, false},
		"behind, closed":                      {behind, hour, true, 1999 * time.Millisecond, true, false},
		"behind, closed, after the hold":      {behind, hour, true, 2 * time.Second, false, false},
		"behind, open":                        {behind, hour, false, 0, false, false},
		"empty, closed":                       {empty, hour, true, 59 * time.Second, true, true},
		"empty, closed, after the hold":       {empty, hour, true, time.Minute, false, false},
		"empty, open":                         {empty, hour, false, 59 * time.Second, false, true},
		"empty, a bucket that fills, before":  {empty, quick, true, 4999 * time.Millisecond, true, true},
		"empty, a bucket that fills, after":   {empty, quick, true, 5 * time.Second, false, false},
		"empty, a day's quota, for as long …": {empty, day, true, 59 * time.Second, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold{behindFor: 2 * time.Second, emptyFor: time.Minute}
			h.note(second, row.finding)
			op, now := &store.Op{Limit: row.limit, Closed: row.closed}, second+int64(row.after)
			if got := h.refuses(now, op); got != row.refuses {
				t.Errorf("refuses = %v, want %v", got, row.refuses)
			}
			if got := h.stale(now, op); got != row.stale {
				t.Errorf("stale = %v, want %v", got, row.stale)
			}
		})
	}
}

func TestBeat_judge(t *testing.T) {
	known := beat{tag: "0", sent: 9, acked: 7, ackedNS: second}
	for name, row := range map[string]struct {
		beat  beat
		now   int64
		read  int64
		found bool
		want  finding
	}{
		"as acknowledged":       {known, 2 * second, 7, true, current},
		"sent and not answered": {known, 2 * second, 9, true, current},
		"older":                 {known, 2 * second, 6, true, behind},
		"missing":               {known, 2 * second, 0, false, empty},
		"missing since expired": {known, 3602 * second, 0, false, current},
		"never acknowledged":    {beat{tag: "0", sent: 3}, second, 0, false, current},
	} {
		if got := row.beat.judge(row.now, row.read, row.found); got != row.want {
			t.Errorf("%s: %d, want %d", name, got, row.want)
		}
	}
}
