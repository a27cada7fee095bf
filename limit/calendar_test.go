package limit_test

import (
	"testing"
	"time"
	_ "time/tzdata" // small machines have no zones

	"github.com/tallygate/tallygate/limit"
)

// TestCalendar_changes: around every change of the clocks, also those that skip
// midnight, repeat it or skip a whole day, each window holds the time it was
// asked for, and the next one starts where it ends.
func TestCalendar_changes(t *testing.T) {
	for _, name := range []string{
		"America/Havana", "Atlantic/Azores", // 1:00 becomes 0:00: midnight comes twice
		"Africa/Cairo", "Asia/Beirut", // 0:00 becomes 23:00, and 1:00
		"America/St_Johns",  // until 2011 0:01 became 23:01
		"America/Sao_Paulo", // until 2018 0:00 became 1:00
		"Pacific/Apia",      // skipped 30 December 2011
		"Antarctica/Vostok", "Australia/Lord_Howe", "Europe/Berlin", "UTC",
	} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			// What comes later is no table but a rule, whose bounds time gets wrong.
			for at := time.Date(2037, 1, 1, 0, 0, 0, 0, zone); at.Year() < 2045; at = at.Add(11 * time.Hour) {
				holds(t, limit.NewCalendar(limit.Day, zone), at.UnixMilli())
			}
			change := time.Date(1995, 1, 1, 0, 0, 0, 0, zone)
			for {
				_, next := change.ZoneBounds()
				if next.IsZero() || next.Year() > 2036 {
					return
				}
				change = next
				for _, unit := range []limit.Unit{limit.Day, limit.Week, limit.Month} {
					calendar := limit.NewCalendar(unit, zone)
					for minutes := -26 * 60; minutes <= 26*60; minutes += 15 {
						holds(t, calendar, change.Add(time.Duration(minutes)*time.Minute).UnixMilli())
						holds(t, calendar, change.Add(time.Duration(minutes)*time.Minute).UnixMilli()-1)
					}
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

// holds fails unless the windows around now are in order and next to each other.
func holds(t *testing.T, c *limit.Calendar, now int64) {
	t.Helper()
	start, end := c.At(now)
	edges := c.Around(now)
	next, _ := c.At(end)
	if start > now || now >= end || next != end || edges[0] >= start || edges[1] != start || edges[2] != end || edges[3] <= end {
		t.Errorf("%s at %s: [%d, %d), around %v, next at %d", c, time.UnixMilli(now).UTC(), start, end, edges, next)
	}
}

// TestCalendar_windows: what a window is in plain cases.
func TestCalendar_windows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		unit            limit.Unit
		now, start, end string
	}{
		{limit.Day, "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"}, // 23 hours
		{limit.Day, "2026-10-25T02:30:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"}, // 25 hours
		{limit.Week, "2026-11-01T23:59:59+01:00", "2026-10-26T00:00:00+01:00", "2026-11-02T00:00:00+01:00"},
		{limit.Month, "2026-12-31T23:59:59+01:00", "2026-12-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"},
		{limit.Month, "2028-02-29T00:00:00+01:00", "2028-02-01T00:00:00+01:00", "2028-03-01T00:00:00+01:00"},
	} {
		ms := func(text string) int64 {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return at.UnixMilli()
		}
		start, end := limit.NewCalendar(c.unit, berlin).At(ms(c.now))
		if start != ms(c.start) || end != ms(c.end) {
			t.Errorf("%s at %s: [%s, %s), want [%s, %s)", c.unit, c.now, time.UnixMilli(start).In(berlin), time.UnixMilli(end).In(berlin), c.start, c.end)
		}
	}
}
