package identity

import (
	"net/url"
	"strings"
)

const (
	cookieField, cookieLower = "Cookie", "cookie"
	authField, authLower     = "Authorization", "authorization"
)

// lines returns the lines of a header, as many as the request has.
func (f *Facts) lines(exact, lower string) []string {
	if f.LowerNames {
		return f.Header[lower]
	}
	return f.Header[exact]
}

// header returns the one value of a header. Two lines are two answers to "who are
// you": a proxy may read the first and an application the last.
func header(f *Facts, name *fieldName) (string, Fault) {
	if name.exact == authField {
		return Bearer(f.lines(authField, authLower))
	}
	lines := f.lines(name.exact, name.lower)
	switch len(lines) {
	case 0:
		return "", ""
	case 1:
		return trimBlank(lines[0]), ""
	default:
		return "", Ambiguous
	}
}

// Bearer returns the token of the lines of a request's Authorization header: the scheme
// in any case, then the token, blanks around it aside. Other schemes have none: their
// whole value would let a client choose a bucket by its password. Two lines are
// Ambiguous, and have none either.
func Bearer(lines []string) (token string, fault Fault) {
	const scheme = "bearer "
	if len(lines) > 1 {
		return "", Ambiguous
	}
	if len(lines) == 0 || len(lines[0]) <= len(scheme) || !strings.EqualFold(lines[0][:len(scheme)], scheme) {
		return "", ""
	}
	return trimBlank(lines[0][len(scheme):]), ""
}

// cookie returns the one value of a cookie, over all lines.
func cookie(lines []string, name string) (string, Fault) {
	var found pair
	for _, line := range lines {
		if len(line) > MaxHeader {
			return "", TooLong
		}
		for rest := line; rest != ""; {
			var part string
			part, rest, _ = strings.Cut(rest, ";")
			key, value, _ := strings.Cut(part, "=")
			if trimBlank(key) != name {
				continue
			}
			value = trimBlank(value)
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			if !found.add(own(value, line)) {
				return "", Ambiguous
			}
		}
	}
	return found.value, ""
}

// query returns the one value of a query parameter, decoded.
func query(raw, name string) (string, Fault) {
	if len(raw) > MaxHeader {
		return "", TooLong
	}
	var found pair
	for rest := raw; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(rest, "&")
		key, value, _ := strings.Cut(part, "=")
		if key, ok := unescape(key); !ok || key != name {
			continue
		}
		value, ok := unescape(value)
		if !ok {
			continue // no application reads it either
		}
		if !found.add(own(value, raw)) {
			return "", Ambiguous
		}
	}
	return found.value, ""
}

func unescape(s string) (string, bool) {
	if !strings.ContainsAny(s, "%+") {
		return s, true
	}
	s, err := url.QueryUnescape(s)
	return s, err == nil
}

// pair holds the value of what must be there once.
type pair struct {
	value string
	found bool
}

func (p *pair) add(value string) (once bool) {
	once = !p.found
	p.value, p.found = value, true
	return once
}

// own returns a value that does not keep a long line it stood in alive: keys live
// as long as their buckets.
func own(value, line string) string {
	const small = 256
	if len(line) <= small {
		return value
	}
	return strings.Clone(value)
}
