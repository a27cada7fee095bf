package request

import (
	"net/http"
	"strings"
)

// Other is the route of a request that no template matches. It is a value, not
// nothing: a rule for all routes (*) must hold for a scan of paths that do not
// exist, too.
const Other = "other"

// Route returns the template that a router has found for a request: net/http's
// ServeMux and chi, from v5.5 on, leave it in Pattern. It is "METHOD /template";
// where the pattern has no method, the request's stands before it. Without a
// pattern it is [Other].
func Route(r *http.Request) string { return Name(r.Method, r.Pattern) }

// Name returns the route of a pattern. HEAD counts as GET, since a handler of GET
// answers it, and a method that is none of HTTP's as OTHER: a client must not
// choose a bucket by inventing one.
func Name(method, pattern string) string {
	switch {
	case pattern == "":
		return Other
	case strings.IndexByte(pattern, ' ') >= 0:
		return pattern
	}
	return known(method) + " " + pattern
}

func known(method string) string {
	switch method {
	case "", http.MethodGet, http.MethodHead:
		return http.MethodGet
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return method
	default:
		return "OTHER"
	}
}
