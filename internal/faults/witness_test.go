package faults_test

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tallygate/tallygate/internal/openloop"
	"github.com/tallygate/tallygate/internal/redistest"
)

// stallOf is from which lateness on the machine is not to be relied on: a check has
// 5 ms for its call, which takes some switches between goroutines and processes.
const stallOf = 2 * time.Millisecond

// witness pings servers, past the proxies, beside a load. So it knows when the
// machine itself stood still: what a check was late by then is not its own fault.
// What the pod burns would stall the witness too: that is bounded by run.quick.
type witness struct {
	eyes []*eye
	stop chan struct{}
	wait sync.WaitGroup
	from time.Time
	cpu  time.Duration // of this process while it watched
}

// eye pings one server.
type eye struct {
	server  *redistest.Server
	samples []sample
}

// sample is a ping that was due at and came back late after.
type sample struct{ at, late time.Duration }

func watch(servers ...*redistest.Server) *witness {
	w := &witness{stop: make(chan struct{}), from: time.Now(), cpu: cpuTime()}
	for _, s := range servers {
		e := &eye{server: s}
		w.eyes = append(w.eyes, e)
		w.wait.Go(func() { w.look(e) })
	}
	return w
}

func (w *witness) look(e *eye) {
	const every = 2 * time.Millisecond
	conn, err := e.server.Dial("", "")
	if err == nil {
		defer func() { _ = conn.Close() }()
	}
	for due := time.Since(w.from); ; {
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
		e.samples = append(e.samples, sample{due, now - due})
		due = max(due+every, now.Truncate(every))
	}
}

func (w *witness) end() {
	close(w.stop)
	w.wait.Wait()
	w.cpu = cpuTime() - w.cpu
}

// forget drops what was seen of a server that was away between two times.
func (w *witness) forget(s *redistest.Server, began, back time.Time) {
	from, to := began.Sub(w.from), back.Sub(w.from)
	for _, e := range w.eyes {
		if e.server == s {
			e.samples = slices.DeleteFunc(e.samples, func(s sample) bool { return s.at+s.late >= from-10*time.Millisecond && s.at <= to })
		}
	}
}

// late is the longest ping while a call was under way.
func (w *witness) late(r *openloop.Result, c openloop.Call) time.Duration {
	from, to := r.Start.Sub(w.from)+c.Due+c.Late, r.Start.Sub(w.from)+c.Due+c.Took
	var worst time.Duration
	for _, e := range w.eyes {
		first, _ := slices.BinarySearchFunc(e.samples, from-time.Second, func(s sample, at time.Duration) int { return int(s.at - at) })
		for _, s := range e.samples[first:] {
			if s.at > to {
				break
			}
			if s.at+s.late >= from {
				worst = max(worst, s.late)
			}
		}
	}
	return worst
}

// own is a run with what the machine was late by taken off every latency.
func (w *witness) own(r *openloop.Result) *openloop.Result {
	own := &openloop.Result{Start: r.Start, Calls: slices.Clone(r.Calls)}
	for i, c := range own.Calls {
		own.Calls[i].Took = max(0, c.Took-c.Late-w.late(r, c))
	}
	return own
}

// aftermath is how long a stall of the machine is felt: three timeouts in a row open
// a breaker, which stays open for up to a second.
const aftermath = 1200 * time.Millisecond

// calm returns the calls during which the machine did not stand still, and before
// which it did not for so long that a breaker may have opened over it.
func (w *witness) calm(r *openloop.Result) *openloop.Result {
	var stalls []time.Duration // when those ended, in order, that outlast a deadline
	for _, e := range w.eyes {
		for _, s := range e.samples {
			if s.late >= deadline-time.Millisecond {
				stalls = append(stalls, s.at+s.late)
			}
		}
	}
	slices.Sort(stalls)
	return r.Where(func(c openloop.Call) bool {
		if max(c.Late, w.late(r, c)) >= slack*stallOf {
			return false
		}
		at := r.Start.Sub(w.from) + c.Due
		next, _ := slices.BinarySearch(stalls, at-aftermath)
		return next == len(stalls) || stalls[next] > at
	})
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// hurry gives this process, and the servers it starts, priority over what else the
// machine does, where it may: what is timed here is not the machine. On Linux each
// thread has a priority of its own, which those it starts inherit.
func hurry() {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, -10)
		}
	}
}
