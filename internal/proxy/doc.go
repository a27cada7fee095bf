// Package proxy is a reverse proxy with a limiter in front of its upstream.
//
//	request ─► bounds, request id, exchange            proxy.go, exchange.go
//	        ─► httplimit: who asks, which route
//	        ─► back-pressure, then the limiter         decide.go, guard.go
//	        ─► X-Forwarded-*, upstream, its answer     upstream.go
//	        ─► the cost that the answer told           exchange.go
//
// HTTP/1.1, HTTP/2 in clear and over TLS, WebSockets and event streams pass through.
// No goroutine is started but by net/http and by [Proxy.Serve], which ends with it.
// A [Proxy] may be used by any number of goroutines.
package proxy
