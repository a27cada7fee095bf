package rules

import (
	"encoding/json"
	"errors"
	"strings"
)

// Bounds of a rule's allowance while the store does not answer: a part of the
// limit, never more than it.
const (
	minAllowanceMilli = 1
	maxAllowanceMilli = 1_000
)

// closedField reads what a rule that fails closed lets pass all the same, and what
// it asks of the store's replicas.
func (d *decoder) closedField(r *Rule, m member) bool {
	switch m.name {
	case "closed_allow":
		r.ClosedAllow = d.keys(m)
	case "closed_allowance":
		r.ClosedAllowanceMilli = d.allowance(m)
	case "replicas":
		r.Replicas = d.whole(m, 0, MaxReplicas)
	default:
		return d.bucketField(r, m)
	}
	return true
}

// keys reads a list of keys: each a text, or a list of texts.
func (d *decoder) keys(m member) [][]string {
	if m.raw[0] != '[' {
		return [][]string{d.strs(m)}
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(m.raw, &raws); err != nil {
		d.add(m.name, string(m.raw), err.Error(), "write a list of keys")
		return nil
	}
	out := make([][]string, len(raws))
	for i, raw := range raws {
		out[i] = d.strs(member{name: m.name + "[" + num(i) + "]", raw: raw})
	}
	return out
}

// allowance reads {"times":0.1}.
func (d *decoder) allowance(m member) (milli int64) {
	given := false
	for _, f := range d.object(m) {
		if f.name != m.name+".times" {
			d.unknown(f.name, []string{m.name + ".times"})
			continue
		}
		given = true
		milli = d.milli(f, minAllowanceMilli, maxAllowanceMilli)
	}
	if !given && len(d.out) == 0 {
		d.add(m.name+".times", "", "missing", "say which part of the limit, such as 0.1")
	}
	return milli
}

// closed checks what a rule that fails closed lets pass all the same.
func (rep *report) closed(r *Rule) {
	c := r.counting()
	for _, f := range []field{
		{name: "closed_allow", given: len(r.ClosedAllow) > 0},
		{name: "closed_allowance", given: r.ClosedAllowanceMilli != 0},
		{name: "replicas", given: r.Replicas != 0},
	} {
		switch {
		case !f.given:
		case r.FailMode != FailClosed:
			rep.add(f.name, "", "is only for rules that fail closed", "say fail_mode: closed or remove it")
		case c == CountingLocal || c == CountingReport:
			rep.add(f.name, "", "means nothing with counting "+string(c)+", which needs no answer of the store", "remove it")
		case f.name == "replicas" && c == CountingAsync:
			rep.add(f.name, num(r.Replicas), "means nothing with counting async, which admits before it asks", "use exact or lease")
		}
	}
	if r.ClosedAllowanceMilli != 0 {
		rep.inRange("closed_allowance.times in thousandths", r.ClosedAllowanceMilli, minAllowanceMilli, maxAllowanceMilli)
	}
	rep.inRange("replicas", r.Replicas, 0, MaxReplicas)
	rep.closedAllow(r)
}

// closedAllow checks the keys as a check's would be: one that no request can have
// would let nobody pass.
func (rep *report) closedAllow(r *Rule) {
	if len(r.ClosedAllow) > MaxClosedAllow {
		rep.add("closed_allow", "", num(len(r.ClosedAllow))+" keys are above "+num(MaxClosedAllow), "list fewer")
		return
	}
	if n := len(r.Identity); n == 0 || n > MaxIdentity {
		return // said already, and no key fits that
	}
	rule := Compiled{rule: *r}
	seen := make(map[string]bool, len(r.ClosedAllow))
	for i, parts := range r.ClosedAllow {
		name := "closed_allow[" + num(i) + "]"
		shown := strings.Join(parts, ", ")
		if strings.Contains(shown, "*") {
			rep.add(name, shown, "is a pattern; these keys are single ones", "name one key")
			continue
		}
		key, err := rule.KeyOf(parts)
		var bad *KeyError
		switch {
		case errors.As(err, &bad):
			rep.add(name, shown, bad.Message, "write the key as the rule's identity has it")
		case seen[key]:
			rep.add(name, shown, quote(shown)+" is given twice", "keep one")
		}
		seen[key] = true
	}
}

// compileClosedAllow makes the list a set of encoded keys. check has seen it.
func (c *Compiled) compileClosedAllow() {
	if len(c.rule.ClosedAllow) == 0 {
		return
	}
	c.closedAllow = make(map[string]struct{}, len(c.rule.ClosedAllow))
	for _, parts := range c.rule.ClosedAllow {
		if key, err := c.KeyOf(parts); err == nil {
			c.closedAllow[key] = struct{}{}
		}
	}
}

// NeedsStore reports whether the rule's answer may have to come from the store:
// what a pod counts alone or only reports has one without it, so that its fail mode
// never comes up.
func (c *Compiled) NeedsStore() bool {
	n := c.rule.counting()
	return c.Action() == ActionLimit && n != CountingLocal && n != CountingReport
}

// ClosedAllow reports whether an encoded key passes while the store does not
// answer.
func (c *Compiled) ClosedAllow(key string) bool {
	_, ok := c.closedAllow[key]
	return ok
}

// ClosedAllowance returns the part of the limit, in thousandths, that all pods
// together may admit of a rule that fails closed while the store does not answer;
// 0 for nothing.
func (c *Compiled) ClosedAllowance() int64 { return c.rule.ClosedAllowanceMilli }

// Replicas returns how many replicas must have a spend before it counts.
func (c *Compiled) Replicas() int { return int(c.rule.Replicas) }
