package main

import (
	"maps"
	"slices"
)

// didYouMean returns `; did you mean "x"?` for the known word closest to word, or
// "" where none is close.
func didYouMean(word string, known []string) string {
	best, closest := "", max(2, len(word)/4)+1
	for _, k := range known {
		if d := distance(word, k); d < closest {
			best, closest = k, d
		}
	}
	if best == "" {
		return ""
	}
	return `; did you mean "` + best + `"?`
}

// distance is the number of letters to change, add or drop to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// keys returns the keys of m in order.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
