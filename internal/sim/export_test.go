package sim

import (
	"time"

	"github.com/tallygate/tallygate/internal/algorithm"
	"github.com/tallygate/tallygate/internal/pod"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// RunSpoiled is Run in front of a store with a planted fault: spoil changes each
// bucket after each op.
func RunSpoiled(c Config, spoil func(*algorithm.State)) (*Result, error) {
	return runPlanted(c, func(f *fleet) { f.store.spoil = spoil })
}

// RunForgetful is Run with pods whose fallbacks are fresh in each outage.
func RunForgetful(c Config) (*Result, error) {
	return runPlanted(c, func(f *fleet) {
		type answerer struct {
			pod     *pod.Pod
			outages int32
		}
		spare := map[int32]*answerer{}
		f.spoil = func(p int32, err error) (*pod.Pod, error) {
			a := spare[p]
			if a == nil || a.outages != f.shards[0].outages {
				a = &answerer{f.spare(p), f.shards[0].outages}
				spare[p] = a
			}
			return a.pod, err
		}
	})
}

// RunHoarding is Run with pods whose fallbacks get the refill of an outage at all
// times, and keep it.
func RunHoarding(c Config) (*Result, error) {
	return runPlanted(c, func(f *fleet) {
		spare := map[int32]*pod.Pod{}
		f.spoil = func(p int32, _ error) (*pod.Pod, error) {
			if spare[p] == nil {
				spare[p] = f.spare(p)
			}
			return spare[p], &store.StoreError{Kind: store.Unavailable, Down: time.Hour}
		}
	})
}

// RunBlind is Run with pods that never notice what a shard has lost.
func RunBlind(c Config) (*Result, error) {
	return runPlanted(c, func(f *fleet) { f.blind = true })
}

// RunWavingThrough is Run with pods that let pass what rules that fail closed refuse.
func RunWavingThrough(c Config) (*Result, error) {
	return runPlanted(c, func(f *fleet) {
		for i := range f.kinds {
			for j := range f.kinds[i].instead {
				f.kinds[i].instead[j].Milli = pod.OpenShare
			}
		}
	})
}

// spare is a pod that has not been asked yet.
func (f *fleet) spare(p int32) *pod.Pod {
	x := pod.New(f.podNow(&f.pods[p]), 0)
	x.SetPods(int64(f.config.Pods))
	return x
}

func runPlanted(c Config, plant func(*fleet)) (*Result, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	f := newFleet(&c)
	plant(f)
	f.run()
	return f.result(), nil
}

// FallbackLimit is what all fallbacks of a bucket may admit together.
func FallbackLimit(r *Rule, lived, least int64) limit.Limit { return fallbackLimit(r, lived, least) }
