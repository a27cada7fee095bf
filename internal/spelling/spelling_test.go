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

func TestClip(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"four", "four"},
		{"fives", "five…"},
		{"abcé", "abc…"}, // é is two bytes, of which one has room
		{"\xffabcd", "abc…"},
		{"\xffabc", "\xffabc"},
	} {
		if got := spelling.Clip(c.text, 4); got != c.want {
			t.Errorf("Clip(%q, 4) = %q, want %q", c.text, got, c.want)
		}
	}
}
