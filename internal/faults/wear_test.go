package faults_test

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestFlaps: a shard that comes and goes admits no more than its bound, however
// often a breaker opens and closes.
func TestFlaps(t *testing.T) {
	flaps := 6
	if *suite == "full" {
		flaps = 100
	}
	f := setup(t)
	was, accepted := f.connections(), f.c.Accepted()
	r := f.during(t, backWithin+500*time.Millisecond, func(r *run) {
		r.began = time.Now()
		for range flaps {
			f.front().Stall()
			hold(100 * time.Millisecond)
			f.front().Pass(t)
			soon(t, 2*backWithin, "a normal answer", func() bool { return one(f.pod, check(f.keys[0][1], open)) == allow })
		}
		r.back = time.Now()
	})
	r.closedWithinStore()
	d := r.back.Sub(r.began).Seconds()
	most := 3*tightBurst + 2*tightRate*d
	if got := len(of(r.Between(r.began, r.back), "0", tight, allow, fallbackAllow).Calls); float64(got) > most {
		t.Errorf("an open rule admitted %d of one key over %d flaps in %.1f s, want at most %.0f", got, flaps, d, most)
	}
	f.noStorm(t, was, accepted)
	r.normalWithin(backWithin)
	if len(r.moods) > 0 {
		t.Log(r.moods)
	}
}

// closedWithinStore: no closed rule passed without the store.
func (r *run) closedWithinStore() {
	r.t.Helper()
	if got := of(r.Result, "", closed, fallbackAllow); len(got.Calls) > 0 {
		r.t.Errorf("closed rules passed without the store: %s", got)
	}
}

// TestHangIsFlat: a long hang under load costs neither goroutines nor memory.
func TestHangIsFlat(t *testing.T) {
	f := setup(t)
	const workers, pace = 20, 10 * time.Millisecond // 2,000 checks a second
	stop := make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	defer close(stop)
	for w := range workers {
		group.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for i := w; ; i += workers {
				select {
				case <-stop:
					return
				case <-tick.C:
					f.ask(i)
				}
			}
		})
	}
	hold(300 * time.Millisecond)
	before := runtime.NumGoroutine()
	f.front().Stall()
	hold(500 * time.Millisecond) // what a hang needs at all
	heap, most := heapInUse(), 0
	for end := time.Now().Add(long(3*time.Second, 10*time.Second)); time.Now().Before(end); hold(10 * time.Millisecond) {
		most = max(most, runtime.NumGoroutine())
	}
	if most > before+50 {
		t.Errorf("%d goroutines during a hang, %d before it; want at most 50 more", most, before)
	}
	if grown := heapInUse() - heap; grown > 4<<20 {
		t.Errorf("the heap grew by %d KiB during a hang", grown>>10)
	}
	f.front().Pass(t)
	soon(t, backWithin+time.Second, "a normal answer", func() bool { return one(f.pod, check(f.keys[0][1], open)) == allow })
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
