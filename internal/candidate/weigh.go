package candidate

import (
	"cmp"
	"slices"
)

// weighed is the count of a slice in which no key has more than its part.
type weighed struct {
	startMS                 int64
	checks, live, candidate float64
}

func (w weighed) plus(o weighed) weighed {
	w.checks += o.checks
	w.live += o.live
	w.candidate += o.candidate
	return w
}

func total(list []weighed) (sum weighed) {
	for _, w := range list {
		sum = sum.plus(w)
	}
	return sum
}

// hard reports whether the candidate denied more than it may.
func (w weighed) hard() bool {
	return w.candidate > max(2*w.live, w.live+SlackPart*w.checks)
}

// weigh scales the keys down that have more than MaxKeyPart of the checks. What the
// sketch does not name is of small keys.
func weigh(s Slice) weighed {
	keys := slices.Clone(s.Keys)
	slices.SortFunc(keys, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Checks, a.Checks), cmp.Compare(a.Key, b.Key))
	})
	rest := s.Count
	for _, key := range keys { // a sketch may count too much of a key: never below 0
		rest.Checks = max(rest.Checks-key.Checks, 0)
		rest.LiveDenied = max(rest.LiveDenied-key.LiveDenied, 0)
		rest.CandidateDenied = max(rest.CandidateDenied-key.CandidateDenied, 0)
	}
	most := fairShare(keys, rest.Checks)
	out := weighed{startMS: s.StartMS, checks: float64(rest.Checks), live: float64(rest.LiveDenied), candidate: float64(rest.CandidateDenied)}
	for _, key := range keys {
		scale := 1.0
		if float64(key.Checks) > most {
			scale = most / float64(key.Checks)
		}
		out = out.plus(weighed{
			checks:    scale * float64(key.Checks),
			live:      scale * float64(min(key.LiveDenied, key.Checks)),
			candidate: scale * float64(min(key.CandidateDenied, key.Checks)),
		})
	}
	return out
}

// fairShare returns the most checks of one key that are still MaxKeyPart of all that
// then count. With m keys above it and s checks of all others, it is a fifth of
// m × it + s, that is s / (5 − m): with fewer than five keys nobody counts.
func fairShare(keys []KeyCount, rest int64) float64 {
	others := rest
	for _, key := range keys {
		others += key.Checks
	}
	const parts = 1 / MaxKeyPart
	above := 0
	for above < min(len(keys), parts-1) {
		most := float64(others) / float64(parts-above)
		if float64(keys[above].Checks) <= most {
			return most
		}
		others -= keys[above].Checks
		above++
	}
	return float64(others) / float64(parts-above)
}
