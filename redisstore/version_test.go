package redisstore

import "testing"

func TestOlder(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		a, b string
		want bool
	}{
		{"6.0.16", "6.2", true},
		{"5.0.3", "6.2", true},
		{"6.2.0", "6.2", false},
		{"6.2", "6.2", false},
		{"7.0.15", "6.2", false},
		{"10.0", "6.2", false},
		{"", "6.2", true},
		{"x.y", "6.2", true},
	} {
		if got := older(row.a, row.b); got != row.want {
			t.Errorf("%q before %q: %v, want %v", row.a, row.b, got, row.want)
		}
	}
}
