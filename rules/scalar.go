package rules

import (
	"encoding/json"
	"math"
	"strconv"
	"time"
)

// str reads a text. An empty one is refused: it looks given and says nothing.
func (d *decoder) str(m member) string {
	var s string
	if m.raw[0] != '"' || json.Unmarshal(m.raw, &s) != nil {
		d.add(m.name, string(m.raw), clip(string(m.raw))+" is not a text", "put it in quotes")
		return ""
	}
	if s == "" {
		d.add(m.name, "", "is empty", "give a value or remove the field")
	}
	return s
}

// word reads one of some texts. What is no text gets no advice to become one: these are
// all there are.
func (d *decoder) word(m member, words []string) string {
	if m.raw[0] != '"' {
		d.oneOf(m.name, string(m.raw), words...)
		return ""
	}
	s := d.str(m)
	if s == "" || !d.oneOf(m.name, s, words...) {
		return ""
	}
	return s
}

func (d *decoder) boolean(m member) bool {
	if s := string(m.raw); s != "true" && s != "false" {
		d.add(m.name, s, clip(s)+" is neither true nor false", "use one of these")
	}
	return string(m.raw) == "true"
}

// strs reads one text or a list of texts.
func (d *decoder) strs(m member) []string {
	if m.raw[0] != '[' {
		return []string{d.str(m)}
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(m.raw, &raws); err != nil {
		d.add(m.name, string(m.raw), err.Error(), "write a list of texts")
		return nil
	}
	out := make([]string, len(raws))
	for i, raw := range raws {
		out[i] = d.str(member{name: m.name + "[" + num(i) + "]", raw: raw})
	}
	return out
}

// strMap reads attribute → value. It refuses doubled attributes.
func (d *decoder) strMap(m member) map[string]string {
	if m.raw[0] != '{' {
		d.add(m.name, string(m.raw), clip(string(m.raw))+" is not a map of attribute to value", `write {"plan":"growth"}`)
		return nil
	}
	fields, err := splitObject(m.raw)
	if err != nil {
		d.add(m.name, string(m.raw), err.Error(), `write {"plan":"growth"}`)
		return nil
	}
	out := make(map[string]string, len(fields))
	for _, f := range fields {
		field := m.name + "." + clip(f.name)
		if _, double := out[f.name]; double {
			d.add(field, "", "is given twice", "keep one")
			continue
		}
		out[f.name] = d.str(member{name: field, raw: f.raw})
	}
	return out
}

func (d *decoder) time(m member) time.Time {
	s := d.str(m)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		d.add(m.name, s, quote(s)+" is not a time of RFC 3339", `write it like "2026-10-01T00:00:00Z"`)
	}
	return t
}

// whole reads a whole number in decimal digits. Everything else is refused by
// its kind: 1e19 and 2^53+1 above the bound must not become some smaller number.
func (d *decoder) whole(m member, lo, hi int64) int64 {
	s := string(m.raw)
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		if d.inRange(m.name, v, lo, hi) {
			return v
		}
		return 0
	}
	f, ok := d.number(m)
	switch {
	case !ok:
	case f > float64(hi):
		d.add(m.name, s, clip(s)+" is above "+num(hi), "lower it")
	case f < float64(lo):
		d.add(m.name, s, clip(s)+" is below "+num(lo), "raise it")
	default:
		d.add(m.name, s, clip(s)+" is not a whole number in digits", "write one from "+num(lo)+" to "+num(hi))
	}
	return 0
}

// number reads any number, as far as a bound can be compared with it: what is
// too large for a double is infinite.
func (d *decoder) number(m member) (float64, bool) {
	s := string(m.raw)
	if c := s[0]; c != '-' && (c < '0' || c > '9') {
		d.add(m.name, s, clip(s)+" is not a number", "write it in digits, without quotes")
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		d.add(m.name, s, clip(s)+" is not a number", "write it in digits")
		return 0, false
	}
	return f, true
}

// milli reads a number with at most three decimals, as thousandths.
func (d *decoder) milli(m member, lo, hi int64) int64 {
	f, ok := d.number(m)
	if !ok {
		return 0
	}
	s := clip(string(m.raw))
	v := math.Round(f * 1_000)
	switch {
	case f < float64(lo)/1_000:
		d.add(m.name, s, s+" is below "+decimal(lo), "raise it")
	case f > float64(hi)/1_000:
		d.add(m.name, s, s+" is above "+decimal(hi), "lower it")
	case v/1_000 != f:
		d.add(m.name, s, s+" has more than three decimals", "round it")
	default:
		return int64(v)
	}
	return 0
}

// decimal writes thousandths as a number.
func decimal(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1_000, 'f', -1, 64)
}
