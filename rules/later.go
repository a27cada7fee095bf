package rules

import (
	"encoding/json"
	"fmt"
)

// laterField knows the fields whose behaviour comes in later releases. Their
// shape and bounds are checked, so that a file is told all its faults at once,
// and then they are refused: a field that is ignored is a limit that is not
// there.
func (d *decoder) laterField(m member) bool {
	switch m.name {
	case "priority":
		d.whole(m, 0, 1_000)
	case "shed_floor":
		d.fraction(m, 0.05, 1)
	case "regions":
		d.regions(m)
	default:
		return false
	}
	d.notYet(m.name, "remove it")
	return true
}

func (d *decoder) regions(m member) {
	for _, p := range d.object(m) {
		d.fraction(p, 0, 1)
	}
}

// object splits a nested object into fields named by their whole path.
func (d *decoder) object(m member) []member {
	fields, err := splitObject(m.raw)
	if err != nil {
		d.add(m.name, string(m.raw), err.Error(), "write an object")
		return nil
	}
	seen := map[string]bool{}
	for i := range fields {
		if seen[fields[i].name] {
			d.add(m.name, string(m.raw), "has "+clip(fields[i].name)+" twice", "keep one")
			return nil
		}
		seen[fields[i].name] = true
		fields[i].name = m.name + "." + clip(fields[i].name)
		if string(fields[i].raw) == "null" {
			fields[i].raw = json.RawMessage(`""`) // refused by whoever reads it
		}
	}
	return fields
}

// fraction checks a number above 0 and between two bounds.
func (d *decoder) fraction(m member, lo, hi float64) {
	f, ok := d.number(m)
	if !ok || f > 0 && f >= lo && f <= hi {
		return
	}
	s, bounds := clip(string(m.raw)), fmt.Sprintf("above 0 and at most %v", hi)
	if lo > 0 {
		bounds = fmt.Sprintf("from %v to %v", lo, hi)
	}
	d.add(m.name, s, s+" is not "+bounds, "change it")
}
