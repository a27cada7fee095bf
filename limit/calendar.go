package limit

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Unit is the length of a calendar window.
type Unit uint8

// The calendar's units. A week starts on Monday.
const (
	Day Unit = 1 + iota
	Week
	Month
)

// String returns the name used in rules: "day", "week" or "month".
func (u Unit) String() string {
	switch u {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	default:
		return fmt.Sprintf("unit(%d)", uint8(u))
	}
}

// ParseUnit returns the unit of that name, and whether there is one.
func ParseUnit(name string) (Unit, bool) {
	for _, u := range []Unit{Day, Week, Month} {
		if u.String() == name {
			return u, true
		}
	}
	return 0, false
}

// Calendar places windows by a calendar: from local midnight of one day, Monday
// or first of the month to the next. It is immutable.
type Calendar struct {
	unit Unit
	zone *time.Location
	id   uint32
}

// NewCalendar returns the calendar of that unit in that zone.
func NewCalendar(unit Unit, zone *time.Location) *Calendar {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%s", unit, zone)
	return &Calendar{unit: unit, zone: zone, id: max(h.Sum32(), 1)}
}

// ID returns a number that differs between calendars (32 bits of a hash of unit
// and zone) and is 0 for none. Stores keep it to see that a calendar changed.
func (c *Calendar) ID() uint32 {
	if c == nil {
		return 0
	}
	return c.id
}

// String returns the unit and zone, such as "day in Europe/Berlin".
func (c *Calendar) String() string { return fmt.Sprintf("%s in %s", c.unit, c.zone) }

// Unit returns the length of the windows.
func (c *Calendar) Unit() Unit { return c.unit }

// At returns the window [startMS, endMS) that holds nowMS, in milliseconds of
// the UTC epoch. Days of 23 and 25 hours and midnights that a clock change
// skips are what the zone says they are. A midnight that comes twice starts its
// day at the first: days follow each other without gap or overlap.
func (c *Calendar) At(nowMS int64) (startMS, endMS int64) {
	y, m, d := time.UnixMilli(nowMS).In(c.zone).Date()
	startMS, endMS = c.window(y, m, d)
	if nowMS >= endMS { // the clock went back over midnight, into a day that had ended
		return c.window(y, m, d+1)
	}
	return startMS, endMS
}

// window returns the window that holds a local day.
func (c *Calendar) window(y int, m time.Month, d int) (startMS, endMS int64) {
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	y, m, d = day.Date()
	switch c.unit {
	case Week:
		d -= int(day.Weekday()+6) % 7
		return c.midnight(y, m, d), c.midnight(y, m, d+7)
	case Month:
		return c.midnight(y, m, 1), c.midnight(y, m+1, 1)
	case Day:
		return c.midnight(y, m, d), c.midnight(y, m, d+1)
	default:
		panic("limit: calendar without a unit")
	}
}

// Around returns four edges that bound the windows before, at and after nowMS:
// [e0,e1), [e1,e2) and [e2,e3), e1 ≤ nowMS < e2.
func (c *Calendar) Around(nowMS int64) [4]int64 {
	start, end := c.At(nowMS)
	before, _ := c.At(start - 1)
	_, after := c.At(end)
	return [4]int64{before, start, end, after}
}

// midnight returns the first instant of a local day: when the zone's clocks
// first show it. Where a change skips midnight that is the change itself;
// time.Date might choose the day before, or the second of two midnights.
func (c *Calendar) midnight(y int, m time.Month, d int) int64 {
	shown := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix()
	// No zone is a day ahead or behind: one change may lie between.
	before, after := c.offset(shown-dayS), c.offset(shown+dayS)
	first, second := shown-before, shown-after
	switch {
	case c.offset(first) == before:
		return first * 1000
	case c.offset(second) == after:
		return second * 1000
	}
	for first-second > 1 { // the change is after second and not after first
		if middle := second + (first-second)/2; c.offset(middle) == before {
			second = middle
		} else {
			first = middle
		}
	}
	return first * 1000
}

const dayS = 86_400

// offset returns how many seconds the zone is ahead of UTC.
func (c *Calendar) offset(unix int64) int64 {
	_, offset := time.Unix(unix, 0).In(c.zone).Zone()
	return int64(offset)
}
