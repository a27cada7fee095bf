package algorithm_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/limit"
)

// four returns a limit of ten in an hour for each algorithm.
func four() []*limit.Limit {
	return []*limit.Limit{perSecond(10, 3600, 10), sliding(10, 3_600_000), fixed(10, 3_600_000), slidingLog(10, 3_600_000)}
}

func TestBack(t *testing.T) {
	for _, l := range four() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			s := algorithm.Fresh(l, 0)
			s.Spend(0, 2)
			s.Spend(0, 3)
			s.Back(4)
			equal(t, "left", s.Remaining(0), 9)
			s.Back(limit.MaxCost)
			equal(t, "left after more than was spent", s.Remaining(0), 10)
			equal(t, "room", s.Ask(0, 11).OK, false)
		})
	}
	t.Run("token_bucket beside leases", func(t *testing.T) {
		s := algorithm.State{Limit: perSecond(1, 1, 10), Bucket: algorithm.Bucket{Level: 1500, Out0: 6}}
		s.Back(9)
		equal(t, "left", s.Bucket.Level, 4000)
	})
}

func TestUndo(t *testing.T) {
	for _, l := range four() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			s := algorithm.Fresh(l, 0)
			first := s.Spend(0, 2)
			s.Spend(0, 3)
			equal(t, "undone", s.Undo(first, 2), true)
			equal(t, "left", s.Remaining(0), 7)
			if l.Algorithm == limit.TokenBucket {
				return
			}
			later := int64(3 * 3_600_000)
			s.Advance(l, later)
			s.Spend(later, 3)
			equal(t, "undone in a later window", s.Undo(first, 2), false)
			equal(t, "left in a later window", s.Remaining(later), 7)
		})
	}
	t.Run("sliding_log twice", func(t *testing.T) {
		s := algorithm.Fresh(slidingLog(10, 1000), 0)
		id := s.Spend(0, 2)
		s.Undo(id, 2)
		s.Spend(0, 2)
		equal(t, "undone", s.Undo(id, 2), false)
		equal(t, "left", s.Remaining(0), 8)
	})
}

func TestAdd(t *testing.T) {
	for _, c := range []struct {
		l           *limit.Limit
		spent, left int64
		retry       int64 // of cost 1
	}{
		{perSecond(10, 3600, 10), 10, 0, 360_000},
		{sliding(10, 3_600_000), 15, 0, 3_600_000 + 3_600_000 - 2_160_000},
		{fixed(10, 3_600_000), 15, 0, 3_600_000},
		{slidingLog(10, 3_600_000), 10, 0, 3_600_000},
	} {
		t.Run(c.l.Algorithm.String(), func(t *testing.T) {
			s := algorithm.Fresh(c.l, 0)
			_, spent := s.Add(0, 15)
			equal(t, "spent", spent, c.spent)
			equal(t, "left", s.Remaining(0), c.left)
			equal(t, "retry", s.Ask(0, 1).RetryMS, c.retry)
			for range 20 {
				s.Add(0, limit.MaxCost)
			}
			if got := s.Window.Cur; c.l.Algorithm == limit.SlidingWindow && got > limit.MaxExact/3_600_000 {
				t.Errorf("count %d no longer multiplies exactly", got)
			}
			equal(t, "passes", s.Ask(0, 1).OK, false)
		})
	}
	t.Run("token_bucket's receipt never exceeds what was taken", func(t *testing.T) {
		s := algorithm.State{Limit: perSecond(1, 1, 10), Bucket: algorithm.Bucket{Level: 1999}}
		_, spent := s.Add(0, 5)
		equal(t, "spent", spent, 1)
	})
}

func TestQueue(t *testing.T) {
	for _, l := range four() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			s := algorithm.Fresh(l, 0)
			id := s.Spend(0, 4)
			equal(t, "queue", s.Queue(0, 5, id), 5)
			equal(t, "queue beyond what is left", s.Queue(0, 5, id), 1)
			equal(t, "left", s.Remaining(0), 0)
		})
	}
	t.Run("sliding_log: one entry, one receipt", func(t *testing.T) {
		s := algorithm.Fresh(slidingLog(10, 1000), 0)
		id := s.Spend(0, 4)
		s.Queue(0, 5, id)
		s.Undo(id, 9)
		equal(t, "left", s.Remaining(0), 10)
	})
}

