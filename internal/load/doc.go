// Package load drives checks at a set pace and says what came of them.
//
// In an open loop check n is due at n/rate, whether or not those before it were
// answered, and its latency counts from when it was due: a server that stalls is
// charged for all who would have come meanwhile. In a closed loop every worker
// sends its next check when the last one was answered, and latency counts from
// the sending: that finds what a server can do, not what its users would feel.
//
// [Run] is the pace, of any function; [Client] is checks over HTTP. Everything is
// bounded in number and time, and all goroutines end with Run.
package load
