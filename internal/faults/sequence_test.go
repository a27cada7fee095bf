package faults_test

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestFLT02_sequence: whatever is wrong with a shard, the first checks wait their
// deadline, and all that follow are answered by the pod at once, but for one a
// second that finds out whether the shard is back.
func TestFLT02_sequence(t *testing.T) {
	f := setup(t)
	for name, fault := range map[string]struct{ begin, end func() }{
		"refused": {func() { f.front().Refuse(); f.front().Cut() }, func() { f.front().Pass(t) }},
		"dropped": {f.front().Swallow, func() { f.front().Pass(t) }},
		"stopped": {func() { f.hurt().Pause(t) }, func() { f.hurt().Resume(t) }},
	} {
		t.Run(name, func(t *testing.T) {
			for try := 1; ; try++ {
				soon(t, 3*backWithin, "a normal answer", func() bool { return one(f.pod, check(f.keys[0][1], open)) == allow })
				fault.begin()
				took, began := make([]time.Duration, 0, 1000), time.Now()
				for range cap(took) {
					start := time.Now()
					if v, err := f.pod.Check(context.Background(), check(f.keys[0][1], open)); err != nil || !v.Allow || v.Degraded == "" {
						t.Fatalf("check %d: %+v, %v; want one that the pod allows", len(took)+1, v, err)
					}
					took = append(took, time.Since(start))
				}
				all := time.Since(began)
				fault.end()
				first, rest := slices.Max(took[:3]), took[3:]
				slices.Sort(rest)
				slow := 0
				for slow < len(rest) && rest[len(rest)-1-slow] > time.Millisecond {
					slow++
				}
				t.Logf("first three at most %s, then p50 %s, p99 %s, max %s, %d above 1 ms; all in %s", first, rest[len(rest)/2], rest[len(rest)*99/100], rest[len(rest)-1], slow, all)
				fine := first <= 7*time.Millisecond && rest[len(rest)*99/100] <= time.Millisecond && slow <= int(all/time.Second)+1 && all < 2*time.Second
				if fine && rest[len(rest)/2] < 20*time.Microsecond {
					break
				}
				if try == 5 {
					t.Fatal("in none of five tries all of it")
				}
			}
		})
	}
}
