package envoyconfig

import (
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/internal/spelling"
)

func num[T int | int64 | uint32](v T) string { return strconv.FormatInt(int64(v), 10) }

// quote shows a value in a message, shortened, always in one line.
func quote(s string) string { return strconv.Quote(clip(s)) }

func clip(s string) string { return spelling.Clip(s, 100) }

// nearest returns the known word that a misspelt one most likely stands for, or "".
func nearest(word string, known []string) string {
	best, bestDistance := "", 4
	if len(word) > 64 {
		return ""
	}
	for _, k := range known {
		if d := spelling.Distance(strings.ToLower(word), k); d < bestDistance && d < len(k) {
			best, bestDistance = k, d
		}
	}
	return best
}
