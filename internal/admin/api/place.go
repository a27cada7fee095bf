package api

import (
	"encoding/base64"
	"strings"

	"github.com/tallygate/tallygate/internal/rulestore"
)

// Place is an override as the end of a page; opaque to callers. An id of a rule has
// no blank.
func Place(name rulestore.OverrideName) string {
	return base64.RawURLEncoding.EncodeToString([]byte(name.Rule + " " + name.ID))
}

// Placed is the opposite of [Place]; "" is the start.
func Placed(text string) (rulestore.OverrideName, bool) {
	if text == "" {
		return rulestore.OverrideName{}, true
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	rule, id, ok := strings.Cut(string(plain), " ")
	return rulestore.OverrideName{Rule: rule, ID: id}, err == nil && ok
}
