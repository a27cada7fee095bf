package headers

import "strconv"

// policy is what of an answer speaks of a rule and its numbers only, and where it
// stands in the text: the limit, then RateLimit-Policy, which begins with the rule.
type policy struct {
	rule            string
	limit, windowMS int64

	limitAt, ruleAt, at span
}

// speakOf writes the text of the policy, unless it is there already.
func (f *Fields) speakOf(facts *Facts) {
	p := &f.policy
	if p.at.end > 0 && p.rule == facts.Rule && p.limit == facts.Limit && p.windowMS == facts.WindowMS {
		return
	}
	p.rule, p.limit, p.windowMS = facts.Rule, facts.Limit, facts.WindowMS
	f.text = strconv.AppendInt(f.text[:0], max(facts.Limit, 0), 10)
	p.limitAt = span{0, len(f.text)}
	f.text = appendString(f.text, facts.Rule)
	p.ruleAt = span{p.limitAt.end, len(f.text)}
	f.text = appendParameter(f.text, ";q=", facts.Limit)
	f.text = appendParameter(f.text, ";w=", max(1, seconds(facts.WindowMS)))
	p.at = span{p.limitAt.end, len(f.text)}
}
