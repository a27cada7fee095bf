// Package candidate is the arithmetic of a trial: a rule and its next version are
// both asked in every check of the rule, and what they said is counted side by
// side. It is pure but for the lock of [Tally]: time is an argument, nothing is
// sent anywhere.
//
//	pod: Tally.Add, each check ─► Tally.Since: slices of 10 s ─► its report
//	control plane: Merge, all pods ─► Judge: go on, stop, proven
package candidate

// SliceMS is the length of a slice, in ms. Slices begin at multiples of it.
const SliceMS = 10_000

// Count is what both versions said of a number of checks.
type Count struct {
	Checks          int64 `json:"checks"`
	LiveDenied      int64 `json:"live_denied"`
	CandidateDenied int64 `json:"candidate_denied"`
}

// KeyCount is the count of one key, as far as a sketch knows it.
type KeyCount struct {
	// Key is how the pod shows it: hashed, unless keys are plain account ids.
	Key string `json:"key"`
	Count
}

// Slice is the count of 10 s.
type Slice struct {
	// StartMS is a multiple of SliceMS, by the clock of the control plane.
	StartMS int64 `json:"start_ms"`
	Count
	// Keys are those with most checks, at most MaxKeys.
	Keys []KeyCount `json:"keys"`
}

// MaxKeys bounds the keys of a slice: one that has a fiftieth of the checks is
// surely among them.
const MaxKeys = 64

// Trial is what a pod counted of one trial.
type Trial struct {
	Rule string `json:"rule"`
	// SinceMS is when the trial began, in Unix ms: counts of another are not of it.
	SinceMS int64   `json:"since_ms"`
	Slices  []Slice `json:"slices"`
}
