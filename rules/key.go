package rules

import (
	"fmt"

	"github.com/tallygate/tallygate/identity"
)

// attrIP is the identity of anonymous traffic. Its value is always the canonical
// address, however it was spelt.
const attrIP = "ip"

// Key returns the encoded key of identity values, in the rule's order: one value
// is itself, several are joined so that no other values give the same key.
func Key(parts []string) string { return identity.Key(parts) }

// KeyError says why a request has no key that a rule can count by.
type KeyError struct {
	// Rule is the id of the rule that counts; Attribute the identity at fault.
	Rule, Attribute string
	// Message says what is wrong.
	Message string
	// Missing says that the request lacks the attribute and an address to count by
	// instead (422 missing_identity); TooLong that the key is above MaxKeyBytes
	// (413). Neither: the key is malformed (400).
	Missing, TooLong bool
}

// Error returns rule, attribute and message.
func (e *KeyError) Error() string {
	return fmt.Sprintf("rule %q: %s: %s", e.Rule, e.Attribute, e.Message)
}

// KeyOf returns the encoded key of the values that a check names itself. It
// refuses, with a *KeyError, the wrong number of values, empty ones, an address
// that is none, and keys above [MaxKeyBytes].
func (c *Compiled) KeyOf(parts []string) (string, error) {
	names := c.rule.Identity
	if len(parts) != len(names) {
		return "", &KeyError{
			Rule: c.rule.ID, Attribute: "key",
			Message: fmt.Sprintf("has %d values, the rule counts by %d %q", len(parts), len(names), names),
		}
	}
	var values [MaxIdentity]string
	for i, part := range parts {
		if part == "" {
			return "", &KeyError{Rule: c.rule.ID, Attribute: names[i], Message: "is empty"}
		}
		value, ok := canonical(names[i], part)
		if !ok {
			return "", &KeyError{Rule: c.rule.ID, Attribute: names[i], Message: quote(part) + " is not an address"}
		}
		values[i] = value
	}
	return c.bounded(Key(values[:len(parts)]))
}

// KeyFrom returns the encoded key of a request with these attributes. ok is false
// if one of the identity's attributes is absent, empty or, for ip, no address.
// It does not allocate for an identity of one attribute in canonical form.
func (c *Compiled) KeyFrom(attrs map[string]string) (key string, ok bool) {
	var values [MaxIdentity]string
	names := c.rule.Identity
	for i, name := range names {
		value, ok := canonical(name, attrs[name])
		if !ok {
			return "", false
		}
		values[i] = value
	}
	return Key(values[:len(names)]), len(names) > 0
}

// canonical returns the one form in which an identity's value is counted.
func canonical(name, value string) (string, bool) {
	if name == attrIP {
		return identity.IP(value)
	}
	return value, value != ""
}

func (c *Compiled) bounded(key string) (string, error) {
	if len(key) > MaxKeyBytes {
		return "", &KeyError{
			Rule: c.rule.ID, Attribute: "key", TooLong: true,
			Message: fmt.Sprintf("%d bytes are above %d", len(key), MaxKeyBytes),
		}
	}
	return key, nil
}

// Bound is a rule that applies to a request, and the key it counts.
type Bound struct {
	Rule *Compiled
	// Key is the encoded key; "" for the actions allow and deny.
	Key string
}

// Resolve appends each matched rule (see [Domain.Match]) with its key. An absent
// identity is never "no limit":
//
//  1. A rule that lacks its identity is dropped where another matched rule that
//     is at least as strict in mode counts anonymous traffic (identity ip).
//  2. Where none does, the rule itself counts by ip, under a key that no identity
//     value has.
//  3. Without an address the error is a *KeyError with Missing. Only a shadow rule
//     is then dropped: it must not refuse what it would never deny.
//
// A key above [MaxKeyBytes] is a *KeyError with TooLong. Resolve does not allocate
// while dst has room and each key is one value.
func Resolve(attrs map[string]string, matched []*Compiled, dst []Bound) ([]Bound, error) {
	for _, c := range matched {
		if c.Action() != ActionLimit {
			dst = append(dst, Bound{Rule: c})
			continue
		}
		key, ok := c.KeyFrom(attrs)
		if !ok {
			if !c.byIP() && anyCountsAnonymous(matched, c.Shadow()) {
				continue
			}
			if key, ok = anonymousKey(attrs); !ok {
				if c.Shadow() {
					continue
				}
				return dst, c.missing(attrs)
			}
		}
		key, err := c.bounded(key)
		if err != nil {
			return dst, err
		}
		dst = append(dst, Bound{Rule: c, Key: key})
	}
	return dst, nil
}

// byIP reports whether the rule counts anonymous traffic.
func (c *Compiled) byIP() bool {
	return len(c.rule.Identity) == 1 && c.rule.Identity[0] == attrIP
}

// anyCountsAnonymous reports whether some rule takes over a request without
// identity. A shadow rule takes over only for shadow rules.
func anyCountsAnonymous(matched []*Compiled, forShadow bool) bool {
	for _, c := range matched {
		if c.Action() == ActionLimit && c.byIP() && (forShadow || !c.Shadow()) {
			return true
		}
	}
	return false
}

func anonymousKey(attrs map[string]string) (string, bool) {
	ip, ok := canonical(attrIP, attrs[attrIP])
	if !ok {
		return "", false
	}
	return identity.AnonymousKey(ip), true
}

// missing names the first attribute that the request lacks.
func (c *Compiled) missing(attrs map[string]string) *KeyError {
	for _, name := range c.rule.Identity {
		value, given := attrs[name]
		if _, ok := canonical(name, value); !ok && given && value != "" {
			return &KeyError{
				Rule: c.rule.ID, Attribute: name, Missing: true,
				Message: quote(value) + " is not an address, and there is no other to count by",
			}
		} else if !ok {
			instead := "there is no ip to count by instead"
			if ip := attrs[attrIP]; ip != "" {
				instead = "the ip to count by instead, " + quote(ip) + ", is not an address"
			}
			return &KeyError{Rule: c.rule.ID, Attribute: name, Missing: true, Message: "is missing, and " + instead}
		}
	}
	return &KeyError{Rule: c.rule.ID, Missing: true, Message: "the rule has no identity"}
}
