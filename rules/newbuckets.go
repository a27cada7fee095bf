package rules

import "github.com/tallygate/tallygate/limit"

// bucketField reads what becomes of a rule's buckets that are new, or of other
// numbers than they were.
func (d *decoder) bucketField(r *Rule, m member) bool {
	switch m.name {
	case "on_change":
		r.OnChange = d.word(m, onChanges())
	case "max_new_keys_per_s":
		r.MaxNewKeysPerS = 0
		if m.raw[0] == '"' {
			d.word(m, []string{OfNone})
		} else {
			r.MaxNewKeysPerS = d.whole(m, 1, MaxNewKeysPerS)
		}
	default:
		return d.pressureField(r, m)
	}
	return true
}

// buckets checks these fields.
func (rep *report) buckets(r *Rule) {
	if r.OnChange != "" && rep.oneOf("on_change", r.OnChange, onChanges()...) &&
		r.Algorithm != limit.FixedWindow && r.Algorithm != limit.SlidingWindow && r.Algorithm != 0 {
		rep.add("on_change", r.OnChange, "is only for fixed_window and sliding_window, not "+r.Algorithm.String(), "remove it")
	}
	if r.MaxNewKeysPerS != 0 {
		rep.inRange("max_new_keys_per_s", r.MaxNewKeysPerS, 1, MaxNewKeysPerS)
	}
}

func onChanges() []string { return []string{OnChangeNow, OnChangeNextWindow} }
