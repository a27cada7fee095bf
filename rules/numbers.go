package rules

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/tallygate/tallygate/limit"
)

// numbers checks the numbers of one algorithm and compiles them. It returns nil
// when they are faulty. The limit has no revision yet.
func (r *report) numbers(a limit.Algorithm, n Numbers) *limit.Limit {
	before := len(r.out)
	r.foreign(a, n)
	r.given(n)
	if len(r.out) > before {
		return nil
	}
	out := &limit.Limit{Algorithm: a}
	switch a {
	case limit.TokenBucket:
		r.bucket(n, out)
	case limit.SlidingWindow:
		r.slidingWindow(n, out)
	case limit.SlidingLog:
		r.need(a, "limit", n.Limit)
		if n.Limit > limit.MaxLogLimit {
			r.add("limit", num(n.Limit), num(n.Limit)+" is above "+num(limit.MaxLogLimit)+" for sliding_log, which keeps every admission",
				"lower it or use sliding_window")
		}
		r.need(a, "window_s", n.WindowS)
		out.Capacity, out.WindowMS = n.Limit, n.WindowS*1_000
	case limit.FixedWindow:
		r.fixedWindow(n, out)
	default:
		r.add("algorithm", "", "missing", "use one of token_bucket, sliding_window, sliding_log, fixed_window")
	}
	if len(r.out) > before {
		return nil
	}
	if r.exact(n, out); len(r.out) > before {
		return nil
	}
	return out
}

// field is one of the numbers, to treat all of them alike.
type field struct {
	name  string
	given bool
	// of lists the algorithms that have it.
	of []limit.Algorithm
}

func (n Numbers) fields() []field {
	bucket := []limit.Algorithm{limit.TokenBucket}
	fixed := []limit.Algorithm{limit.FixedWindow}
	window := []limit.Algorithm{limit.SlidingWindow, limit.SlidingLog, limit.FixedWindow}
	return []field{
		{"rate", n.Rate != 0, bucket},
		{"per_s", n.PerS != 0, bucket},
		{"burst", n.Burst != 0, bucket},
		{"limit", n.Limit != 0, window},
		{"window_s", n.WindowS != 0, window},
		{"window", n.Window != "", fixed},
		{"tz", n.TZ != "", fixed},
		{"align", n.Align != "", fixed},
		{"burst_factor", n.BurstFactorMilli != 0, []limit.Algorithm{limit.SlidingWindow}},
	}
}

// foreign refuses the numbers of another algorithm.
func (r *report) foreign(a limit.Algorithm, n Numbers) {
	if a == 0 {
		return // reported once, not for each number
	}
next:
	for _, f := range n.fields() {
		if !f.given {
			continue
		}
		for _, of := range f.of {
			if of == a {
				continue next
			}
		}
		r.add(f.name, "", "is not a field of "+a.String(), "remove it or use "+f.of[0].String())
	}
}

// given checks each number that is there against its own bounds.
func (r *report) given(n Numbers) {
	for _, f := range []struct {
		name   string
		v, max int64
	}{
		{"rate", n.Rate, limit.MaxNumber},
		{"per_s", n.PerS, maxPeriodS},
		{"burst", n.Burst, limit.MaxNumber},
		{"limit", n.Limit, limit.MaxNumber},
		{"window_s", n.WindowS, maxWindowS},
	} {
		if f.v != 0 {
			r.inRange(f.name, f.v, 1, f.max)
		}
	}
	if n.Window != "" {
		r.oneOf("window", n.Window, windows()...)
	}
	if n.Align != "" {
		r.oneOf("align", n.Align, aligns()...)
	}
	if v := n.BurstFactorMilli; v != 0 && (v < minBurstFactorMilli || v > maxBurstFactorMilli) {
		r.add("burst_factor", decimal(v), decimal(v)+" is not from 1 to 10", "change it")
	}
}

func (r *report) need(a limit.Algorithm, field string, v int64) bool {
	if v == 0 {
		r.add(field, "", "missing", a.String()+" needs it")
	}
	return v != 0
}

func (r *report) bucket(n Numbers, out *limit.Limit) {
	if !r.need(out.Algorithm, "rate", n.Rate) || !r.need(out.Algorithm, "burst", n.Burst) {
		return
	}
	out.Rate, out.Burst, out.PeriodMS = n.Rate, n.Burst, 1_000*max(n.PerS, 1)
	if most := limit.MaxExact / out.PeriodMS; n.Burst > most {
		r.add("burst", num(n.Burst), num(n.Burst)+" is above "+num(most)+" for this per_s (burst × per_s in ms is at most 2^53)",
			"lower burst or per_s")
		return
	}
	if full := timeToFullMS(out); full > limit.MaxWindowMS {
		r.add("burst", num(n.Burst), "takes "+num(full/1_000)+" s to fill, above "+num(maxWindowS),
			"lower burst or raise rate")
	}
}

