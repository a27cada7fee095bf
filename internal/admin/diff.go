package admin

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/internal/admin/api"
)

// differ returns the fields that differ between two states of a rule, in their
// order; those of the candidate are called candidate.NAME.
func differ(before, after json.RawMessage) []api.Field {
	fromLive, fromCandidate, _ := state(before)
	toLive, toCandidate, _ := state(after)
	return append(fields("", fromLive, toLive), fields("candidate.", fromCandidate, toCandidate)...)
}

// fields compares two objects member by member. What is no object is one field.
func fields(prefix string, before, after json.RawMessage) []api.Field {
	out := []api.Field{}
	var from, to map[string]json.RawMessage
	if unreadable(before, &from) || unreadable(after, &to) {
		if !bytes.Equal(before, after) {
			out = append(out, api.Field{Field: prefix + "body", Before: before, After: after})
		}
		return out
	}
	names := maps.Clone(from)
	if names == nil {
		names = map[string]json.RawMessage{}
	}
	maps.Copy(names, to)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(from[name], to[name]) {
			out = append(out, api.Field{Field: prefix + name, Before: from[name], After: to[name]})
		}
	}
	return out
}

// unreadable reports whether there is a body that is no object.
func unreadable(body json.RawMessage, into *map[string]json.RawMessage) bool {
	return len(body) > 0 && json.Unmarshal(body, into) != nil
}
