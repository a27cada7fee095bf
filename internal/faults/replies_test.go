package faults_test

import (
	"fmt"
	"testing"
	"time"
)

// scriptRuns is how often the cluster has run scripts.
func (f *fixture) scriptRuns(t *testing.T) int64 {
	t.Helper()
	var n int64
	for _, node := range f.c.Nodes {
		n += node.ScriptRuns(t)
	}
	return n
}

// onceEach: no check ran the script twice. A pod's own signs of life, four a second
// and primary, may be scripts too.
func (r *run) onceEach(before int64) {
	r.t.Helper()
	own := int64(4*shards*time.Since(r.Start).Seconds()) + 2*shards
	if got := r.f.scriptRuns(r.t) - before; got > int64(len(r.Calls))+own {
		r.t.Errorf("%d runs of the script for %d checks", got, len(r.Calls))
	}
}

// TestDelays: replies are late by less than the deadline, or by more.
func TestDelays(t *testing.T) {
	for _, late := range []time.Duration{2 * time.Millisecond, 4 * time.Millisecond, 6 * time.Millisecond, 40 * time.Millisecond} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			judged(t, func(f *fixture) *run {
				t := f.t
				runs, was, accepted := f.scriptRuns(t), f.connections(), f.c.Accepted()
				r := f.during(t, backWithin+500*time.Millisecond, func(r *run) {
					f.front().Delay(late)
					r.began = time.Now().Add(2 * deadline)
					hold(long(time.Second, 5*time.Second))
					f.front().Pass(t)
					r.back = time.Now()
				})
				r.quick()
				r.othersUnharmed()
				r.normalWithin(backWithin)
				r.onceEach(runs)
				f.noStorm(t, was, accepted)
				r.closedWithinStore()
				slow := r.Between(r.began, r.back)
				switch {
				case late >= 2*deadline:
					r.closedShut()
					r.openBounded()
					r.breaks()
				case late > deadline: // a reply and a caller that is late itself may still meet
					r.openBounded()
				case late < deadline/2: // nearer to the deadline it is up to the machine
					r.normal(of(r.w.calm(slow), "0", ""), "that are a little late")
				}
				return r
			})
		})
	}
}

// TestFivePercentLate: one reply in twenty is late, and holds up those behind it on
// its connection.
func TestFivePercentLate(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		runs, was, accepted := f.scriptRuns(t), f.connections(), f.c.Accepted()
		r := f.during(t, backWithin+500*time.Millisecond, func(r *run) {
			f.front().DelaySome(20*time.Millisecond, 0.05, 1)
			r.began = time.Now()
			hold(long(2*time.Second, 10*time.Second))
			f.front().Pass(t)
			r.back = time.Now()
		})
		r.quick()
		r.othersUnharmed()
		r.normalWithin(backWithin)
		r.onceEach(runs)
		f.noStorm(t, was, accepted)
		// What is decided without the store is bounded too: no free passes.
		d := r.back.Sub(r.began).Seconds()
		if got := len(of(r.Between(r.began, r.back), "0", tight, allow, fallbackAllow).Calls); float64(got) > 3*tightBurst+2*tightRate*d {
			t.Errorf("an open rule admitted %d of one key in %.2f s, want at most %.0f", got, d, 3*tightBurst+2*tightRate*d)
		}
		return r
	})
}

// TestFLT04_repliesLost: the shard does what it is asked, and nobody hears of it.
func TestFLT04_repliesLost(t *testing.T) {
	for name, cut := range map[string]bool{"silence": false, "reset": true} {
		t.Run(name, func(t *testing.T) {
			judged(t, func(f *fixture) *run {
				t := f.t
				runs := f.scriptRuns(t)
				r := f.during(t, backWithin+500*time.Millisecond, func(r *run) {
					f.front().LoseReplies(cut)
					r.began = time.Now().Add(deadline)
					hold(long(time.Second, 5*time.Second))
					f.front().Pass(t)
					r.back = time.Now()
				})
				shardAway(r, backWithin)
				r.onceEach(runs)
				return r
			})
		})
	}
}

// TestBlackHole: packets vanish.
func TestBlackHole(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		r := f.during(t, backWithin+500*time.Millisecond, func(r *run) {
			f.front().Swallow()
			r.began = time.Now().Add(deadline)
			hold(long(time.Second, 5*time.Second))
			r.cheap()
			f.front().Pass(t)
			r.back = time.Now()
		})
		shardAway(r, backWithin)
		return r
	})
}

// TestResets: connections are reset, five times over. Checks under way are lost,
// those after it connect again.
func TestResets(t *testing.T) {
	judged(t, func(f *fixture) *run {
		t := f.t
		const times = 5
		runs, was, accepted := f.scriptRuns(t), f.connections(), f.c.Accepted()
		r := f.during(t, backWithin+500*time.Millisecond, func(r *run) {
			r.began = time.Now()
			for range times {
				f.front().Cut()
				hold(100 * time.Millisecond)
			}
			r.back = time.Now()
		})
		r.quick()
		r.othersUnharmed()
		r.normalWithin(backWithin)
		r.onceEach(runs)
		if made := f.c.Accepted() - accepted; made > times*was {
			t.Errorf("%d new connections after %d resets of %d", made, times, was)
		}
		return r
	})
}
