package spelling_test

import (
	"testing"

	"github.com/tallygate/tallygate/internal/spelling"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "rate", 4},
		{"rate", "", 4},
		{"rate", "rate", 0},
		{"rtae", "rate", 2},
		{"rates", "rate", 1},
		{"brust", "burst", 2},
		{"kitten", "sitting", 3},
	} {
		if got := spelling.Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
