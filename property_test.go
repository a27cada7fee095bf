package tallygate_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/rules"
)

// Random checks over a few buckets, with a clock that stands: a plain table of
// what is left must agree with every verdict, and with what is left at the end.
func TestDecideAgreesWithATable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var rs []rules.Rule
		for i := range 4 {
			r := bucket(fmt.Sprintf("r%d", i), 1, 3600, int64(5+10*i))
			if i == 3 {
				r.Mode = rules.ModeShadow
			}
			rs = append(rs, r)
		}
		l := limiter(t, newClock(), rs...)
		left := make(map[string]int64)
		for _, r := range rs {
			for _, key := range []string{"a", "b"} {
				left[r.ID+"/"+key] = r.Burst
			}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "checks") {
			step(rt, l, rs, left)
		}
	})
}

// step draws a check, foretells its verdict from left, and compares.
func step(t *rapid.T, l *tallygate.Limiter, rs []rules.Rule, left map[string]int64) {
	var check tallygate.Check
	cost := make(map[string]int64)
	tooMuch := false
	for range rapid.IntRange(1, 5).Draw(t, "entries") {
		r := rs[rapid.IntRange(0, len(rs)-1).Draw(t, "rule")]
		key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
		n := rapid.Int64Range(0, 8).Draw(t, "cost")
		check.Entries = append(check.Entries, tallygate.Entry{Rule: r.ID, Key: []string{key}, Cost: n, Look: n == 0})
		name := r.ID + "/" + key
		cost[name] += n
		tooMuch = tooMuch || cost[name] > r.MaxCost && r.Mode != rules.ModeShadow
	}
	v, err := l.Check(context.Background(), check)
	if tooMuch {
		if tallygate.CodeOf(err) != tallygate.CodeInvalidCost {
			t.Fatalf("%v, want invalid_cost", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	allow := true
	for i, e := range check.Entries {
		name := e.Rule + "/" + e.Key[0]
		if !v.Entries[i].Shadow && cost[name] > left[name] {
			allow = false
		}
	}
	if v.Allow != allow || (v.DeniedBy != "") != !allow || (v.RetryMS > 0) != !allow {
		t.Fatalf("%+v, want allow %v for %v with %v left", v, allow, cost, left)
	}
	for name, n := range cost {
		if allow && n <= left[name] {
			left[name] -= n
		}
	}
	for i, e := range check.Entries {
		name := e.Rule + "/" + e.Key[0]
		if got := v.Entries[i]; !got.Shadow && got.Remaining != left[name] {
			t.Fatalf("entry %d: %+v, want %d left", i, got, left[name])
		}
	}
}

// One limiter, many goroutines: exactly the limit passes, and with two rules the
// wide one is spent exactly as often as both allowed.
func TestConcurrentChecks(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("wide", 1, 3600, 5000), bucket("narrow", 1, 3600, 1000))
	var passed atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			var v tallygate.Verdict
			for range 250 {
				if err := l.Decide(context.Background(), both("k", "wide", "narrow"), &v); err != nil {
					t.Error(err)
				}
				if v.Allow {
					passed.Add(1)
				}
			}
		})
	}
	group.Wait()
	if got := passed.Load(); got != 1000 {
		t.Errorf("%d passed, want exactly 1000", got)
	}
	if got := mustCheck(t, l, look("wide", "k")).Entries[0].Remaining; got != 4000 {
		t.Errorf("wide has %d left, want 4000", got)
	}
}
