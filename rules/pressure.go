package rules

import "cmp"

// Bounds of what a proxy may shed of a rule's requests.
const (
	// MaxPriority bounds priority.
	MaxPriority = 1_000

	minShedFloorMilli = 50
	maxShedFloorMilli = 1_000
)

// pressureField reads what a proxy does with the rule's requests while its upstream
// is overloaded.
func (d *decoder) pressureField(r *Rule, m member) bool {
	switch m.name {
	case "priority":
		r.Priority = d.whole(m, 0, MaxPriority)
	case "shed_floor":
		r.ShedFloorMilli = d.milli(m, minShedFloorMilli, maxShedFloorMilli)
	default:
		return false
	}
	return true
}

// pressure checks these fields.
func (rep *report) pressure(r *Rule) {
	rep.inRange("priority", r.Priority, 0, MaxPriority)
	if r.ShedFloorMilli != 0 {
		rep.inRange("shed_floor in thousandths", r.ShedFloorMilli, minShedFloorMilli, maxShedFloorMilli)
	}
}

// Priority returns how late the rule's requests are shed: the lowest first.
func (c *Compiled) Priority() int { return int(c.rule.Priority) }

// ShedFloor returns the part of the rule's requests, in thousandths, that is never
// shed; 1,000 for all of them. A rule that enforces nothing sheds nothing.
func (c *Compiled) ShedFloor() int64 {
	if c.Shadow() || c.Action() != ActionLimit {
		return maxShedFloorMilli
	}
	return cmp.Or(c.rule.ShedFloorMilli, maxShedFloorMilli)
}
