package faults_test

import (
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/internal/openloop"
	"github.com/tallygate/tallygate/internal/redistest"
)

// witness pings a healthy server once a millisecond beside a load, and so knows
// when the machine itself stood still: what a check was late by then is not its own
// fault. What the pod burns would stall the witness too, so that is bounded: see
// run.quick.
type witness struct {
	stop chan struct{}
	wait sync.WaitGroup

	from    time.Time
	samples []sample
	cpu     time.Duration
}

// sample is a ping that was due at and ended late after.
type sample struct{ at, late time.Duration }

// stallOf is from which lateness on the machine is not to be relied on: a check has
// 5 ms for a call, two switches between goroutines and a third to its caller.
const stallOf = 2 * time.Millisecond

func watch(healthy *redistest.Server) *witness {
	w := &witness{stop: make(chan struct{}), from: time.Now(), cpu: cpuTime()}
	w.wait.Go(func() {
		conn, err := healthy.Dial("", "")
		defer func() {
			if conn != nil {
				_ = conn.Close()
			}
		}()
		for due := time.Duration(0); ; {
			select {
			case <-w.stop:
				return
			default:
			}
			time.Sleep(due - time.Since(w.from))
			if err == nil { // without a server it still knows how late it wakes up
				_, err = conn.Do("PING")
			}
			now := time.Since(w.from)
			w.samples = append(w.samples, sample{due, now - due})
			due = max(due+time.Millisecond, now.Truncate(time.Millisecond))
		}
	})
	return w
}

func (w *witness) end() {
	close(w.stop)
	w.wait.Wait()
	w.cpu = cpuTime() - w.cpu
}

// late is the longest ping while a call was under way.
func (w *witness) late(r *openloop.Result, c openloop.Call) time.Duration {
	from := r.Start.Sub(w.from) + c.Due
	to := from + c.Took
	first, _ := slices.BinarySearchFunc(w.samples, from-time.Second, func(s sample, at time.Duration) int { return int(s.at - at) })
	var worst time.Duration
	for _, s := range w.samples[first:] {
		if s.at > to {
			break
		}
		if s.at+s.late >= from {
			worst = max(worst, s.late)
		}
	}
	return worst
}

// own is a run with what the machine was late by taken off every latency.
func (w *witness) own(r *openloop.Result) *openloop.Result {
	own := &openloop.Result{Start: r.Start, Calls: slices.Clone(r.Calls)}
	for i, c := range own.Calls {
		own.Calls[i].Took = max(0, c.Took-w.late(r, c))
	}
	return own
}

// calm returns the calls during which the machine did not stand still.
func (w *witness) calm(r *openloop.Result) *openloop.Result {
	return r.Where(func(c openloop.Call) bool { return w.late(r, c) < slack*stallOf })
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
