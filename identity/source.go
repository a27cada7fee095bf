package identity

import (
	"fmt"
	"strings"
)

// kind is where an attribute comes from.
type kind uint8

const (
	fromHeader kind = iota
	fromProxy
	fromCookie
	fromQuery
	fromClaim
	fromCN
	fromSAN
	fromConstant
)

// source is one attribute and where it comes from.
type source struct {
	attr string
	// text is the source as configured.
	text string
	kind kind
	name fieldName
}

// fieldName is a header's name in the spellings that [Facts] may use; exact is
// also the name of what is no header.
type fieldName struct{ exact, lower string }

func fieldNameOf(s string) fieldName {
	return fieldName{exact: canonicalField(s), lower: strings.ToLower(s)}
}

const (
	maxNameBytes = 128
	grammar      = "header:NAME, proxy-header:NAME, cookie:NAME, query:NAME, claim:NAME, tls:cn, tls:san or constant:TEXT"
)

// CheckSource says what keeps a text from being where an attribute comes from, as
// [Config.Sources] has them; nil for nothing. It does not know whether there is a verifier
// of claims, or a trusted proxy.
func CheckSource(attr, text string) error {
	_, err := parseSource(attr, text)
	return err
}

func parseSource(attr, text string) (source, error) {
	s := source{attr: attr, text: text}
	word, name, _ := strings.Cut(text, ":")
	switch {
	case attr == "" || len(attr) > maxNameBytes:
		return s, fmt.Errorf("attribute %.140q of a source has %d bytes, not 1 to %d", attr, len(attr), maxNameBytes)
	case attr == AttrIP || attr == "route":
		return s, fmt.Errorf("attribute %s has no source: the address comes from the socket and from trusted proxies, the route from the router", attr)
	case name == "" || len(name) > maxNameBytes:
		return s, fmt.Errorf("source %.140q of %s is not %s of 1 to %d bytes", text, attr, grammar, maxNameBytes)
	}
	s.name.exact = name
	switch word {
	case "header", "proxy-header":
		if word == "proxy-header" {
			s.kind = fromProxy
		}
		s.name = fieldNameOf(name)
		return s, checkField(&s)
	case "cookie":
		s.kind = fromCookie
	case "query":
		s.kind = fromQuery
	case "claim":
		s.kind = fromClaim
	case "constant":
		s.kind = fromConstant
	case "tls":
		switch name {
		case "cn":
			s.kind = fromCN
		case "san":
			s.kind = fromSAN
		default:
			return s, fmt.Errorf("source %q of %s is neither tls:cn nor tls:san", text, attr)
		}
	default:
		return s, fmt.Errorf("source %.140q of %s is not %s", text, attr, grammar)
	}
	return s, nil
}

// checkField refuses names that are no header's, and headers whose value is not
// one identity.
func checkField(s *source) error {
	for i := range len(s.name.lower) {
		if c := s.name.lower[i]; !isPlain(c) && !strings.ContainsRune("!#$%&'*+^`|~", rune(c)) {
			return fmt.Errorf("source %q of %s: %q stands in no header's name", s.text, s.attr, c)
		}
	}
	switch s.name.exact {
	case headerForwardedFor, headerForwarded:
		return fmt.Errorf("source %q of %s: a client may write this header; name the trusted proxies and count by ip", s.text, s.attr)
	case "Cookie":
		return fmt.Errorf("source %q of %s holds all cookies; name one: cookie:NAME", s.text, s.attr)
	case "Host":
		return fmt.Errorf("source %q of %s is no header of a request here; match by route", s.text, s.attr)
	}
	return nil
}

// canonicalField spells a header's name as net/http does: X-Api-Key. (That one's
// function would make everything that only wants a key link package net.)
func canonicalField(s string) string {
	b := []byte(s)
	upper := true
	for i, c := range b {
		switch {
		case upper && c >= 'a' && c <= 'z':
			b[i] = c - 'a' + 'A'
		case !upper && c >= 'A' && c <= 'Z':
			b[i] = c - 'A' + 'a'
		}
		upper = c == '-'
	}
	return string(b)
}

// read returns the value of one source, "" if absent; trusted says that the headers
// are a trusted proxy's word.
func (r *Resolver) read(s *source, f *Facts, trusted bool, claims *claimSet) (string, Fault) {
	switch s.kind {
	case fromHeader:
		return header(f, &s.name)
	case fromProxy:
		if !trusted {
			return "", ""
		}
		return header(f, &s.name)
	case fromCookie:
		return cookie(f.lines(cookieField, cookieLower), s.name.exact)
	case fromQuery:
		return query(f.Query, s.name.exact)
	case fromClaim:
		return claims.get(r.verifier, f, s.name.exact)
	case fromCN, fromSAN:
		if f.Certificate == nil {
			return "", ""
		}
		return f.Certificate.Name(s.kind == fromSAN), ""
	case fromConstant:
		return s.name.exact, ""
	}
	return "", ""
}

// claimSet is the bearer token's claims, verified at most once a request.
type claimSet struct {
	known  bool
	fault  Fault
	claims map[string]string
}

func (c *claimSet) get(v Verifier, f *Facts, name string) (string, Fault) {
	if !c.known {
		c.known = true
		var token string
		token, c.fault = Bearer(f.lines(authField, authLower))
		if c.fault == "" && token != "" && len(token) <= MaxHeader {
			if claims, ok := v.Claims(token); ok {
				c.claims = claims
			}
		}
	}
	return c.claims[name], c.fault
}
