package rules

import (
	"time"

	"github.com/tallygate/tallygate/limit"
)

// Bounds and defaults of how a pod counts.
const (
	maxMaxLease     = 1_000_000
	defaultMaxLease = 1_000

	minSyncMS     = 20
	maxSyncMS     = 100
	defaultSyncMS = 50

	minTimesMilli     = 1
	maxTimesMilli     = 1_000_000
	defaultTimesMilli = 1_000
)

// countingField reads how a pod may answer for the rule.
func (d *decoder) countingField(r *Rule, m member) bool {
	switch m.name {
	case "counting":
		r.Counting = Counting(d.word(m, countings()))
	case "max_lease":
		r.MaxLease = d.whole(m, 1, maxMaxLease)
	case "sync_ms":
		r.SyncMS = d.whole(m, minSyncMS, maxSyncMS)
	case "pre_limit":
		r.PreLimit = d.preLimit(m)
	default:
		return d.closedField(r, m)
	}
	return true
}

// preLimit reads "off", or {"of":"limit","times":1}.
func (d *decoder) preLimit(m member) (p PreLimit) {
	if m.raw[0] == '"' {
		p.Of = d.word(m, []string{OfNone})
		return p
	}
	p = PreLimit{Of: OfLimit, TimesMilli: defaultTimesMilli}
	for _, f := range d.object(m) {
		switch f.name {
		case "pre_limit.of":
			p.Of = d.word(f, []string{OfLimit, OfFairShare})
		case "pre_limit.times":
			p.TimesMilli = d.milli(f, minTimesMilli, maxTimesMilli)
		default:
			d.unknown(f.name, []string{"pre_limit.of", "pre_limit.times"})
		}
	}
	return p
}

// counting checks how a pod may answer for the rule.
func (rep *report) counting(r *Rule) {
	if r.Counting != "" && !rep.oneOf("counting", string(r.Counting), countings()...) {
		return
	}
	c := r.counting()
	log := r.Algorithm == limit.SlidingLog
	if log && c == CountingAsync {
		rep.add("counting", string(c), "a sliding_log is always exact", "use exact, or sliding_window")
	}
	if r.MaxLease != 0 {
		if c != CountingLease || log {
			rep.add("max_lease", num(r.MaxLease), "is only for counting lease, and a sliding_log leases nothing", "remove it")
		} else {
			rep.inRange("max_lease", r.MaxLease, 1, maxMaxLease)
		}
	}
	if r.SyncMS != 0 {
		if c != CountingAsync && c != CountingReport {
			rep.add("sync_ms", num(r.SyncMS), "is only for counting async and report", "remove it")
		} else {
			rep.inRange("sync_ms", r.SyncMS, minSyncMS, maxSyncMS)
		}
	}
	if p := r.PreLimit; p != (PreLimit{}) {
		rep.preLimit(p, c, log)
		if p.Of != OfNone && (r.Window != "" || r.Align == alignFirstRequest) {
			rep.add("pre_limit", p.Of, "a window by the calendar or from the first request has none", "remove it")
		}
	}
}

func (rep *report) preLimit(p PreLimit, c Counting, log bool) {
	switch {
	case c != CountingLease && c != CountingAsync || log:
		rep.add("pre_limit", p.Of, "is only for counting lease and async, and a sliding_log has none", "remove it")
	case p.Of == OfNone:
	case rep.oneOf("pre_limit.of", p.Of, OfLimit, OfFairShare):
		rep.inRange("pre_limit.times in thousandths", p.TimesMilli, minTimesMilli, maxTimesMilli)
	}
}

// counting is how the rule counts, never "".
func (r *Rule) counting() Counting {
	if r.Counting == "" {
		return CountingLease
	}
	return r.Counting
}

// Counting returns how the rule counts, never "". A sliding_log is exact unless
// each pod counts alone or nothing is denied.
func (c *Compiled) Counting() Counting {
	if n := c.rule.counting(); n != CountingLease || c.rule.Algorithm != limit.SlidingLog {
		return n
	}
	return CountingExact
}

// Lease returns the most tokens a pod may lease at a time of a bucket of this
// rule; 0 where it leases none.
func (c *Compiled) Lease() int64 {
	switch {
	case c.Counting() != CountingLease || c.rule.action() != ActionLimit:
		return 0
	case c.rule.MaxLease == 0:
		return defaultMaxLease
	default:
		return c.rule.MaxLease
	}
}

// Sync returns how long async and report counts may wait to be told.
func (c *Compiled) Sync() time.Duration {
	if c.rule.SyncMS == 0 {
		return defaultSyncMS * time.Millisecond
	}
	return time.Duration(c.rule.SyncMS) * time.Millisecond
}

// PreLimit returns each pod's own bucket in front of the store; TimesMilli is 0
// where there is none.
func (c *Compiled) PreLimit() PreLimit {
	switch n := c.Counting(); {
	case n != CountingLease && n != CountingAsync:
		return PreLimit{}
	case c.rule.PreLimit.Of == OfNone:
		return PreLimit{}
	case c.rule.PreLimit.Of == "":
		return PreLimit{Of: OfLimit, TimesMilli: defaultTimesMilli}
	default:
		return c.rule.PreLimit
	}
}

func countings() []string {
	return words(CountingExact, CountingLease, CountingAsync, CountingLocal, CountingReport)
}
