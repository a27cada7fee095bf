// Package httplimit puts a limiter in front of any http.Handler:
//
//	limit := httplimit.Handler(httplimit.Config{Limiter: limiter, Domain: "public-api"})
//	http.ListenAndServe(":8080", limit(mux))
//
// A request goes one way:
//
//	skip? ─► who asks (identity) ─► which route ─► your attributes ─► Decide
//	     ─► allowed: limit headers, next handler
//	     ─► denied: limit headers, 429 as problem+json, or your OnDeny
//	     ─► no verdict: 400 to 504 as problem+json, or your OnError
//
// The ResponseWriter is passed on as it is, so that flushing, hijacking and sendfile
// work: headers are set before the next handler runs. There is no goroutine and no
// lock of its own; handlers may be used by any number of goroutines.
package httplimit
