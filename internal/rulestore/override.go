package rulestore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/rules"
)

// maxKeyID bounds [KeyID] as text: PostgreSQL indexes no more than 2.7 kB.
const maxKeyID = 512

// KeyID is the one form of a key: addresses canonical, then the list in JSON, or
// a digest where that is long. by is the rule's identity.
func KeyID(by, key []string) string {
	parts := slices.Clone(key)
	for i, part := range parts {
		if i >= len(by) || by[i] != "ip" {
			continue
		}
		if ip, ok := identity.IP(part); ok {
			parts[i] = ip
		}
	}
	text, err := json.Marshal(parts)
	if err != nil {
		text = nil // strings always marshal
	}
	if len(text) <= maxKeyID {
		return string(text)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Identity returns what a rule counts by, as far as its live body can be read.
func (r *Rule) Identity() []string {
	rule, problems := rules.ParseRule(r.Live)
	if len(problems) > 0 {
		return nil
	}
	return rule.Identity
}

// ReadOverride reads the body of a change strictly, for stores, and returns the
// override's rule and key and the body as it is stored.
func ReadOverride(c Change) (rule string, key []string, body json.RawMessage, err error) {
	o, problems := rules.ParseOverride(c.Body)
	switch {
	case len(problems) > 0:
		return "", nil, nil, faulty(problems)
	case c.Rule != "" && c.Rule != o.Rule:
		return "", nil, nil, invalid("the body is of rule " + o.Rule)
	case c.Key != nil && !slices.Equal(c.Key, o.Key):
		return "", nil, nil, invalid("the body is of another key")
	}
	body, err = json.Marshal(o)
	return o.Rule, o.Key, body, err
}

// Fits checks an override's body against the live rule it is of.
func (r *Rule) Fits(body json.RawMessage, at time.Time) error {
	if !r.Exists() {
		return &Error{Code: NotFound, Message: "there is no such rule"}
	}
	rule, problems := rules.ParseRule(r.Live)
	if len(problems) > 0 {
		return faulty(problems)
	}
	o, problems := rules.ParseOverride(body)
	if len(problems) > 0 {
		return faulty(problems)
	}
	rule.Supersedes = nil // the others are not asked here
	_, problems = rules.Compile(nil, rules.Set{Rules: []rules.Rule{rule}, Overrides: []rules.Override{o}}, 1, at)
	if faults := problems.Faults(); len(faults) > 0 {
		return faulty(faults)
	}
	return nil
}

// CheckReset refuses a reset of no key.
func CheckReset(c Change) error {
	if len(c.Key) == 0 || len(c.Key) > rules.MaxIdentity || slices.Contains(c.Key, "") {
		return invalid("a reset names a key: 1 to 4 values, none of them empty")
	}
	size := 0
	for _, part := range c.Key {
		size += len(part)
	}
	if size > rules.MaxKeyBytes {
		return invalid("the key is above 4096 bytes")
	}
	return nil
}
