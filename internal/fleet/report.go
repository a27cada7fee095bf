package fleet

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/candidate"
)

// ReportEvery is how often a pod reports, in seconds.
const ReportEvery = 10

// The bounds of a report: what no pod that works reaches, and what 150 pods may
// send together.
const (
	// MaxReportBytes bounds its JSON.
	MaxReportBytes = 8 << 20
	// MaxName bounds names of pods, versions, shards and breakers' states, in bytes.
	MaxName = 256
	// MaxFaults and MaxFault bound the faults, and one of them in bytes.
	MaxFaults = 20
	MaxFault  = 1 << 10
	// MaxShards bounds the shards: as many primaries as a Redis Cluster has.
	MaxShards = 1_000
	// MaxTrials bounds trials, MaxSlices the slices of each: three minutes and two.
	MaxTrials = 1_000
	MaxSlices = 20
	// MaxRates bounds the keys of a report.
	MaxRates = 1_000
	// MaxKey bounds a key as it is shown, in bytes: rules.MaxKeyBytes and quotes.
	MaxKey = 8 << 10
	// maxCount is where whole numbers in JSON stop being exact.
	maxCount = 1 << 53
)

// Report is what one pod tells, each time anew.
type Report struct {
	// Pod is the pod's id, 1 to 256 bytes without control characters.
	Pod string `json:"pod"`
	// Revision is that of the snapshot in force.
	Revision int64  `json:"revision"`
	Version  string `json:"version,omitempty"`
	// UptimeMS is how long the pod runs.
	UptimeMS int64 `json:"uptime_ms"`
	// Faults name rules and overrides that this pod could not take, at most 20.
	Faults []string `json:"faults,omitempty"`
	// Shards are the shards of its store and how their breakers stand.
	Shards []Shard `json:"shards,omitempty"`
	// Trials are the slices that ended since the last report.
	Trials []candidate.Trial `json:"trials,omitempty"`
	// Rates are the busiest keys, at most MaxRates.
	Rates []KeyRate `json:"rates,omitempty"`
}

// Shard is one primary as a pod sees it.
type Shard struct {
	Shard   string `json:"shard"`
	Breaker string `json:"breaker"`
}

// KeyRate is how fast one key spends on a pod, in tokens a second.
type KeyRate struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Key is how the pod shows it: hashed, unless keys are plain account ids.
	Key       string  `json:"key"`
	PerSecond float64 `json:"per_s"`
}

// Receipt is what a pod is told about its report.
type Receipt struct {
	// Known is whether the control plane knew the pod. Where it did not, it has none
	// of the slices that the pod reported before: the pod sends them again.
	Known bool `json:"known"`
}

// FaultError is a report that is refused, by the field that is wrong, a JSON pointer.
type FaultError struct{ Field, Message string }

// Error returns both.
func (e *FaultError) Error() string { return e.Field + " " + e.Message }

func fault(field, format string, args ...any) error {
	return &FaultError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Validate refuses what no pod sends, with a *FaultError.
func (r *Report) Validate() error {
	switch {
	case r.Pod == "." || r.Pod == ".." || !name(r.Pod):
		return fault("/pod", "is %.80q; give 1 to %d bytes of UTF-8 without control characters", r.Pod, MaxName)
	case r.Revision < 0 || r.Revision > maxCount:
		return fault("/revision", "is %d; it is at least 0 and at most 2^53", r.Revision)
	case r.UptimeMS < 0 || r.UptimeMS > maxCount:
		return fault("/uptime_ms", "is %d; it is at least 0 and at most 2^53", r.UptimeMS)
	case r.Version != "" && !name(r.Version):
		return fault("/version", "has %d bytes; give at most %d of UTF-8 without control characters", len(r.Version), MaxName)
	case len(r.Faults) > MaxFaults:
		return fault("/faults", "has %d texts; at most %d", len(r.Faults), MaxFaults)
	case len(r.Shards) > MaxShards:
		return fault("/shards", "has %d shards; at most %d", len(r.Shards), MaxShards)
	case len(r.Trials) > MaxTrials:
		return fault("/trials", "has %d trials; at most %d", len(r.Trials), MaxTrials)
	case len(r.Rates) > MaxRates:
		return fault("/rates", "has %d keys; at most %d", len(r.Rates), MaxRates)
	}
	for i, text := range r.Faults {
		if len(text) > MaxFault || !utf8.ValidString(text) {
			return fault(fmt.Sprintf("/faults/%d", i), "has %d bytes; give at most %d of UTF-8", len(text), MaxFault)
		}
	}
	for i, s := range r.Shards {
		if !name(s.Shard) || !name(s.Breaker) {
			return fault(fmt.Sprintf("/shards/%d", i), "has a name that is not 1 to %d bytes of UTF-8 without control characters", MaxName)
		}
	}
	for i, k := range r.Rates {
		if !name(k.Domain) || !name(k.Rule) || !key(k.Key) || !(k.PerSecond >= 0 && k.PerSecond <= math.MaxFloat32) {
			return fault(fmt.Sprintf("/rates/%d", i), "needs domain, rule, a key of at most %d bytes, and per_s of at least 0", MaxKey)
		}
	}
	return validateTrials(r.Trials)
}

func validateTrials(trials []candidate.Trial) error {
	for i, trial := range trials {
		at := fmt.Sprintf("/trials/%d", i)
		switch {
		case !name(trial.Rule):
			return fault(at+"/rule", "is not 1 to %d bytes of UTF-8 without control characters", MaxName)
		case trial.SinceMS < 0 || trial.SinceMS > maxCount:
			return fault(at+"/since_ms", "is %d; it is at least 0 and at most 2^53", trial.SinceMS)
		case len(trial.Slices) > MaxSlices:
			return fault(at+"/slices", "has %d slices; at most %d", len(trial.Slices), MaxSlices)
		}
		for j, slice := range trial.Slices {
			at := fmt.Sprintf("%s/slices/%d", at, j)
			switch {
			case slice.StartMS < 0 || slice.StartMS > maxCount || slice.StartMS%candidate.SliceMS != 0:
				return fault(at+"/start_ms", "is %d; it is a multiple of %d", slice.StartMS, candidate.SliceMS)
			case len(slice.Keys) > candidate.MaxKeys:
				return fault(at+"/keys", "has %d keys; at most %d", len(slice.Keys), candidate.MaxKeys)
			case !counts(slice.Count):
				return fault(at, "has %+v; counts are at least 0 and denials at most the checks", slice.Count)
			}
			for k, c := range slice.Keys {
				if !key(c.Key) || !counts(c.Count) {
					return fault(fmt.Sprintf("%s/keys/%d", at, k), "needs a key of 1 to %d bytes, counts of at least 0, and denials of at most the checks", MaxKey)
				}
			}
		}
	}
	return nil
}

func name(s string) bool {
	return s != "" && len(s) <= MaxName && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func key(s string) bool { return s != "" && len(s) <= MaxKey && utf8.ValidString(s) }

func counts(c candidate.Count) bool {
	return c.Checks <= maxCount && c.LiveDenied >= 0 && c.LiveDenied <= c.Checks && c.CandidateDenied >= 0 && c.CandidateDenied <= c.Checks
}
