package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Bounds of a Plan.
const (
	MaxRate     = 1_000_000
	MaxWorkers  = 1024
	MaxDuration = time.Hour
)

// ErrPlan is a plan or a target beyond its bounds.
var ErrPlan = errors.New("load")

// Outcome is what came of one check.
type Outcome uint8

const (
	// Failed means that there was no verdict.
	Failed Outcome = iota
	// Allowed is a verdict.
	Allowed
	// Denied is one too, and no failure.
	Denied
	// Degraded means allowed without being counted, since the store was away.
	Degraded

	outcomes // how many there are
)

// Plan is a pace.
type Plan struct {
	// Rate is how many checks a second are due; 0 means a closed loop.
	Rate float64
	// Workers is how many checks are under way at one time at most. In an open loop
	// checks that find none free wait, and that counts as their latency.
	Workers int
	// Duration is how long checks become due, or are sent.
	Duration time.Duration
}

func (p *Plan) validate() error {
	switch {
	case !(p.Rate >= 0 && p.Rate <= MaxRate): // NaN is in no range
		return fmt.Errorf("%w: a rate of %v is not from 0 to %d checks a second", ErrPlan, p.Rate, MaxRate)
	case p.Workers < 1 || p.Workers > MaxWorkers:
		return fmt.Errorf("%w: %d workers are not 1 to %d", ErrPlan, p.Workers, MaxWorkers)
	case p.Duration <= 0 || p.Duration > MaxDuration:
		return fmt.Errorf("%w: a duration of %s is not above 0 and up to %s", ErrPlan, p.Duration, MaxDuration)
	}
	return nil
}

// due is how many checks become due; math.MaxInt64 in a closed loop.
func (p *Plan) due() int64 {
	if p.Rate == 0 {
		return math.MaxInt64
	}
	return int64(math.Ceil(p.Rate * p.Duration.Seconds()))
}

// catchUp is how long checks that were due in time may still be sent after the
// end: a tenth of the run, or an overloaded server would prolong it without end.
func (p *Plan) catchUp() time.Duration { return max(p.Duration/10, 100*time.Millisecond) }

// Result is what came of a run.
type Result struct {
	Counts [outcomes]int64
	// Unsent are checks that were due and not sent: the workers did not keep up.
	// Their latency would have been the longest of all.
	Unsent int64
	// Took is the time from the first check's sending to the last one's answer.
	Took time.Duration
	// Max is the longest latency; percentiles are within 1 % of the truth.
	Max     time.Duration
	latency *hdrhistogram.Histogram
}

// Checks is how many checks were sent.
func (r *Result) Checks() int64 {
	var sum int64
	for _, n := range r.Counts {
		sum += n
	}
	return sum
}

// Percentile is the latency that so many percent of checks did not exceed.
func (r *Result) Percentile(percent float64) time.Duration {
	return min(r.Max, time.Duration(r.latency.ValueAtPercentile(percent)))
}

// Run calls do at the plan's pace, from its workers, with the worker's number and
// the check's. It returns when all calls have; ctx ends it early, which is no
// error. A call takes as long as do lets it.
func Run(ctx context.Context, plan Plan, do func(ctx context.Context, worker int, n int64) Outcome) (*Result, error) {
	if err := plan.validate(); err != nil {
		return nil, err
	}
	r := &run{plan: plan, total: plan.due(), start: time.Now(), do: do}
	workers := make([]*worker, plan.Workers)
	var group sync.WaitGroup
	for i := range workers {
		w := &worker{run: r, number: i, latency: newHistogram()}
		workers[i] = w
		group.Go(func() { w.work(ctx) })
	}
	group.Wait()
	result := &Result{Took: time.Since(r.start), latency: newHistogram()}
	for _, w := range workers {
		for i, n := range w.counts {
			result.Counts[i] += n
		}
		result.Max = max(result.Max, w.max)
		result.latency.Merge(w.latency)
	}
	if plan.Rate > 0 && ctx.Err() == nil {
		result.Unsent = r.total - result.Checks()
	}
	return result, nil
}

// newHistogram counts latencies of 64 ns to ten minutes, to two digits: 30 kB.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(64, int64(10*time.Minute), 2)
}

// run is what workers share.
type run struct {
	plan  Plan
	total int64
	start time.Time
	next  atomic.Int64
	do    func(ctx context.Context, worker int, n int64) Outcome
}

// worker makes one check at a time.
type worker struct {
	*run
	number  int
	counts  [outcomes]int64
	max     time.Duration
	latency *hdrhistogram.Histogram
}

func (w *worker) work(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	last := w.plan.Duration
	if w.plan.Rate > 0 {
		last += w.plan.catchUp()
	}
	for {
		n := w.next.Add(1) - 1
		if n >= w.total {
			return
		}
		now := time.Since(w.start)
		since := now
		if w.plan.Rate > 0 {
			since = time.Duration(float64(n) / w.plan.Rate * float64(time.Second))
		}
		if since > now {
			timer.Reset(since - now)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil || now >= last {
			return
		}
		w.counts[w.do(ctx, w.number, n)]++
		took := time.Since(w.start) - since
		w.max = max(w.max, took)
		_ = w.latency.RecordValue(min(int64(took), w.latency.HighestTrackableValue()))
	}
}
