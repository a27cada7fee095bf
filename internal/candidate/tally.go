package candidate

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// Bounds of a tally.
const (
	// MaxTrials bounds the trials that are counted at a time; those beyond it are not.
	MaxTrials = 1_000
	// Kept is how long the counts of a slice are kept, so that a pod whose report is
	// late can still tell them.
	Kept = 3 * time.Minute
	// slots is the slices kept, and the one under way.
	slots = int(Kept/time.Millisecond)/SliceMS + 1
)

// Tally counts trials on a pod. Create it with [NewTally]; it is safe for concurrent
// use. Adding to a trial that has met its keys does not allocate.
type Tally struct {
	seed maphash.Seed

	mu     sync.RWMutex // guards trials
	trials map[string]*trial
}

// NewTally returns an empty tally.
func NewTally() *Tally {
	return &Tally{seed: maphash.MakeSeed(), trials: map[string]*trial{}}
}

// trial is the slices of one trial, each at its number modulo their count.
type trial struct {
	mu      sync.Mutex // guards all of it
	sinceMS int64
	lastMS  int64 // when it was last added to
	slices  [slots]slice
}

// slice is the counts of 10 s.
type slice struct {
	startMS int64
	Count
	sketch sketch
}

// Add counts one check of the trial of a rule that began at sinceMS: what both
// versions said of it at nowMS, for that key. Counts of an earlier trial of the rule
// end with it; a check that is late for it is not counted.
func (t *Tally) Add(rule string, sinceMS, nowMS int64, key string, liveDenied, candidateDenied bool) {
	hash := maphash.String(t.seed, key)
	tr := t.trial(rule, sinceMS, nowMS)
	if tr == nil {
		return
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if sinceMS < tr.sinceMS {
		return
	}
	if sinceMS > tr.sinceMS {
		tr.restart(sinceMS)
	}
	tr.lastMS = nowMS
	count := one(liveDenied, candidateDenied)
	s := tr.slice(nowMS)
	s.Count = s.plus(count)
	s.sketch.add(hash, key, count)
}

// trial returns the trial of a rule; nil where there are too many.
func (t *Tally) trial(rule string, sinceMS, nowMS int64) *trial {
	t.mu.RLock()
	tr := t.trials[rule]
	t.mu.RUnlock()
	if tr != nil {
		return tr
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if tr = t.trials[rule]; tr != nil {
		return tr
	}
	if len(t.trials) >= MaxTrials && !t.dropLocked(nowMS) {
		return nil
	}
	tr = &trial{sinceMS: sinceMS, lastMS: nowMS}
	t.trials[rule] = tr
	return tr
}

// dropLocked forgets trials whose counts are all too old to be told, and reports
// whether there was one.
func (t *Tally) dropLocked(nowMS int64) (dropped bool) {
	for rule, tr := range t.trials {
		tr.mu.Lock()
		old := nowMS-tr.lastMS > Kept.Milliseconds()
		tr.mu.Unlock()
		if old {
			delete(t.trials, rule)
			dropped = true
		}
	}
	return dropped
}

// restart forgets what was counted: another trial of the rule has begun.
func (t *trial) restart(sinceMS int64) {
	t.sinceMS = sinceMS
	for i := range t.slices {
		t.slices[i].reset(0)
	}
}

// slice returns the slice of that time, emptied if it held another's counts.
func (t *trial) slice(nowMS int64) *slice {
	startMS := nowMS - nowMS%SliceMS
	s := &t.slices[(startMS/SliceMS)%int64(slots)]
	if s.startMS != startMS {
		s.reset(startMS)
	}
	return s
}

func (s *slice) reset(startMS int64) {
	s.startMS, s.Count = startMS, Count{}
	s.sketch.reset()
}

// Since returns the slices that began at startMS or later and have ended at nowMS, of
// all trials that have one, rules and slices in order. Keys are as they were added.
func (t *Tally) Since(startMS, nowMS int64) []Trial {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []Trial
	for rule, tr := range t.trials {
		if told := tr.since(startMS, nowMS); len(told.Slices) > 0 {
			told.Rule = rule
			out = append(out, told)
		}
	}
	slices.SortFunc(out, func(a, b Trial) int { return cmp.Compare(a.Rule, b.Rule) })
	return out
}

func (t *trial) since(startMS, nowMS int64) Trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := Trial{SinceMS: t.sinceMS}
	for i := range t.slices {
		s := &t.slices[i]
		endMS := s.startMS + SliceMS
		if s.Checks == 0 || s.startMS < startMS || endMS > nowMS || endMS < nowMS-Kept.Milliseconds() {
			continue
		}
		out.Slices = append(out.Slices, Slice{StartMS: s.startMS, Count: s.Count, Keys: s.sketch.keys()})
	}
	slices.SortFunc(out.Slices, func(a, b Slice) int { return cmp.Compare(a.StartMS, b.StartMS) })
	return out
}

// one is the count of one check.
func one(liveDenied, candidateDenied bool) Count {
	c := Count{Checks: 1}
	if liveDenied {
		c.LiveDenied = 1
	}
	if candidateDenied {
		c.CandidateDenied = 1
	}
	return c
}
