package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/spelling"
)

// didYouMean returns `; did you mean "x"?` for the known word closest to word, or
// "" where none is close.
func didYouMean(word string, known []string) string {
	best, closest := "", max(2, len(word)/4)+1
	for _, k := range known {
		if len(word) > 2 && strings.HasPrefix(k, word) {
			best = k
			break // an end that is missing is likelier than a letter that is wrong
		}
		if d := spelling.Distance(word, k); d < closest {
			best, closest = k, d
		}
	}
	if best == "" {
		return ""
	}
	return `; did you mean "` + best + `"?`
}

// keys returns the keys of m in order.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
