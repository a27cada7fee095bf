package rules

import "encoding/json"

// laterField knows the fields whose behaviour comes in later releases. Their
// shape and bounds are checked, so that a file is told all its faults at once,
// and then they are refused: a field that is ignored is a limit that is not
// there.
func (d *decoder) laterField(m member) bool {
	switch m.name {
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
		d.share(p)
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

// share checks a number above 0 and at most 1.
func (d *decoder) share(m member) {
	f, ok := d.number(m)
	if !ok || f > 0 && f <= 1 {
		return
	}
	s := clip(string(m.raw))
	d.add(m.name, s, s+" is not above 0 and at most 1", "change it")
}
