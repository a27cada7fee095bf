// Package jwt verifies bearer tokens (RFC 7519) for package identity, against a set
// of public keys that the caller has read from a file.
//
//	token ─► algorithm allowed? ─► key of its kid ─► signature ─► exp, nbf, iss, aud ─► claims
//
// Whatever fails, the answer is the same: no claims. The request then is anonymous,
// it is not refused; who may call at all is for the gateway to decide. There is no
// network and no goroutine. A [Verifier] may be used by any number of goroutines,
// also while [Verifier.Load] gives it new keys.
package jwt
