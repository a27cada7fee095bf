// Package tallygate is a rate limiter that holds one limit per customer, in
// total, over a fleet of gateways.
//
// A [Limiter] answers a [Check] with a [Verdict]:
//
//	identify → match → store → verdict
//
// A check is all entries of one request. Each entry is a rule and a key, and has
// a bucket: one counter. All buckets of a check are decided in one step of the
// [store.Store]: either every enforced entry gets its cost, or none is spent. The
// strictest entry's verdict is the check's. A denial is a verdict, not an error;
// an [Error] says that there is no verdict.
//
// Rules come from package rules, as an immutable snapshot that a watcher swaps.
// The store decides by its own clock and can be this process ([store.MemoryStore])
// or a shared one (package redisstore). decide.go is the whole path of a request,
// from top to bottom.
//
// A Limiter on a store of its own process has no goroutine; in front of another it
// has one that ticks and one a call under way, until Close. It and everything it is
// given may be used by any number of goroutines at once; one Verdict may not.
package tallygate
