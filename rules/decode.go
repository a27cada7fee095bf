package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/tallygate/tallygate/limit"
)

// ParseRule reads and validates one rule in JSON. With faults the rule is not to
// be used, but its ID and Domain are what could be read of them. Warnings are
// left to [Compile].
func ParseRule(data []byte) (Rule, Problems) {
	r, problems := decodeRule(data)
	if len(problems) == 0 {
		problems = r.Validate().Faults()
	}
	return r, problems
}

// ParseOverride reads and validates one override in JSON, like [ParseRule].
// Whether its numbers fit its rule is for [Compile] to say.
func ParseOverride(data []byte) (Override, Problems) {
	o, problems := decodeOverride(data)
	if len(problems) == 0 {
		problems = o.Validate().Faults()
	}
	return o, problems
}

// UnmarshalJSON reads a rule strictly: unknown, doubled and empty fields, values
// of another kind and numbers beyond their bounds are refused. The error is
// [Problems]. It does not ask whether the fields fit each other: see [Rule.Validate].
func (r *Rule) UnmarshalJSON(data []byte) error {
	rule, problems := decodeRule(data)
	if len(problems) > 0 {
		return problems
	}
	*r = rule
	return nil
}

// UnmarshalJSON reads an override strictly, like a rule.
func (o *Override) UnmarshalJSON(data []byte) error {
	override, problems := decodeOverride(data)
	if len(problems) > 0 {
		return problems
	}
	*o = override
	return nil
}

func decodeRule(data []byte) (Rule, Problems) {
	var r Rule
	d := decoder{}
	for _, m := range d.members(data) {
		if d.ruleField(&r, m) || d.numberField(&r.Numbers, &r.MaxCost, m) || d.laterField(m) {
			continue
		}
		d.unknown(m.name, ruleFields())
	}
	d.name(r.ID)
	return r, d.out
}

func decodeOverride(data []byte) (Override, Problems) {
	var o Override
	d := decoder{}
	for _, m := range d.members(data) {
		if d.overrideField(&o, m) || d.numberField(&o.Numbers, &o.MaxCost, m) {
			continue
		}
		d.unknown(m.name, overrideFields())
	}
	d.name(o.Rule)
	return o, d.out
}

// ruleFields lists every field of a rule, to find what a misspelt one stands for.
func ruleFields() []string {
	return append(strings.Fields(`id domain description owner match covers_all identity action supersedes algorithm
		mode fail_mode counting max_lease sync_ms pre_limit on_change replicas closed_allowance closed_allow regions
		priority shed_floor max_new_keys_per_s`), numberFields()...)
}

func overrideFields() []string {
	return append([]string{"rule", "key", "account", "expires_at", "reason", "owner"}, numberFields()...)
}

func numberFields() []string {
	return []string{"rate", "per_s", "burst", "limit", "window_s", "window", "tz", "align", "burst_factor", "max_cost"}
}

// decoder reads the members of one JSON object and gathers what is wrong.
type decoder struct{ report }

// member is one field as written.
type member struct {
	name string
	raw  json.RawMessage
}

// members splits an object into its fields. encoding/json by itself takes
// doubled fields and broken UTF-8 without a word.
func (d *decoder) members(data []byte) []member {
	if !utf8.Valid(data) {
		d.add("", "", "is not valid UTF-8", "save it as UTF-8")
		return nil
	}
	out, err := splitObject(data)
	if err != nil {
		d.add("", string(data), err.Error(), "write one JSON object")
		return nil
	}
	seen := make(map[string]bool, len(out))
	fields := out[:0]
	for _, m := range out {
		switch {
		case seen[m.name]:
			d.add(clip(m.name), "", "is given twice", "keep one")
		case string(m.raw) == "null":
			d.add(clip(m.name), "", "has no value", "give one or remove the field")
		default:
			fields = append(fields, m)
		}
		seen[m.name] = true
	}
	return fields
}

func splitObject(data []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("is not an object")
	}
	var out []member
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := tok.(string) // the decoder gives nothing else here
		m := member{name: name}
		if err := dec.Decode(&m.raw); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is followed by more")
	}
	return out, nil
}

// name gives the problems found so far the id they belong to.
func (d *decoder) name(id string) {
	for i := range d.out {
		d.out[i].Rule = clip(id)
	}
}

func (d *decoder) unknown(field string, known []string) {
	fix := "remove it"
	if near := nearest(field, known); near != "" {
		fix = "did you mean " + quote(near) + "?"
	}
	d.add(clip(field), "", "unknown field", fix)
}

func (d *decoder) ruleField(r *Rule, m member) bool {
	switch m.name {
	case "id":
		r.ID = d.str(m)
	case "domain":
		r.Domain = d.str(m)
	case "description":
		r.Description = d.str(m)
	case "owner":
		r.Owner = d.str(m)
	case "match":
		r.Match = d.strMap(m)
	case "covers_all":
		r.CoversAll = d.boolean(m)
	case "identity":
		r.Identity = d.strs(m)
	case "action":
		r.Action = Action(d.word(m, actions()))
	case "supersedes":
		r.Supersedes = d.strs(m)
	case "algorithm":
		r.Algorithm, _ = limit.ParseAlgorithm(d.word(m, algorithms()))
	case "mode":
		r.Mode = Mode(d.word(m, modes()))
	case "fail_mode":
		r.FailMode = FailMode(d.word(m, failModes()))
	default:
		return d.countingField(r, m)
	}
	return true
}

func (d *decoder) overrideField(o *Override, m member) bool {
	switch m.name {
	case "rule":
		o.Rule = d.str(m)
	case "key", "account":
		if o.Key != nil {
			d.add(m.name, "", "key and account are the same field", "keep one")
		}
		o.Key = d.strs(m)
	case "expires_at":
		o.ExpiresAt = d.time(m)
	case "reason":
		o.Reason = d.str(m)
	case "owner":
		o.Owner = d.str(m)
	default:
		return false
	}
	return true
}

func (d *decoder) numberField(n *Numbers, maxCost *int64, m member) bool {
	switch m.name {
	case "rate":
		n.Rate = d.whole(m, 1, limit.MaxNumber)
	case "per_s":
		n.PerS = d.whole(m, 1, maxPeriodS)
	case "burst":
		n.Burst = d.whole(m, 1, limit.MaxNumber)
	case "limit":
		n.Limit = d.whole(m, 1, limit.MaxNumber)
	case "window_s":
		n.WindowS = d.whole(m, 1, maxWindowS)
	case "window":
		n.Window = d.word(m, windows())
	case "tz":
		n.TZ = d.str(m)
	case "align":
		n.Align = d.word(m, aligns())
	case "burst_factor":
		n.BurstFactorMilli = d.milli(m, minBurstFactorMilli, maxBurstFactorMilli)
	case "max_cost":
		*maxCost = d.whole(m, 1, limit.MaxCost)
	default:
		return false
	}
	return true
}
