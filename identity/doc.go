// Package identity says who is asking, in one form for every part of the
// limiter: the canonical client address, the key of several identity values,
// and the tag under which a key may leave the process.
//
//	credential, address, claim ─► IP, Key ─► rules (overrides, matching)
//	                                     └─► AppendTag ─► store keys, logs
//
// The same caller must always come out as the same key, and two callers never
// as one: a second spelling of an address is a second budget, and an ambiguous
// join of two values lets a client choose whose budget to spend. Everything
// here is a pure function or an immutable value, safe for concurrent use.
package identity
