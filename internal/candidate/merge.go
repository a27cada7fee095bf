package candidate

import (
	"cmp"
	"maps"
	"slices"
)

// Merge adds up what pods counted of one trial: the slices by their start, in its
// order, each with the MaxKeys keys of most checks. The caller sees to it that all
// are of one rule and one beginning.
func Merge(trials []Trial) []Slice {
	counts := map[int64]*Slice{}
	keys := map[int64]map[string]Count{}
	for _, trial := range trials {
		for _, slice := range trial.Slices {
			sum := counts[slice.StartMS]
			if sum == nil {
				sum = &Slice{StartMS: slice.StartMS}
				counts[slice.StartMS], keys[slice.StartMS] = sum, map[string]Count{}
			}
			sum.Count = sum.plus(slice.Count)
			for _, key := range slice.Keys {
				keys[slice.StartMS][key.Key] = keys[slice.StartMS][key.Key].plus(key.Count)
			}
		}
	}
	out := make([]Slice, 0, len(counts))
	for _, start := range slices.Sorted(maps.Keys(counts)) {
		sum := counts[start]
		sum.Keys = Top(keys[start], MaxKeys, func(c Count) int64 { return c.Checks })
		out = append(out, *sum)
	}
	return out
}

// Top returns the keys of which by is largest, at most n, largest first.
func Top(counts map[string]Count, n int, by func(Count) int64) []KeyCount {
	out := make([]KeyCount, 0, len(counts))
	for key, count := range counts {
		out = append(out, KeyCount{Key: key, Count: count})
	}
	slices.SortFunc(out, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(by(b.Count), by(a.Count)), cmp.Compare(a.Key, b.Key))
	})
	return out[:min(n, len(out))]
}

// Hardest returns the keys of which a candidate denied most that the live version
// did not, at most n, hardest first.
func Hardest(list []Slice, n int) []KeyCount {
	sums := map[string]Count{}
	for _, slice := range list {
		for _, key := range slice.Keys {
			sums[key.Key] = sums[key.Key].plus(key.Count)
		}
	}
	maps.DeleteFunc(sums, func(_ string, c Count) bool { return c.CandidateDenied <= c.LiveDenied })
	return Top(sums, n, func(c Count) int64 { return c.CandidateDenied - c.LiveDenied })
}

func (c Count) plus(d Count) Count {
	return Count{
		Checks:          c.Checks + d.Checks,
		LiveDenied:      c.LiveDenied + d.LiveDenied,
		CandidateDenied: c.CandidateDenied + d.CandidateDenied,
	}
}