// TestTake_clockStepsBack: neither a small step nor a large one is a refill.
func TestTake_clockStepsBack(t *testing.T) {
	const hour, noon = 3_600_000, 12 * 3_600_000
	fromFirst := fixed(10, hour)
	fromFirst.Align = limit.AlignFirstRequest
	for _, c := range []struct {
		name    string
		l       *limit.Limit
		now     int64
		stored  bool // a denial there must be stored
		wantOK  int64
		retryAt int64 // real time at which cost 1 passes
	}{
		{"bucket, a little", perSecond(10, 3600, 10), noon - 1, true, 0, noon - 1 + 360_000},
		{"bucket, far", perSecond(10, 3600, 10), 5, true, 0, 5 + 360_000},
		{"fixed holds", fixed(10, hour), noon - hour, false, 0, noon + hour},
		{"fixed re-bases", fixed(10, hour), noon - hour - 1, true, 0, noon - hour},
		{"fixed from the first request re-bases", fromFirst, noon - hour - 1, true, 0, noon - 1},
		{"sliding holds", sliding(10, hour), noon - hour, false, 0, noon + hour + 360_000},
		{"sliding re-bases", sliding(10, hour), noon - hour - 1, true, 0, noon - hour + 360_000},
		{"log waits", slidingLog(10, hour), 5, false, 0, noon + hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rig{}
			r.take(c.l, noon, 10)
			s, dirty := r.now(c.l, c.now)
			equal(t, "to be stored", dirty, c.stored)
			a := s.Ask(c.now, 1)
			equal(t, "ok", a.OK, false)
			equal(t, "passes at", c.now+a.RetryMS, c.retryAt)
			r.take(c.l, c.now, 1)
			r.checkRetry(t, c.l, c.now, 1, a)
		})
	}
}

func TestTake_windowsByAlignment(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err) // the Go installation brings the zones
	}
	ms := func(text string) int64 {
		at, err := time.ParseInLocation(time.DateTime, text, berlin)
		if err != nil {
			t.Fatal(err)
		}
		return at.UnixMilli()
	}
	first := fixed(5, 60_000)
	first.Align = limit.AlignFirstRequest
	calendar := func(u limit.Unit) *limit.Limit {
		return &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 5, Align: limit.AlignCalendar, Calendar: limit.NewCalendar(u, berlin)}
	}
	for _, c := range []struct {
		name     string
		l        *limit.Limit
		now, end string
	}{
		{"clock", fixed(5, 3_600_000), "2026-10-01 10:15:00", "2026-10-01 11:00:00"},
		{"first request", first, "2026-10-01 10:15:07", "2026-10-01 10:16:07"},
		{"day of 25 hours", calendar(limit.Day), "2026-10-25 00:00:00", "2026-10-26 00:00:00"},
		{"week", calendar(limit.Week), "2026-10-01 10:15:00", "2026-10-05 00:00:00"},
		{"month", calendar(limit.Month), "2026-10-31 23:59:59", "2026-11-01 00:00:00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, now := rig{}, ms(c.now)
			a := r.take(c.l, now, 5)
			equal(t, "ends at", now+a.reset, ms(c.end))
			a = r.take(c.l, ms(c.end)-1, 1)
			equal(t, "ok before the end", a.OK, false)
			equal(t, "retry before the end", a.RetryMS, 1)
			equal(t, "ok at the end", r.take(c.l, ms(c.end), 5).OK, true)
		})
	}
	t.Run("first request: the next window starts when asked", func(t *testing.T) {
		r := rig{}
		r.take(first, 0, 5)
		equal(t, "end", r.take(first, 90_000, 5).reset, 60_000)
	})
}
