package tallygate_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// epoch is where test clocks start: the start of a minute, an hour and a day.
var epoch = time.UnixMilli(1_790_035_200_000)

// patient is the deadline of tests of counts: on a busy machine less may be over before
// the store has answered, and an open rule then lets checks pass.
const patient = 5 * time.Second

// clock is a clock that stands until it is moved.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.ms.Store(epoch.UnixMilli())
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) Advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }
func (c *clock) Since(d time.Duration)   { c.ms.Store(epoch.Add(d).UnixMilli()) }
func (c *clock) Memory() *store.MemoryStore {
	return store.NewMemoryStore(store.MemoryConfig{Now: c.Now})
}

// bucket is a token bucket rule: rate tokens every perS seconds.
func bucket(id string, rate, perS, burst int64) rules.Rule {
	return rules.Rule{
		ID: id, CoversAll: true, Identity: []string{"api_key"}, Algorithm: limit.TokenBucket,
		Numbers: rules.Numbers{Rate: rate, PerS: perS, Burst: burst}, MaxCost: burst,
	}
}

// window is a rule with a limit per window.
func window(id string, algorithm limit.Algorithm, capacity, seconds int64) rules.Rule {
	return rules.Rule{
		ID: id, CoversAll: true, Identity: []string{"api_key"}, Algorithm: algorithm,
		Numbers: rules.Numbers{Limit: capacity, WindowS: seconds}, MaxCost: capacity,
	}
}

// compile makes a snapshot of rules that must be good.
func compile(t testing.TB, now time.Time, set rules.Set) *rules.Snapshot {
	t.Helper()
	snapshot, problems := rules.Compile(nil, set, 1, now)
	if err := problems.Err(); err != nil {
		t.Fatalf("rules: %v", err)
	}
	return snapshot
}

// limiter returns a limiter with these rules and a memory store on the clock.
func limiter(t testing.TB, c *clock, rs ...rules.Rule) *tallygate.Limiter {
	t.Helper()
	return withStore(t, c, c.Memory(), rules.Set{Rules: rs})
}

func withStore(t testing.TB, c *clock, s store.Store, set rules.Set) *tallygate.Limiter {
	t.Helper()
	l, err := tallygate.New(tallygate.Config{
		Rules: tallygate.Fixed(compile(t, c.Now(), set)), Store: s, Now: c.Now, Deadline: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask is a check of one entry.
func ask(rule, key string, cost int64) tallygate.Check {
	return tallygate.Check{Entries: []tallygate.Entry{{Rule: rule, Key: []string{key}, Cost: cost}}}
}

// look is a check of one entry that spends nothing.
func look(rule, key string) tallygate.Check {
	return tallygate.Check{Entries: []tallygate.Entry{{Rule: rule, Key: []string{key}, Look: true}}}
}

// both is a check of several rules for one key.
func both(key string, ids ...string) tallygate.Check {
	var c tallygate.Check
	for _, id := range ids {
		c.Entries = append(c.Entries, tallygate.Entry{Rule: id, Key: []string{key}})
	}
	return c
}

func mustCheck(t testing.TB, l *tallygate.Limiter, c tallygate.Check) tallygate.Verdict {
	t.Helper()
	v, err := l.Check(context.Background(), c)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	return v
}

// allowed counts how many of n equal checks pass.
func allowed(t testing.TB, l *tallygate.Limiter, n int, c tallygate.Check) int {
	t.Helper()
	count := 0
	for range n {
		if mustCheck(t, l, c).Allow {
			count++
		}
	}
	return count
}

func mustFail(t testing.TB, l *tallygate.Limiter, c tallygate.Check, code tallygate.Code) *tallygate.Error {
	t.Helper()
	v, err := l.Check(context.Background(), c)
	if got := tallygate.CodeOf(err); got != code {
		t.Fatalf("code %q, want %q (verdict %+v, error %v)", got, code, v, err)
	}
	return err.(*tallygate.Error) //nolint:forcetypeassert,errorlint // CodeOf says that it is one
}

// fakeStore answers with err or grants, and counts the calls.
type fakeStore struct {
	err    error
	grants []store.Grant

	mu    sync.Mutex // guards what follows: a pod asks by itself as well
	calls int
	ops   []store.Op
}

func (f *fakeStore) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.ops = slices.Clone(ops)
	return f.grants, f.err
}

// asked returns how many calls there were, and the ops of the last one.
func (f *fakeStore) asked() (calls int, ops []store.Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.ops
}
