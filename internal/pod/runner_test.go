package pod_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
	"github.com/tallygate/tallygate/storetest"
)

// distant is a store with leases that takes a while to answer.
type distant struct {
	*storetest.Model
	latency time.Duration
	calls   atomic.Int64
}

func newDistant(latency time.Duration) *distant {
	return &distant{Model: storetest.NewModel(time.Now, true), latency: latency}
}

func (d *distant) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	d.calls.Add(1)
	time.Sleep(d.latency / 2)
	grants, err := d.Model.Take(ctx, ops)
	time.Sleep(d.latency / 2)
	return grants, err
}

// runners are so many pods in front of one store.
func runners(s pod.Asker, n int) []*pod.Runner {
	list := make([]*pod.Runner, n)
	for i := range list {
		list[i] = pod.NewRunner(s, 0, time.Second)
		list[i].Pod().SetPods(int64(n))
	}
	return list
}

func check(r *pod.Runner, ops []store.Op) (bool, error) {
	grants, err := r.AppendTake(context.Background(), nil, ops, nil)
	for i := range grants {
		if !grants[i].OK && !ops[i].Shadow {
			return false, err
		}
	}
	return err == nil, err
}

// TestRunner_envelope: many goroutines on several pods, mixed costs, two buckets a
// check; no span of the run admits more than the bucket would.
func TestRunner_envelope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, workers = 5, 6
		s := newDistant(time.Millisecond)
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 500, PeriodMS: 1000, Burst: 300}
		list := runners(s, pods)
		var mu sync.Mutex
		var admitted int64
		start := time.Now()
		var wg sync.WaitGroup
		for i, r := range list {
			for w := range workers {
				wg.Go(func() {
					for n := 0; time.Since(start) < 4*time.Second; n++ {
						ops := take(l, int64(1+(n+w)%3))
						ops[0].MaxCost = 3
						if w%2 == 0 {
							ops = append(ops, ops[0])
							ops[1].Bucket.Rule = fmt.Sprintf("route-%d", i%2)
						}
						ok, err := check(r, ops)
						if err != nil {
							t.Error(err)
							return
						}
						if ok {
							mu.Lock()
							admitted += ops[0].Cost
							mu.Unlock()
						}
						time.Sleep(time.Duration(1+(n*7+w)%9) * time.Millisecond)
					}
				})
			}
		}
		wg.Wait()
		d := time.Since(start)
		for _, r := range list {
			if err := errors.Join(r.Close(), r.Close()); err != nil {
				t.Error(err)
			}
		}
		most := 300 + 500*(d.Milliseconds()+1)/1000
		t.Logf("admitted %d of at most %d, %d calls", admitted, most, s.calls.Load())
		if admitted > most {
			t.Errorf("admitted %d, at most %d", admitted, most)
		}
		if admitted < most*9/10 {
			t.Errorf("admitted %d, hardly less than %d", admitted, most)
		}
	})
}

// CON-04: leases are prepaid and cannot add to a small limit.
func TestRunner_CON04(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(time.Millisecond)
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 3, PeriodMS: 10_000, Burst: 3}
		list := runners(s, 3)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for range 40 {
					ops := take(l, 1)
					ops[0].Want = 50
					if ok, err := check(list[i%3], ops); err != nil {
						t.Error(err)
					} else if ok {
						allowed.Add(1)
					}
					time.Sleep(500 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		for _, r := range list {
			_ = r.Close()
		}
		if n := allowed.Load(); n > 9 || n < 8 {
			t.Errorf("allowed %d of 2,000 in 20 s, want 9 at most and hardly less", n)
		}
	})
}

// A hundred goroutines that find no lease make one call, not a hundred.
func TestRunner_oneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(10 * time.Millisecond)
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 5000}
		r := runners(s, 1)[0]
		defer func() { _ = r.Close() }()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if ok, err := check(r, take(l, 1)); !ok || err != nil {
					t.Error(ok, err)
				}
			})
		}
		wg.Wait()
		if n := s.calls.Load(); n > 3 {
			t.Errorf("%d calls for a hundred checks at a time, want 2 or 3", n)
		}
		ops := take(l, 0)
		ops[0].How = store.Peek
		grants, err := s.Model.Take(context.Background(), ops)
		if err != nil || grants[0].Remaining+grants[0].Out != 4900 {
			t.Errorf("%+v %v, want 100 spent", grants, err)
		}
	})
}

// A waiter leaves at its own deadline, and says whether it was asked for.
func TestRunner_deadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(100 * time.Millisecond)
		r := pod.NewRunner(s, 0, 5*time.Millisecond)
		l := fast()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				asked := time.Now()
				_, err := check(r, take(l, 1))
				var e *store.StoreError
				if !errors.As(err, &e) || e.Kind != store.Timeout || e.Sent != (i == 0) {
					t.Errorf("check %d: %v", i, err)
				}
				if d := time.Since(asked); d != 5*time.Millisecond {
					t.Errorf("check %d took %s", i, d)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d != 6*time.Millisecond {
			t.Errorf("took %s", d)
		}
		_ = r.Close()
		if _, err := check(r, take(l, 1)); err == nil {
			t.Error("a closed pod asks")
		}
	})
}

