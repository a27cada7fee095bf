// Package sim runs a fleet of pods on virtual time: the real decision code of
// internal/pod, N times, in front of one store that keeps the accounts of
// internal/algorithm. It answers what no bench can: how often a fleet asks its
// store, how much of a limit it serves, and whether anything is ever admitted
// above the envelope, over hundreds of millions of checks.
//
// A [Config] says who asks how often, what the store and the network are like,
// and what goes wrong; [Run] steps it through and returns the [Result]. Package
// scenario reads a Config from YAML, package scenarios holds those we ship.
//
// There is one goroutine, one heap of events and one clock, which jumps from
// event to event. Each pod has a monotonic clock of its own, the store's clock
// counts whole milliseconds and may be stepped. Whatever is random comes from
// generators seeded by Config.Seed, one for the traffic and one for the network,
// so that a change of the pod's code meets the same traffic: the same seed gives
// the same trace, told by a hash over every decision.
//
// The hot loop allocates nothing of its own: events, checks and calls are values
// in slabs that are used again.
package sim