func (r *report) slidingWindow(n Numbers, out *limit.Limit) {
	if !r.need(out.Algorithm, "limit", n.Limit) || !r.need(out.Algorithm, "window_s", n.WindowS) {
		return
	}
	if n.WindowS > maxSlideS {
		r.add("window_s", num(n.WindowS), num(n.WindowS)+" is above "+num(maxSlideS)+" for sliding_window",
			"shorten it or use fixed_window")
		return
	}
	out.WindowMS = n.WindowS * 1_000
	out.Capacity = n.Limit * max(n.BurstFactorMilli, minBurstFactorMilli) / 1_000
}

// exact refuses a sliding window whose capacity times its length would not be
// exact in a store: there it would be refused for each request.
func (r *report) exact(n Numbers, l *limit.Limit) {
	if l.Algorithm != limit.SlidingWindow {
		return
	}
	what := num(n.Limit)
	if l.Capacity != n.Limit {
		what = "limit × burst_factor of " + num(l.Capacity)
	}
	switch most := limit.MaxExact / max(l.WindowMS, 1); {
	case l.Capacity > limit.MaxNumber:
		r.add("limit", num(n.Limit), what+" is above "+num(limit.MaxNumber), "lower limit or burst_factor")
	case l.Capacity > most:
		r.add("limit", num(n.Limit), what+" is above "+num(most)+" for this window (times its length in ms it is at most 2^53)",
			"lower limit or shorten the window")
	}
}

func (r *report) fixedWindow(n Numbers, out *limit.Limit) {
	r.need(out.Algorithm, "limit", n.Limit)
	out.Capacity = n.Limit
	switch {
	case n.WindowS != 0 && n.Window != "":
		r.add("window", n.Window, "window_s and window are both given", "keep one")
	case n.Window != "":
		r.calendar(n, out)
		return
	case n.WindowS == 0:
		r.add("window_s", "", "missing", "give window_s, or window: day, week or month")
	}
	if n.TZ != "" {
		r.add("tz", n.TZ, "is only for window: day, week or month", "remove it")
	}
	out.WindowMS = n.WindowS * 1_000
	if n.Align == alignFirstRequest {
		out.Align = limit.AlignFirstRequest
	}
}

func (r *report) calendar(n Numbers, out *limit.Limit) {
	if n.Align == alignFirstRequest {
		r.add("align", n.Align, "a calendar window cannot start at its first request", "remove align or use window_s")
	}
	zone, err := time.LoadLocation(n.TZ)
	if err != nil || n.TZ == "Local" {
		r.add("tz", n.TZ, quote(n.TZ)+" is no known time zone", `write a name such as "Europe/Berlin" or "UTC"`)
		return
	}
	unit, _ := limit.ParseUnit(n.Window)
	out.Align, out.Calendar = limit.AlignCalendar, limit.NewCalendar(unit, zone)
}

// over returns n with every number of o that is given in place of its own.
func (n Numbers) over(o Numbers) Numbers {
	if o.Window != "" { // the other way to say how long replaces the first
		n.WindowS = 0
	}
	if o.WindowS != 0 {
		n.Window, n.TZ = "", ""
	}
	return Numbers{
		Rate: cmp.Or(o.Rate, n.Rate), PerS: cmp.Or(o.PerS, n.PerS), Burst: cmp.Or(o.Burst, n.Burst),
		Limit: cmp.Or(o.Limit, n.Limit), WindowS: cmp.Or(o.WindowS, n.WindowS),
		Window: cmp.Or(o.Window, n.Window), TZ: cmp.Or(o.TZ, n.TZ), Align: cmp.Or(o.Align, n.Align),
		BurstFactorMilli: cmp.Or(o.BurstFactorMilli, n.BurstFactorMilli),
	}
}

// timeToFullMS is how long an empty bucket takes to fill, or how long a window
// remembers.
func timeToFullMS(l *limit.Limit) int64 {
	if l.Algorithm == limit.TokenBucket {
		return (l.Burst*l.PeriodMS + l.Rate - 1) / l.Rate // at most 2^53 + 10^12
	}
	return l.LengthMS()
}

// slower reports whether a bucket that expired as full under a may be less than
// full under b: its tokens come back slower. A window is kept for longer than its
// counts matter, whatever its capacity, and a smaller burst is full sooner: there
// a missing bucket is an unused one.
func slower(a, b *limit.Limit) bool {
	return a.Algorithm == limit.TokenBucket && b.Algorithm == limit.TokenBucket &&
		less(b.Rate, a.PeriodMS, a.Rate, b.PeriodMS)
}

// less reports whether a·b < c·d: rates of 10^12 and periods of a month do not
// multiply in 64 bits.
func less(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

func algorithms() []string {
	return []string{"token_bucket", "sliding_window", "sliding_log", "fixed_window"}
}
func windows() []string { return []string{"day", "week", "month"} }
func aligns() []string  { return []string{alignClock, alignFirstRequest} }
