// Package algorithm is the arithmetic of Tallygate: pure functions of (state,
// numbers, now, cost). It has no clock, no lock and no I/O, and every result is
// exact in integers: nothing is rounded except where a function says which way.
//
// A [State] is what a store keeps of one bucket. A store brings it to the
// present with [State.Advance] (roll, refill, convert to new numbers), books
// [State.Report]s of earlier leases, asks with [State.Ask], and spends with
// [State.Spend], [State.Queue] and [State.Lease]. Advance says whether it did
// something that must be stored even when the answer is no; all else it does
// follows from the stored state and the clock, and may be forgotten.
//
// Times are milliseconds of the UTC epoch on the store's clock, amounts are
// whole tokens, and a token bucket's level is in 1/P tokens, where P is its
// period in milliseconds: refill is then a whole number per millisecond.
//
// The Redis script computes the same, step by step; package storetest holds the
// two against a third, slow and obvious model.
//
// Values are not safe for concurrent use; functions keep no state of their own.
package algorithm
