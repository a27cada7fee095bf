package rules

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/limit"
)

// Validate checks every field of the rule and whether they fit each other. It
// returns faults, for which the rule must not be used, and warnings.
func (r *Rule) Validate() Problems {
	problems, _ := r.check()
	return problems
}

// check is Validate, and the limit that it compiled on the way.
func (r *Rule) check() (Problems, *limit.Limit) {
	rep := report{rule: clip(r.ID), at: r.At}
	rep.id("id", r.ID)
	if r.Domain != "" {
		rep.id("domain", r.Domain)
	}
	rep.text("description", r.Description)
	rep.text("owner", r.Owner)
	rep.match(r.Match, r.CoversAll)
	rep.supersedes(r.ID, r.Supersedes)
	if r.Mode != "" {
		rep.oneOf("mode", string(r.Mode), modes()...)
	}
	action := cmp.Or(r.Action, ActionLimit)
	if !rep.oneOf("action", string(action), actions()...) {
		return rep.out, nil
	}
	if action != ActionLimit {
		rep.uncounted(r, action)
		return rep.out, nil
	}
	return rep.out, rep.counted(r)
}

// counted checks the fields of a rule that counts.
func (rep *report) counted(r *Rule) *limit.Limit {
	rep.identity(r.Identity)
	if r.FailMode != "" {
		rep.oneOf("fail_mode", string(r.FailMode), failModes()...)
	}
	rep.counting(r)
	rep.closed(r)
	rep.buckets(r)
	rep.pressure(r)
	if r.MaxCost != 0 && !rep.inRange("max_cost", r.MaxCost, 1, limit.MaxCost) {
		return nil
	}
	if r.Algorithm > limit.FixedWindow {
		rep.add("algorithm", "", r.Algorithm.String()+" is none", "use one of "+strings.Join(algorithms(), ", "))
		return nil
	}
	l := rep.numbers(r.Algorithm, r.Numbers)
	if l == nil {
		return nil
	}
	most, name := r.Limit, "limit"
	if r.Algorithm == limit.TokenBucket {
		most, name = r.Burst, "burst"
	}
	if cost := max(r.MaxCost, 1); most < cost {
		rep.add(name, num(most), num(most)+" is below max_cost "+num(cost), "raise "+name+" or lower max_cost")
		return nil
	}
	return l
}

// uncounted refuses what only a rule that counts has.
func (rep *report) uncounted(r *Rule, action Action) {
	given := append(r.fields(),
		field{name: "identity", given: len(r.Identity) > 0},
		field{name: "algorithm", given: r.Algorithm != 0},
		field{name: "max_cost", given: r.MaxCost != 0},
		field{name: "fail_mode", given: r.FailMode != ""},
		field{name: "counting", given: r.Counting != ""},
		field{name: "max_lease", given: r.MaxLease != 0},
		field{name: "sync_ms", given: r.SyncMS != 0},
		field{name: "pre_limit", given: r.PreLimit != (PreLimit{})},
		field{name: "closed_allow", given: len(r.ClosedAllow) > 0},
		field{name: "closed_allowance", given: r.ClosedAllowanceMilli != 0},
		field{name: "replicas", given: r.Replicas != 0},
		field{name: "on_change", given: r.OnChange != ""},
		field{name: "max_new_keys_per_s", given: r.MaxNewKeysPerS != 0},
		field{name: "priority", given: r.Priority != 0},
		field{name: "shed_floor", given: r.ShedFloorMilli != 0},
	)
	for _, f := range given {
		if f.given {
			rep.add(f.name, "", "is only for action limit; action "+string(action)+" counts nothing", "remove it")
		}
	}
}

// match checks the conditions. A rule that covers every request is most often a
// forgotten line, and it limits everyone.
func (rep *report) match(match map[string]string, coversAll bool) {
	if len(match) > MaxMatch {
		rep.add("match", "", num(len(match))+" attributes are above "+num(MaxMatch), "split the rule")
	}
	everything := true
	for _, attr := range sortedKeys(match) {
		name, value := "match."+clip(attr), match[attr]
		everything = everything && value != "" && onlyStars(value)
		rep.name(name, attr)
		switch {
		case value == "":
			rep.add(name, "", "is empty", "give a value, or * for any")
		case len(value) > MaxTextBytes:
			rep.add(name, value, num(len(value))+" bytes are above "+num(MaxTextBytes), "shorten it")
		case !utf8.ValidString(value):
			rep.add(name, value, "is not valid UTF-8", "save it as UTF-8")
		}
	}
	switch {
	case everything && !coversAll:
		rep.add("match", "", "covers every route", "name what it is for, or say covers_all: true")
	case everything:
		rep.warn("match", "", "covers every route, as covers_all says", "check that this is meant")
	}
}

// onlyStars reports whether a pattern matches every value.
func onlyStars(value string) bool { return strings.Trim(value, "*") == "" }

func (rep *report) identity(names []string) {
	if len(names) == 0 {
		rep.add("identity", "", "missing", `say whom it counts, such as "api_key" or "ip"`)
	}
	if len(names) > MaxIdentity {
		rep.add("identity", "", num(len(names))+" names are above "+num(MaxIdentity), "count by fewer")
	}
	for i, name := range names {
		field := "identity[" + num(i) + "]"
		rep.name(field, name)
		if slices.Contains(names[:i], name) {
			rep.add(field, name, quote(name)+" is given twice", "keep one")
		}
	}
}

func (rep *report) supersedes(self string, ids []string) {
	if len(ids) > MaxSupersedes {
		rep.add("supersedes", "", num(len(ids))+" ids are above "+num(MaxSupersedes), "supersede fewer")
		return
	}
	for i, id := range ids {
		field := "supersedes[" + num(i) + "]"
		rep.id(field, id)
		if id == self {
			rep.add(field, id, "a rule cannot supersede itself", "remove it")
		}
	}
}

// Validate checks what can be said of an override without its rule.
func (o *Override) Validate() Problems {
	rep := report{rule: clip(o.Rule), at: o.At}
	rep.id("rule", o.Rule)
	rep.text("reason", o.Reason)
	rep.text("owner", o.Owner)
	if len(o.Key) == 0 {
		rep.add("key", "", "missing", "say whose numbers these are")
	}
	for i, part := range o.Key {
		field := "key"
		if len(o.Key) > 1 {
			field = "key[" + num(i) + "]"
		}
		switch {
		case part == "":
			rep.add(field, "", "is empty", "give the identity's value")
		case strings.Contains(part, "*") && len(o.Key) > 1:
			rep.add(field, part, "patterns (*) are only for rules that count by one name", "name one key")
		}
	}
	if n := len(identity.Key(o.Key)); n > MaxKeyBytes {
		rep.add("key", "", num(n)+" bytes are above "+num(MaxKeyBytes), "shorten it")
	}
	rep.given(o.Numbers)
	if o.MaxCost != 0 {
		rep.inRange("max_cost", o.MaxCost, 1, limit.MaxCost)
	}
	if o.Numbers == (Numbers{}) && o.MaxCost == 0 {
		rep.add("", "", "the override has no numbers", "give at least one, such as rate or limit")
	}
	return rep.out
}

func actions() []string { return words(ActionLimit, ActionAllow, ActionDeny) }
func modes() []string   { return words(ModeEnforce, ModeShadow) }

func failModes() []string { return words(FailOpen, FailClosed) }

func words[T ~string](values ...T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
