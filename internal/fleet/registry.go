package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/candidate"
)

const (
	// LiveFor is how long a pod counts as living after a report: two may be lost.
	LiveFor = 30 * time.Second
	// ForgetAfter is how long a pod is remembered that says nothing.
	ForgetAfter = time.Hour
	// MaxPods bounds the pods that are known, many times the largest fleet; beyond it
	// the one goes that has been silent longest.
	MaxPods = 10_000

	// sliceFor is how long slices are held: pods keep them for three minutes.
	sliceFor = 4 * time.Minute
	// sweepEvery is how often reports have what is old looked for.
	sweepEvery = 10 * time.Second
	// aheadBy is how far in the future a slice may begin: clocks differ a little.
	aheadBy = 20 * time.Second
	// maxHeldKeys bounds the keys of all slices together, some hundred MB: 150 pods
	// with 10 candidates have a fifth of it.
	maxHeldKeys = 10 << 20
)

// RegistryConfig has defaults for all its fields.
type RegistryConfig struct {
	// Revision returns the revision that pods should have; nil means that none is
	// behind.
	Revision func() int64
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told where slices do not fit; nil means none.
	Log *slog.Logger
}

// Registry is what is known of pods, by their reports. It holds nothing that outlives
// the process: pods tell all of it again.
type Registry struct {
	cfg RegistryConfig

	mu   sync.Mutex // guards what follows
	pods map[string]*pod
	keys int // of all slices
	full bool
	// swept is when what is old was last looked for.
	swept time.Time
}

// pod is the last report of one, and its slices.
type pod struct {
	report Report // without trials
	seenAt time.Time
	rates  map[rateName]float64
	slices map[trialName]map[int64]candidate.Slice
}

type (
	rateName  struct{ domain, rule, key string }
	trialName struct {
		rule    string
		sinceMS int64
	}
)

// Pod is one pod as the control plane knows it.
type Pod struct {
	// Report is the last one, without its trials.
	Report
	SeenAt time.Time `json:"seen_at"`
	// Live is whether that was within LiveFor.
	Live bool `json:"live"`
	// Behind is whether it worked from an older revision than it should.
	Behind bool `json:"behind"`
}

// NewRegistry returns one that knows no pod.
func NewRegistry(cfg RegistryConfig) *Registry {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Registry{cfg: cfg, pods: map[string]*pod{}}
}

var _ Sink = (*Registry)(nil)

// Report takes a report, or refuses it with a *FaultError. Slices that are too old,
// or of a future, are left out.
func (r *Registry) Report(_ context.Context, report Report) (Receipt, error) {
	if err := report.Validate(); err != nil {
		return Receipt{}, err
	}
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked(now, sweepEvery)
	p, known := r.pods[report.Pod]
	if !known {
		r.makeRoomLocked()
		p = &pod{slices: map[trialName]map[int64]candidate.Slice{}}
		r.pods[report.Pod] = p
	}
	trials := report.Trials
	report.Trials = nil
	p.report, p.seenAt = report, now
	p.rates = make(map[rateName]float64, len(report.Rates))
	for _, rate := range report.Rates {
		p.rates[rateName{rate.Domain, rate.Rule, rate.Key}] += rate.PerSecond
	}
	for _, trial := range trials {
		r.takeLocked(p, trial, now)
	}
	return Receipt{Known: known}, nil
}

// takeLocked puts slices in, each in the place of what the pod told of it before.
func (r *Registry) takeLocked(p *pod, trial candidate.Trial, now time.Time) {
	oldest, newest := now.Add(-sliceFor).UnixMilli(), now.Add(aheadBy).UnixMilli()
	of := trialName{trial.Rule, trial.SinceMS}
	for _, slice := range trial.Slices {
		if slice.StartMS < oldest || slice.StartMS > newest {
			continue
		}
		more := len(slice.Keys) - len(p.slices[of][slice.StartMS].Keys)
		if r.keys+more > maxHeldKeys {
			if !r.full {
				r.cfg.Log.Warn("pods report more trials than can be held; what is above that is not judged", "most_keys", maxHeldKeys)
			}
			r.full = true
			continue
		}
		if p.slices[of] == nil {
			p.slices[of] = map[int64]candidate.Slice{}
		}
		p.slices[of][slice.StartMS] = slice
		r.keys += more
	}
}

// dropLocked forgets slices that begin before a moment.
func (r *Registry) dropLocked(p *pod, beforeMS int64) {
	for of, list := range p.slices {
		for start, slice := range list {
			if start < beforeMS {
				r.keys -= len(slice.Keys)
				delete(list, start)
				r.full = false
			}
		}
		if len(list) == 0 {
			delete(p.slices, of)
		}
	}
}

// makeRoomLocked forgets the pod that has been silent longest if there are too many.
func (r *Registry) makeRoomLocked() {
	if len(r.pods) < MaxPods {
		return
	}
	var silent string
	for id, p := range r.pods {
		if silent == "" || p.seenAt.Before(r.pods[silent].seenAt) {
			silent = id
		}
	}
	r.removeLocked(silent)
}

// sweepLocked forgets pods that are gone and slices that are old, unless it did so
// within a time.
func (r *Registry) sweepLocked(now time.Time, within time.Duration) {
	if now.Sub(r.swept) < within {
		return
	}
	r.swept = now
	for id, p := range r.pods {
		if now.Sub(p.seenAt) >= ForgetAfter {
			r.removeLocked(id)
			continue
		}
		r.dropLocked(p, now.Add(-sliceFor).UnixMilli())
	}
}

func (r *Registry) removeLocked(id string) {
	r.dropLocked(r.pods[id], maxCount+1)
	delete(r.pods, id)
}

// Pods returns the known ones by their ids.
func (r *Registry) Pods() []Pod {
	now, wanted := r.cfg.Now(), int64(0)
	if r.cfg.Revision != nil {
		wanted = r.cfg.Revision()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLocked(now, 0)
	out := make([]Pod, 0, len(r.pods))
	for _, p := range r.pods {
		out = append(out, Pod{
			Report: p.report, SeenAt: p.seenAt,
			Live: now.Sub(p.seenAt) <= LiveFor, Behind: p.report.Revision < wanted,
		})
	}
	slices.SortFunc(out, func(a, b Pod) int { return cmp.Compare(a.Pod, b.Pod) })
	return out
}

// Rate returns how fast a key spends in all living pods together, in tokens a
// second. It is not known where none of them has it among its busiest keys.
func (r *Registry) Rate(domain, rule, key string) (perSecond float64, known bool) {
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if now.Sub(p.seenAt) > LiveFor {
			continue
		}
		rate, ok := p.rates[rateName{domain, rule, key}]
		perSecond, known = perSecond+rate, known || ok
	}
	return perSecond, known
}

// Trials returns what each pod counted of a trial that began at a moment, silent pods
// too, in their order.
func (r *Registry) Trials(rule string, sinceMS int64) []candidate.Trial {
	of := trialName{rule, sinceMS}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []candidate.Trial
	for _, id := range slices.Sorted(maps.Keys(r.pods)) {
		list := r.pods[id].slices[of]
		if len(list) == 0 {
			continue
		}
		trial := candidate.Trial{Rule: rule, SinceMS: sinceMS}
		for _, start := range slices.Sorted(maps.Keys(list)) {
			trial.Slices = append(trial.Slices, list[start])
		}
		out = append(out, trial)
	}
	return out
}
