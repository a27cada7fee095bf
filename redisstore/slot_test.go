package redisstore_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
)

// TestSlot: a real server has the last word.
func TestSlot(t *testing.T) {
	c := redistest.SharedCluster(t)
	if got := redisstore.Slot("123456789"); got != 0x31C3 {
		t.Errorf("the check value of the CRC is %#x, want 0x31c3", got)
	}
	for _, key := range []string{"", "a", "{}", "{}a", "{a", "a}", "{a}", "tg:{acct}:rule", "{a}{b}", "x{a{b}c}d", "\x00{\xff}", "ä{ö}"} {
		if got, want := redisstore.Slot(key), c.Slot(t, key); got != want {
			t.Errorf("%q: slot %d, want %d", key, got, want)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		key := rapid.StringOf(rapid.RuneFrom([]rune("{}ab:é\x00"))).Draw(r, "key")
		if got, want := redisstore.Slot(key), c.Slot(t, key); got != want {
			r.Errorf("%q: slot %d, want %d", key, got, want)
		}
	})
}
