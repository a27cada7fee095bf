// Package faults breaks a real Redis Cluster in every way we know of under a steady
// load of checks, and counts what came of each of them: one shard is hurt, the others
// are not to notice.
//
//	go test ./internal/faults -faults short     // make test: about three minutes
//	go test ./internal/faults -faults full      // make test-faults: longer faults
//
// Without -faults nothing runs: what is timed here suffers from the tests of other
// packages beside it. Times are judged against the idle cluster of the same minute.
// What may be the machine's mood counts when two runs of three complain of it; what
// must never happen counts at once.
package faults
