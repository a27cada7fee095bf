package history_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/store"
	"github.com/tallygate/tallygate/storetest/history"
)

func TestLinearizable_MemoryStore(t *testing.T) {
	histories := 20
	if testing.Short() {
		histories = 3
	}
	history.Linearizable(t, store.NewMemoryStore(store.MemoryConfig{}), histories)
}

// getThenSet is a right store used wrongly, as a script split in two round trips
// would be: it reads what is left, and writes what it made of that later.
type getThenSet struct {
	mu     sync.Mutex
	inner  *store.MemoryStore
	pauses int
}

func (s *getThenSet) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	s.mu.Lock()
	peeks := append([]store.Op(nil), ops...)
	for i := range peeks {
		peeks[i].How = store.Peek
	}
	grants, err := s.inner.Take(ctx, peeks)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for range s.pauses {
		runtime.Gosched() // another client reads the same
	}
	for _, g := range grants {
		if !g.OK {
			return grants, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	adds := append([]store.Op(nil), ops...)
	for i := range adds {
		adds[i].How = store.Add
	}
	if _, err := s.inner.Take(ctx, adds); err != nil {
		return nil, err
	}
	for i := range grants {
		grants[i].Remaining -= ops[i].Cost
	}
	return grants, nil
}

// TestExplained_refusesGetThenSet: a store that reads and writes in two steps
// must be found out.
func TestExplained_refusesGetThenSet(t *testing.T) {
	planted := &getThenSet{inner: store.NewMemoryStore(store.MemoryConfig{}), pauses: 3}
	for seed := range uint64(5) {
		ok, err := history.Explained(planted, seed)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
	}
	t.Error("five histories of a get-then-set store were explained")
}
