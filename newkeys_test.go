package tallygate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Of a flood of invented keys only so many a second get a bucket of their own; the
// rest share one. Whom the pod knew before does not notice.
func TestNewKeys_flood(t *testing.T) {
	for name, remote := range map[string]bool{"in this process": false, "through a pod": true} {
		for _, counting := range []rules.Counting{rules.CountingLease, rules.CountingExact, rules.CountingLocal} {
			if counting == rules.CountingLocal && !remote {
				continue
			}
			t.Run(name+", "+string(counting), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					memory := store.NewMemoryStore(store.MemoryConfig{})
					var s store.Store = memory
					if remote {
						s = &elsewhere{store: memory}
					}
					r := bucket("r", 1, 3600, 2000)
					r.MaxNewKeysPerS, r.MaxCost, r.Counting = 100, 1, counting
					snapshot, problems := rules.Compile(nil, rules.Set{Rules: []rules.Rule{r}}, 1, time.Now())
					if err := problems.Err(); err != nil {
						t.Fatal(err)
					}
					l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot), Store: s, Deadline: time.Second})
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = l.Close() }()
					flooded(t, l, memory, counting)
				})
			})
		}
	}
}

// flooded has 10,000 invented keys ask within a second, and a known one with them.
func flooded(t *testing.T, l *tallygate.Limiter, memory *store.MemoryStore, counting rules.Counting) {
	t.Helper()
	mustCheck(t, l, ask("r", "known", 1))
	time.Sleep(10 * time.Millisecond)
	passed, spent := 0, int64(1)
	for i := range 10_000 {
		if mustCheck(t, l, ask("r", fmt.Sprintf("invented_%d", i), 1)).Allow {
			passed++
		}
		if i%100 != 99 {
			continue
		}
		spent++
		if v := mustCheck(t, l, ask("r", "known", 1)); !v.Allow || v.Entries[0].Remaining != 2000-spent {
			t.Fatalf("%+v, want the known key's own %d left", v, 2000-spent)
		}
		time.Sleep(10 * time.Millisecond)
	}
	// 100 at once and 100 in the second, each with a bucket, and one bucket for all
	// the others.
	if passed < 2190 || passed > 2210 {
		t.Errorf("%d invented keys passed, want about 200 and the 2000 of the shared bucket", passed)
	}
	if got := memory.Stats().Buckets; counting != rules.CountingLocal && (got < 190 || got > 210) {
		t.Errorf("%d buckets in the store, want about 200", got)
	}
	s := l.Stats()
	if s.Local.Remembered > 210 {
		t.Errorf("the pod remembers %d buckets, want about 200", s.Local.Remembered)
	}
	if got := s.Rules[0].NewKeysOverflowed; got < 9790 || got > 9810 {
		t.Errorf("%d counted as overflow, want about 9,800", got)
	}
}

// An override is for its key, not for what that shares with others; entries of one
// key are counted in one bucket; and a look lets nobody in.
func TestNewKeys_what(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := bucket("r", 1, 3600, 10)
	r.MaxNewKeysPerS = 1
	l := withStore(t, clock, clock.Memory(), rules.Set{
		Rules:     []rules.Rule{r},
		Overrides: []rules.Override{{Rule: "r", Key: []string{"big"}, Numbers: rules.Numbers{Burst: 100}}},
	})
	for range 3 {
		mustCheck(t, l, look("r", "looked at"))
	}
	if v := mustCheck(t, l, both("first", "r", "r")); v.Entries[0].Remaining != 8 || v.Entries[1].Remaining != 8 {
		t.Errorf("%+v, want one bucket for both entries", v)
	}
	for i, want := range []int64{9, 8} {
		if v := mustCheck(t, l, ask("r", fmt.Sprint(i), 1)); v.Entries[0].Remaining != want {
			t.Errorf("%+v, want %d left in the shared bucket", v, want)
		}
	}
	if v := mustCheck(t, l, ask("r", "big", 1)); v.Entries[0].Limit != 10 || v.Entries[0].Remaining != 7 {
		t.Errorf("%+v, want the rule's numbers", v)
	}
	clock.Advance(time.Second)
	if v := mustCheck(t, l, ask("r", "big", 1)); v.Entries[0].Limit != 100 || v.Entries[0].Remaining != 99 {
		t.Errorf("%+v, want the override's numbers once it is let in", v)
	}
	if got := l.Stats().Rules[0].NewKeysOverflowed; got != 3 {
		t.Errorf("%d counted, want 3", got)
	}
}

// A change of rules lets nobody in: the newcomers of this second stay counted.
func TestNewKeys_overAChange(t *testing.T) {
	t.Parallel()
	clock := newClock()
	r := bucket("r", 1, 3600, 10)
	r.MaxNewKeysPerS = 2
	first := compile(t, clock.Now(), rules.Set{Rules: []rules.Rule{bucket("before", 1, 1, 1), r}})
	next, _ := rules.Compile(first, rules.Set{Rules: []rules.Rule{r}}, 2, clock.Now())
	held := &held{snapshot: first}
	l, err := tallygate.New(tallygate.Config{Rules: held, Store: clock.Memory(), Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if i == 1 {
			held.snapshot = next
		}
		mustCheck(t, l, ask("r", fmt.Sprint(i), 1))
	}
	if got := sumOverflow(l); got != 2 {
		t.Errorf("%d shared a bucket, want 2 of 4", got)
	}
}

func sumOverflow(l *tallygate.Limiter) (n int64) {
	for _, r := range l.Stats().Rules {
		n += r.NewKeysOverflowed
	}
	return n
}

// held is rules that a test changes.
type held struct{ snapshot *rules.Snapshot }

func (h *held) Snapshot() *rules.Snapshot { return h.snapshot }
