// Package spelling is for messages about words that others wrote: how far apart two are,
// and how much of one is shown.
package spelling

import "strings"

// Clip shortens a text to so many bytes, and says so by an ellipsis: messages go into logs
// and answers, values come from outside. What is no UTF-8 goes from one that is cut.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Distance is the number of bytes to change, add or drop to make b of a (the
// Levenshtein distance). It takes len(a) × len(b) steps.
func Distance(a, b string) int {
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
