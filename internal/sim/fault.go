package sim

import (
	"slices"
	"time"
)

// fault is one of the plan: exactly one of the pointers is set.
type fault struct {
	at    time.Duration
	step  *Step
	crash *Crash
	pause *Pause
	scale *Scale
	// change is of a shard.
	change *change
}

// schedule plans the faults.
func (f *fleet) schedule() {
	faults := &f.config.Faults
	for i := range faults.Steps {
		f.plan = append(f.plan, fault{at: faults.Steps[i].At, step: &faults.Steps[i]})
	}
	for i := range faults.Crashes {
		f.plan = append(f.plan, fault{at: faults.Crashes[i].At, crash: &faults.Crashes[i]})
	}
	for i := range faults.Pauses {
		f.plan = append(f.plan, fault{at: faults.Pauses[i].At, pause: &faults.Pauses[i]})
	}
	for i := range faults.Scales {
		f.plan = append(f.plan, fault{at: faults.Scales[i].At, scale: &faults.Scales[i]})
	}
	f.scheduleStore(&faults.Store)
	for i := range f.plan {
		f.heap.push(event{at: int64(f.plan[i].at), what: fails, ref: int32(i)})
	}
}

func (f *fleet) fail(x *fault) {
	switch {
	case f.ended: // a run may be shorter than its plan
	case x.step != nil:
		f.store.clock += x.step.By.Milliseconds()
	case x.crash != nil:
		f.crash(int32(x.crash.Pod))
	case x.pause != nil:
		if p := x.pause.Pod; p < len(f.pods) {
			f.pods[p].asleep = f.now + int64(x.pause.For)
		}
	case x.scale != nil:
		f.scale(x.scale.Pods)
	case x.change != nil:
		f.changeShard(x.change)
	}
}

// crash ends a pod. The last one stays: somebody must take the traffic.
func (f *fleet) crash(p int32) {
	at := slices.Index(f.live, p)
	if at < 0 || len(f.live) == 1 {
		return
	}
	f.live = slices.Delete(f.live, at, at+1)
	f.pods[p].crashed = true
}

// scale starts or drains pods, the newest first.
func (f *fleet) scale(pods int) {
	for len(f.live) < pods {
		f.birth()
		m := &f.pods[len(f.pods)-1]
		m.pod.SetPods(f.alive())
	}
	for len(f.live) > pods {
		last := len(f.live) - 1
		p := f.live[last]
		f.live = f.live[:last]
		f.drain(p)
	}
}
