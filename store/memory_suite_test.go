package store_test

import (
	"testing"

	"github.com/tallygate/tallygate/store"
	"github.com/tallygate/tallygate/storetest"
)

func TestMemoryStore_suite(t *testing.T) {
	t.Run("injected clock", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) storetest.Harness {
			c := newClock()
			return storetest.Harness{Store: store.NewMemoryStore(store.MemoryConfig{Now: c.Now}), Advance: c.Advance}
		})
	})
	t.Run("real clock", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) storetest.Harness {
			return storetest.Harness{Store: store.NewMemoryStore(store.MemoryConfig{})}
		})
	})
}

// TestMemoryStore_agreesWithTheModel: the same answers to the same history.
func TestMemoryStore_agreesWithTheModel(t *testing.T) {
	ops, seeds := 25_000, uint64(6)
	if testing.Short() {
		ops, seeds = 5_000, 2
	}
	for seed := range seeds {
		c := newClock()
		m := store.NewMemoryStore(store.MemoryConfig{Now: c.Now})
		storetest.Agree(t, storetest.Harness{Store: m, Advance: c.Advance}, ops, seed)
	}
	storetest.Agree(t, storetest.Harness{Store: store.NewMemoryStore(store.MemoryConfig{})}, ops, 99)
}
