// Package pod is what one pod knows by itself of the buckets it counts in: tokens
// it has paid for in the store (leases), denials it remembers, and who waits for
// an answer (flights).
//
// Everything here is a step machine: a method is told an event and the time, and
// returns what to do. No method blocks, reads a clock or starts a goroutine, so
// that the same code runs in a gateway and in a simulation of a fleet; Runner
// puts goroutines around it. Times are nanoseconds of a monotonic clock: a pod
// that was suspended finds its leases ended.
//
// A check goes: Local; what it cannot answer, Join; the Call that comes back is
// made of the store, and its answer goes to Reply. All methods are safe for
// concurrent use.
package pod
