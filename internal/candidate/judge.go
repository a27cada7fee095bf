package candidate

import (
	"fmt"
	"slices"
)

// The numbers by which a trial is judged.
const (
	// WindowMS is how much of a trial is judged: its last minute.
	WindowMS = 60_000
	// LateMS is how long after its end a slice is judged at the earliest: pods report
	// every 10 s, give or take a tenth, and the report takes its way.
	LateMS = 15_000
	// EnoughChecks and EnoughKeys are what a window must have to say anything.
	EnoughChecks = 1_000
	EnoughKeys   = 20
	// Running is how many slices in a row must be too hard.
	Running = 3
	// AtOnceChecks are what it takes to stop at once, above AtOncePart denied.
	AtOnceChecks = 200
	AtOncePart   = 0.5
	// MaxKeyPart is the part of a slice that one key may make: one customer alone
	// neither stops a candidate at once nor proves it.
	MaxKeyPart = 0.2
	// SlackPart of the checks is what a candidate may deny beyond the live version.
	SlackPart = 0.005
)

// State says what is known of a candidate.
type State string

// The states of a trial.
const (
	// Collecting: it has not run for a minute yet.
	Collecting State = "collecting"
	// NotProven: it has, and there is too little to judge by, or it is too hard in
	// stage shadow, where that harms nobody.
	NotProven State = "not_proven"
	// Proven: there is enough, and nothing against it.
	Proven State = "proven"
	// Stop: it is in stage canary and denies too much.
	Stop State = "stop"
)

// Verdict is what Judge says.
type Verdict struct {
	State State `json:"state"`
	// Why is a sentence for people, with the figures.
	Why string `json:"why"`
	// Count are the checks of the window as they were counted, Keys how many keys
	// the sketches know of them.
	Count
	Keys int `json:"keys"`
}

// Judge judges a trial by the slices of all pods, as Merge returns them. canary says
// whether pods enforce the candidate; stopping is for that stage only.
//
// Slices count in the last minute of those that ended LateMS before nowMS. In each,
// a key that makes more than a fifth of the checks is scaled down, denials too, until
// it makes exactly a fifth of what is then left. Of these counts, with at least 1,000
// checks and 20 keys in the window, a slice is too hard where the candidate denied
// more than max(2 × live, live + 0.5 % of checks); three too hard slices in a row are
// the end. So are 200 checks in a row of slices, late or not, of which the candidate
// denied more than half, and more than live + 0.5 %.
func Judge(canary bool, list []Slice, nowMS int64) Verdict {
	end := (nowMS - LateMS) / SliceMS * SliceMS
	window := between(list, end-WindowMS, end)
	v := Verdict{State: Collecting, Why: "no check was counted yet"}
	var fair []weighed
	keys := map[string]bool{}
	for _, slice := range window {
		v.Count = v.plus(slice.Count)
		for _, key := range slice.Keys {
			keys[key.Key] = true
		}
		fair = append(fair, weigh(slice))
	}
	v.Keys = len(keys)
	if why := tooHard(fair, v.Keys); why != "" {
		return v.against(canary, why)
	}
	if why := farTooHard(between(list, end-WindowMS, nowMS+SliceMS)); why != "" {
		return v.against(canary, why)
	}
	if len(list) == 0 {
		return v
	}
	checks := total(fair).checks
	switch {
	case list[0].StartMS > end-WindowMS:
		v.Why = fmt.Sprintf("the trial has run for %d s that can be judged, of 60 s", max(end-list[0].StartMS, 0)/1000)
	case checks < EnoughChecks:
		v.State, v.Why = NotProven, fmt.Sprintf("%.0f checks in a minute are too few, with one key counting for at most a fifth; it takes %d", checks, EnoughChecks)
	case v.Keys < EnoughKeys:
		v.State, v.Why = NotProven, fmt.Sprintf("%d keys are too few; it takes %d", v.Keys, EnoughKeys)
	default:
		v.State, v.Why = Proven, fmt.Sprintf("of %d checks of %d keys in a minute it denied %d, the live version %d", v.Checks, v.Keys, v.CandidateDenied, v.LiveDenied)
	}
	return v
}

// against is the verdict that a candidate is too hard.
func (v Verdict) against(canary bool, why string) Verdict {
	v.State, v.Why = NotProven, why
	if canary {
		v.State = Stop
	}
	return v
}

// between returns slices that begin from one moment on and before another.
func between(list []Slice, fromMS, toMS int64) []Slice {
	start := slices.IndexFunc(list, func(s Slice) bool { return s.StartMS >= fromMS })
	if start < 0 {
		return nil
	}
	list = list[start:]
	if end := slices.IndexFunc(list, func(s Slice) bool { return s.StartMS >= toMS }); end >= 0 {
		list = list[:end]
	}
	return list
}

// tooHard says why a window is, or "".
func tooHard(window []weighed, keys int) string {
	if total(window).checks < EnoughChecks || keys < EnoughKeys {
		return ""
	}
	for i := range window {
		if i+Running > len(window) {
			break
		}
		run := window[i : i+Running]
		if run[Running-1].startMS-run[0].startMS != (Running-1)*SliceMS {
			continue // nothing was counted in between
		}
		if !slices.ContainsFunc(run, func(w weighed) bool { return !w.hard() }) {
			sum := total(run)
			return fmt.Sprintf("in three slices of 10 s running the candidate denied %s of checks and the live version %s, with one key counting for at most a fifth",
				percent(sum.candidate, sum.checks), percent(sum.live, sum.checks))
		}
	}
	return ""
}

// farTooHard says why some 200 checks are, or "". Whatever slice they end in, they
// are as few slices as it takes.
func farTooHard(list []Slice) string {
	for last := range list {
		var sum weighed
		for i := last; i >= 0 && sum.checks < AtOnceChecks; i-- {
			sum = sum.plus(weigh(list[i]))
		}
		if sum.checks >= AtOnceChecks && sum.candidate > AtOncePart*sum.checks && sum.candidate > sum.live+SlackPart*sum.checks {
			return fmt.Sprintf("of %.0f checks the candidate denied %s and the live version %s, with one key counting for at most a fifth",
				sum.checks, percent(sum.candidate, sum.checks), percent(sum.live, sum.checks))
		}
	}
	return ""
}

func percent(part, whole float64) string {
	if whole == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*part/whole)
}
