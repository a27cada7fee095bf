// Package spelling tells how far apart two words are, for messages about misspelt
// ones.
package spelling

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
