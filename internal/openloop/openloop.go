// Package openloop drives a function at a fixed pace, whether or not earlier calls
// have returned, and keeps every latency. A latency counts from when the call was
// due: what stalls for a second is charged for all that was due meanwhile.
//
// It is for tests that ask for a p99.9 or a maximum; for long runs there is
// internal/load. Drive owns its goroutines: when it returns, all have ended.
package openloop

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxOpen bounds the calls under way. It is far above what a pace of thousands a
// second needs as long as calls end within a second: beyond it calls wait, and
// their latency grows meanwhile.
const maxOpen = 20_000

// Call is what came of one call.
type Call struct {
	// Due is when it was due, from the beginning; Late how long after that f was
	// called, and Took how long after that, Late included, it had returned. Late is
	// the machine's fault: no call waits for another one.
	Due, Late, Took time.Duration
	// Outcome is what f called it.
	Outcome string
}

// Result is what came of a run, in the order in which calls were due.
type Result struct {
	// Start is when the first call was due.
	Start time.Time
	Calls []Call
}

// Drive calls f at that many calls a second for so long, with the number of the
// call, and returns when all have ended. f runs on many goroutines.
func Drive(rate float64, length time.Duration, f func(i int) (outcome string)) *Result {
	n := int(math.Ceil(rate * length.Seconds()))
	return drive(rate, f, func(i int) bool { return i < n })
}

// DriveUntil is Drive until stop is closed.
func DriveUntil(rate float64, stop <-chan struct{}, f func(i int) (outcome string)) *Result {
	return drive(rate, f, func(int) bool {
		select {
		case <-stop:
			return false
		default:
			return true
		}
	})
}

func drive(rate float64, f func(i int) string, more func(i int) bool) *Result {
	r := &Result{Start: time.Now()}
	open := make(chan struct{}, maxOpen)
	var group sync.WaitGroup
	var mu sync.Mutex // guards r.Calls
	for i := 0; more(i); i++ {
		due := time.Duration(float64(i) / rate * float64(time.Second))
		if wait := due - time.Since(r.Start); wait > 0 {
			time.Sleep(wait)
		}
		open <- struct{}{}
		mu.Lock()
		r.Calls = append(r.Calls, Call{Due: due})
		mu.Unlock()
		group.Go(func() {
			late := time.Since(r.Start) - due
			outcome := f(i)
			took := time.Since(r.Start) - due
			mu.Lock()
			r.Calls[i] = Call{Due: due, Late: late, Took: took, Outcome: outcome}
			mu.Unlock()
			<-open
		})
	}
	group.Wait()
	return r
}

// Where returns the calls that keep says yes to.
func (r *Result) Where(keep func(Call) bool) *Result {
	part := &Result{Start: r.Start}
	for _, c := range r.Calls {
		if keep(c) {
			part.Calls = append(part.Calls, c)
		}
	}
	return part
}

// Between returns the calls that were due from one time to another.
func (r *Result) Between(from, to time.Time) *Result {
	return r.Where(func(c Call) bool {
		at := r.Start.Add(c.Due)
		return !at.Before(from) && at.Before(to)
	})
}

// Of returns the calls whose outcome is one of these.
func (r *Result) Of(outcomes ...string) *Result {
	return r.Where(func(c Call) bool { return slices.Contains(outcomes, c.Outcome) })
}

// Count is how many calls had one of these outcomes.
func (r *Result) Count(outcomes ...string) int { return len(r.Of(outcomes...).Calls) }

// Percentile returns the latency that p % of the calls did not exceed: an exact
// one, 0 if there are no calls.
func (r *Result) Percentile(p float64) time.Duration {
	if len(r.Calls) == 0 {
		return 0
	}
	took := make([]time.Duration, len(r.Calls))
	for i, c := range r.Calls {
		took[i] = c.Took
	}
	slices.Sort(took)
	rank := int(math.Ceil(p / 100 * float64(len(took))))
	return took[max(rank, 1)-1]
}

// Max returns the longest latency.
func (r *Result) Max() time.Duration { return r.Percentile(100) }

// Last returns when the last call was due, and whether there is one.
func (r *Result) Last() (time.Time, bool) {
	if len(r.Calls) == 0 {
		return time.Time{}, false
	}
	return r.Start.Add(r.Calls[len(r.Calls)-1].Due), true
}

// String says how many calls had which outcome, and how long they took.
func (r *Result) String() string {
	counts := map[string]int{}
	for _, c := range r.Calls {
		counts[c.Outcome]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls:", len(r.Calls))
	for _, outcome := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, " %s %d,", outcome, counts[outcome])
	}
	fmt.Fprintf(&b, " p50 %s, p99 %s, p99.9 %s, max %s", r.Percentile(50), r.Percentile(99), r.Percentile(99.9), r.Max())
	return b.String()
}
