package envoyconfig

import (
	"fmt"
	"strings"

	"github.com/tallygate/tallygate/rules"
)

// Verdict says what became of a line.
type Verdict string

// The verdicts.
const (
	// Kept: it means the same here.
	Kept Verdict = "kept"
	// Differs: it is imported, and something about it is not as there.
	Differs Verdict = "differs"
	// Ignored: it has no effect here.
	Ignored Verdict = "ignored"
)

// Note says what became of one line.
type Note struct {
	Place
	// Text is the key and its value as written.
	Text    string
	Verdict Verdict
	// Why says what is different, or what it became.
	Why string
	// Rule is the id of the rule it went into, "" for none.
	Rule string
}

// String returns "file:line:column: verdict: text -> why".
func (n Note) String() string {
	out := string(n.Verdict) + ": " + n.Text
	if n.File != "" {
		out = n.Place.String() + ": " + out
	}
	switch {
	case n.Why == "":
		return out
	case n.Text == "":
		return out + n.Why
	default:
		return out + " -> " + n.Why
	}
}

// notes makes the note of each line.
func (im *importer) notes(t *Tree) {
	for _, why := range general() {
		im.out.Notes = append(im.out.Notes, Note{Verdict: Differs, Why: why})
	}
	crossing := map[*Domain]bool{}
	for _, l := range t.lines {
		n := Note{Place: l.Place, Text: l.field + ":", Verdict: Kept, Rule: im.ids[l.node]}
		if l.value != "" {
			n.Text += " " + clip(l.value)
		}
		switch {
		case im.names[l.domain] == "":
			n.Verdict, n.Why = Ignored, "another domain than "+quote(im.opts.Domain)
		case l.standing == misplaced:
			n.Verdict, n.Why = Ignored, "nothing reads it in this place, there as here"
		case l.standing == inMetadata || l.field == "metadata":
			n.Verdict, n.Why = Ignored, "answers carry no metadata"
		case l.node == nil:
			if l.field == "domain" {
				n.Verdict, n.Why = im.noteDomain(l.domain, crossing)
			}
		default:
			n.Verdict, n.Why = im.note(l)
		}
		im.out.Notes = append(im.out.Notes, n)
	}
}

// general is what differs whatever the files say.
func general() []string {
	return []string{
		"a request is charged for all its limits or, when one of them refuses, for none; there each is charged by itself, as with --rls-per-descriptor",
		"a refused request is not counted; there it is (unless STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is on), as with --rls-count-denied",
		"windows are cut by the store's clock, not by each pod's, and counting starts anew: counters are not taken over",
	}
}

func (im *importer) noteDomain(d *Domain, said map[*Domain]bool) (Verdict, string) {
	if said[d] {
		return Kept, ""
	}
	said[d] = true
	var why []string
	if name := im.names[d]; name != d.Name {
		why = append(why, "the domain is called "+quote(name)+" here: it may hold only A-Z a-z 0-9 . _ -; set this name in Envoy")
	}
	if n := ambiguousIn(d); n != nil {
		why = append(why, "rules compare key and value, not the text key_value: an entry of another key that makes the same text, such as "+
			n.otherReading()+", meets the node there and not here")
	}
	if len(why) == 0 {
		return Kept, ""
	}
	return Differs, strings.Join(why, "; ")
}

// note says what became of a line of a node.
func (im *importer) note(l line) (Verdict, string) {
	n := l.node
	said := im.why[n]
	if said.verdict == Ignored && n.Limit != nil && l.field != "key" && l.field != "value" && l.field != "descriptors" {
		return Ignored, said.text
	}
	switch l.field {
	case "key", "value":
		if why := im.unhidden[n]; why != "" && (l.field == "value" || n.Value == "") {
			return Differs, why
		}
	case "rate_limit":
		return said.orKept(), said.text
	case "unit", "requests_per_unit":
		return im.noteNumbers(l.field, n)
	case "unlimited":
		if n.Limit != nil && n.Limit.Unlimited {
			return Kept, "action: allow"
		}
	case "shadow_mode", "quota_mode":
		return im.noteMode(l.field, n)
	case "share_threshold":
		if n.ShareThreshold && !n.shared() {
			return Ignored, "there is no * in the value, there as here"
		}
		if n.ShareThreshold {
			return Kept, "the value is no part of the identity"
		}
	case "detailed_metric", "value_to_metric":
		return Ignored, "metrics are by rule: values of requests are no labels"
	case "name":
		return Kept, "answers name the rule"
	case "replaces":
		if why := im.lifted[n]; len(why) > 0 {
			return Differs, strings.Join(why, "; ")
		}
		return Kept, "supersedes"
	}
	return Kept, ""
}

// orKept is the verdict, of a node of which nothing was said, that it is kept.
func (r remark) orKept() Verdict {
	if r.verdict == "" {
		return Kept
	}
	return r.verdict
}

func (im *importer) noteNumbers(field string, n *Descriptor) (Verdict, string) {
	i, ok := im.at[n]
	if !ok || n.Limit == nil {
		return Kept, ""
	}
	r := im.out.Set.Rules[i]
	switch {
	case r.Action == rules.ActionDeny && field == "requests_per_unit":
		return Kept, "action: deny"
	case r.Action == rules.ActionDeny || r.Action == rules.ActionAllow:
		return Ignored, "action: " + string(r.Action) + " has no numbers"
	case r.Rate != 0:
		return im.why[n].orKept(), fmt.Sprintf("rate: %d, per_s: %d, burst: %d", r.Rate, r.PerS, r.Burst)
	case field == "requests_per_unit":
		return Kept, fmt.Sprintf("limit: %d", r.Limit)
	case r.Window != "":
		return im.why[n].orKept(), "window: " + r.Window
	case n.Limit.Unit == Week && r.Algorithm.String() == "fixed_window":
		return Kept, "window_s: 604800; a week starts on Thursday 00:00 UTC, as there"
	default:
		return im.why[n].orKept(), fmt.Sprintf("window_s: %d", r.WindowS)
	}
}

func (im *importer) noteMode(field string, n *Descriptor) (Verdict, string) {
	switch {
	case n.Limit == nil:
		return Ignored, "the node has no rate_limit, and children do not inherit it, there as here"
	case field == "shadow_mode" && n.ShadowMode:
		return Kept, "mode: shadow"
	case field == "quota_mode" && n.QuotaMode && im.opts.QuotaShadow:
		return Differs, "mode: shadow: it never refuses; there a request is refused when all its quotas are over"
	case field == "quota_mode" && n.QuotaMode:
		return Differs, "it refuses alone; there a request is refused only when all its quotas are over"
	default:
		return Kept, ""
	}
}
