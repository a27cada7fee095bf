package pod

import "time"

// Counting says how exactly a pod counts a rule.
type Counting uint8

const (
	// Lease spends tokens paid for in the store, and is exact by itself near the
	// limit. It is the zero value.
	Lease Counting = iota
	// Exact asks the store for every check.
	Exact
	// Async admits on the pod's estimate and counts after.
	Async
	// Local counts in this pod alone.
	Local
	// Report counts and never denies.
	Report
)

// Terms are what a rule says of how a pod may answer for it.
type Terms struct {
	Counting Counting
	// Sync is how long async and report counts may wait to be told.
	Sync time.Duration
	// Before is the pod's own coarse bucket in front of the store.
	Before PreLimit
}

func (t Terms) sync() time.Duration {
	if t.Sync == 0 {
		return DefaultSync
	}
	return t.Sync
}

// PreLimit is a pod's own bucket in front of the store: Milli thousandths of the
// limit, or of this pod's part of it. The zero value is none.
type PreLimit struct {
	Milli     int64
	FairShare bool
}
