package rulestore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/rules"
)

// maxKeyID bounds [KeyID] as text: PostgreSQL indexes no more than 2.7 kB.
const maxKeyID = 512

// KeyID is the one form of a key: addresses and networks canonical, then the list in
// JSON, or a digest where that is long. by is the rule's identity.
func KeyID(by, key []string) string {
	text, err := json.Marshal(rules.CanonicalKey(by, key))
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
	base := r.Base()
	return base.Identity()
}

// Base is the live version of a rule as its overrides need it, read once.
type Base struct {
	exists   bool
	rule     rules.Rule
	problems rules.Problems
}

// Base reads the live version.
func (r *Rule) Base() Base {
	b := Base{exists: r.Exists()}
	b.rule, b.problems = rules.ParseRule(r.Live)
	return b
}

// Identity returns what the rule counts by, as far as it can be read.
func (b *Base) Identity() []string {
	if len(b.problems) > 0 {
		return nil
	}
	return b.rule.Identity
}

// Fits checks an override without faults of its own against its rule.
func (b *Base) Fits(o *rules.Override) error {
	if !b.exists {
		return &Error{Code: NotFound, Message: "there is no such rule"}
	}
	if len(b.problems) > 0 {
		return faulty(b.problems)
	}
	if faults := b.rule.FaultsOf(o); len(faults) > 0 {
		return faulty(faults)
	}
	return nil
}

// ReadOverride reads the body of a change strictly, for stores, and returns the
// override and the body as it is stored.
func ReadOverride(c Change) (rules.Override, json.RawMessage, error) {
	o, problems := rules.ParseOverride(c.Body)
	switch {
	case len(problems) > 0:
		return rules.Override{}, nil, faulty(problems)
	case c.Rule != "" && c.Rule != o.Rule:
		return rules.Override{}, nil, invalid("the body is of rule " + o.Rule)
	case c.Key != nil && !slices.Equal(c.Key, o.Key):
		return rules.Override{}, nil, invalid("the body is of another key")
	}
	body, err := json.Marshal(o)
	return o, body, err
}

// misfitsShown is how many overrides a warning names.
const misfitsShown = 3

// Misfits returns a warning that names the overrides which do not fit a body of their
// rule, "" where all do. Those that cannot be read are warned of elsewhere. what says
// which body it is.
func Misfits(what string, body json.RawMessage, overrides []Override) string {
	rule, problems := rules.ParseRule(body)
	if len(problems) > 0 {
		return ""
	}
	count := 0
	var shown []string
	for i := range overrides {
		o, problems := rules.ParseOverride(overrides[i].Body)
		if len(problems) > 0 || len(rule.FaultsOf(&o)) == 0 {
			continue
		}
		if count++; count <= misfitsShown {
			shown = append(shown, strconv.Quote(strings.Join(o.Key, ", ")))
		}
	}
	switch {
	case count == 0:
		return ""
	case count == 1:
		return "1 override of the rule does not fit " + what + " and will be skipped: " + shown[0]
	case count > misfitsShown:
		shown = append(shown, "…")
	}
	return fmt.Sprintf("%d overrides of the rule do not fit %s and will be skipped: %s", count, what, strings.Join(shown, ", "))
}

// Patterns counts the overrides that stand for many keys. by is the rule's identity.
func Patterns(by []string, overrides []Override) int {
	count := 0
	for i := range overrides {
		if rules.IsPattern(by, overrides[i].Key) {
			count++
		}
	}
	return count
}

// CheckPatterns refuses one more pattern of a rule that has so many.
func CheckPatterns(count int) error {
	if count < rules.MaxPatterns {
		return nil
	}
	return invalid(fmt.Sprintf("the rule has %d overrides with * or for networks, and %d are the most; remove some, or use another rule", count, rules.MaxPatterns))
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
