// Package fleet is what pods tell the control plane, and what it knows of them.
package fleet

import "github.com/tallygate/tallygate/internal/candidate"

// ReportEvery is how often a pod reports, in seconds.
const ReportEvery = 10

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

// MaxRates bounds the keys of a report.
const MaxRates = 1_000

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
