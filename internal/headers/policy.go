package headers

import "strconv"

// policy is what of an answer speaks of a rule and its numbers only, and where it
// stands in the text: the limit, then RateLimit-Policy, which begins with the rule.
type policy struct {
	id               string
	limitN, windowMS int64

	limit, rule, all span
}

// speakOf writes the text of the policy, unless it is there already.
func (f *Fields) speakOf(facts *Facts) {
	p := &f.policy
	if p.all.end > 0 && p.id == facts.Rule && p.limitN == facts.Limit && p.windowMS == facts.WindowMS {
		return
	}
	p.id, p.limitN, p.windowMS = facts.Rule, facts.Limit, facts.WindowMS
	f.text = strconv.AppendInt(f.text[:0], max(facts.Limit, 0), 10)
	p.limit = span{0, len(f.text)}
	f.text = appendString(f.text, facts.Rule)
	p.rule = span{p.limit.end, len(f.text)}
	f.text = appendParameter(f.text, ";q=", facts.Limit)
	f.text = appendParameter(f.text, ";w=", max(1, seconds(facts.WindowMS)))
	p.all = span{p.limit.end, len(f.text)}
}