// Close gives back what nobody spent.
func TestRunner_closeGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(time.Millisecond)
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 5000}
		r := runners(s, 1)[0]
		for range 200 {
			if ok, err := check(r, take(l, 1)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		ops := take(l, 0)
		ops[0].How = store.Peek
		grants, err := s.Model.Take(context.Background(), ops)
		if err != nil || grants[0].Remaining != 4800 || grants[0].Out != 0 {
			t.Errorf("%+v %v, want 4,800 left and nothing out", grants, err)
		}
	})
}

// liar answers nonsense.
type liar struct{ grant store.Grant }

func (s liar) Take(_ context.Context, ops []store.Op) ([]store.Grant, error) {
	grants := make([]store.Grant, len(ops))
	for i := range grants {
		grants[i] = s.grant
	}
	return grants, nil
}

// A store that answers nonsense lease numbers makes no pod admit more than it
// asked for, and breaks nothing.
func TestRunner_nonsense(t *testing.T) {
	const huge = 1 << 62
	for name, g := range map[string]store.Grant{
		"a lease of everything": {OK: true, Lease: huge, Generation: huge, LeaseMS: huge, Queue: huge, Remaining: huge},
		"negative numbers":      {OK: true, Lease: -5, Generation: -1, LeaseMS: -1, Queue: -7, Remaining: -1, ResetMS: -1},
		"no numbers at all":     {OK: true},
		"a denial for ever":     {RetryMS: huge},
		"a denial of the past":  {RetryMS: -huge},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runners(liar{g}, 1)[0]
				defer func() { _ = r.Close() }()
				l := fast()
				for range 50 {
					if _, err := check(r, take(l, 1)); err != nil {
						t.Fatal(err)
					}
				}
				if held := r.Pod().Held(take(l, 1)[0].Bucket); held < 0 || held > 1000 {
					t.Errorf("%d tokens held, at most the 1,000 that were asked for", held)
				}
			})
		})
	}
}

// MEM-01: a million keys leave the table at its bound and the heap flat.
func TestRunner_MEM01(t *testing.T) {
	if testing.Short() {
		t.Skip("a million keys")
	}
	const bound = 10_000
	r := pod.NewRunner(liar{store.Grant{OK: true, Remaining: 5}}, bound, time.Second)
	defer func() { _ = r.Close() }()
	ops := take(fast(), 1)
	keys := 1_000_000
	if raceEnabled {
		keys = 50_000
	}
	run := func(from, n int) {
		for i := range n {
			ops[0].Bucket.Key = fmt.Sprintf("key-%d", from+i)
			if _, err := check(r, ops); err != nil {
				t.Fatal(err)
			}
			if e := r.Pod().Entries(); e > bound {
				t.Fatalf("%d entries, at most %d", e, bound)
			}
		}
	}
	run(0, 2*bound)
	before, goroutines := heap(), runtime.NumGoroutine()
	run(2*bound, keys)
	if grown := heap() - before; grown > 20<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	if n := runtime.NumGoroutine(); n > goroutines+2 {
		t.Errorf("%d goroutines, were %d", n, goroutines)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// silent never answers by itself.
type silent struct{}

func (silent) Take(ctx context.Context, _ []store.Op) ([]store.Grant, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Close does not wait for a store without a deadline of its own.
func TestRunner_closeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := pod.NewRunner(silent{}, 0, 5*time.Millisecond)
		if _, err := check(r, take(fast(), 1)); err == nil {
			t.Error("an answer from nowhere")
		}
		start := time.Now()
		if err := r.Close(); err != nil || time.Since(start) > 2*time.Second {
			t.Errorf("closed after %s: %v", time.Since(start), err)
		}
	})
}

// What is counted is told at the end, also when a tick comes while the last calls
// are under way.
func TestRunner_closeTellsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDistant(200 * time.Millisecond)
		l := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 5000}
		r := runners(s, 1)[0]
		go func() { _, _ = check(r, take(l, 1)) }() // a call that Close waits for
		reports := take(l, 7)
		reports[0].Bucket.Rule, reports[0].How, reports[0].Want = "told", store.Add, 0
		time.Sleep(time.Millisecond)
		if _, err := r.AppendTake(context.Background(), nil, reports, []pod.Terms{{Counting: pod.Report}}); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		look := []store.Op{{Bucket: reports[0].Bucket, Limit: l, How: store.Peek}}
		grants, err := s.Model.Take(context.Background(), look)
		if err != nil || grants[0].Remaining != 4993 {
			t.Errorf("%+v %v, want 4,993 left", grants, err)
		}
	})
}
