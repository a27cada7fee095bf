package headers

import (
	"fmt"
	"strconv"
)

// IETF says which draft's fields are written.
type IETF uint8

// The drafts at work.
const (
	// IETFDraft11 is draft-ietf-httpapi-ratelimit-headers-11: RateLimit-Policy
	// with q and w, RateLimit with r and t.
	IETFDraft11 IETF = iota
	// IETFOff writes none.
	IETFOff
)

// ParseIETF returns the draft of that name: "draft-11" or "off".
func ParseIETF(name string) (IETF, error) {
	switch name {
	case "draft-11":
		return IETFDraft11, nil
	case "off":
		return IETFOff, nil
	default:
		return 0, fmt.Errorf("ietf headers %q are neither draft-11 nor off", name)
	}
}

// ietf writes both fields as structured-field lists of one member (RFC 9651).
//
// t is the time within which no more than r can be used. For an allowed request
// that is the time to full; for a refused one the time until it would pass,
// since the draft wants Retry-After not to end before t.
func (s *Style) ietf(f *Fields, facts *Facts) {
	if s.IETF == IETFOff {
		return
	}
	f.list = append(f.list, field{namePolicy, f.policy.at})

	t := seconds(facts.ResetMS)
	if facts.Denied && facts.RetryMS > 0 {
		t = seconds(facts.RetryMS)
	}
	if facts.Remaining <= 0 {
		t = max(1, t)
	}
	start := len(f.text)
	f.text = append(f.text, f.text[f.policy.ruleAt.start:f.policy.ruleAt.end]...)
	f.text = appendParameter(f.text, ";r=", facts.Remaining)
	f.text = appendParameter(f.text, ";t=", t)
	f.add(nameRateLimit, start)
}

func appendParameter(dst []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(dst, name...), max(n, 0), 10)
}

// appendString appends s as a structured-field String. Rule ids are plain ASCII;
// what such a String cannot hold becomes "?", so that the field stays parsable.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c > 0x7e:
			dst = append(dst, '?')
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
