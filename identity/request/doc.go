// Package request reads an *http.Request for package identity: the facts that a
// Resolver turns into attributes, and the route's template.
//
//	*http.Request ─► Of ───────────────────► identity.Facts ─► Resolver ─► attributes
//	              └► Route, Templates.Route ─► "GET /v1/labels/{id}"
//
// A route is never the path as sent: a path has many spellings and a parameter
// many values, and each would be a bucket of its own. It stands apart from package
// identity so that who only wants a key does not link net/http. Everything here is
// a pure function or an immutable value, safe for concurrent use.
package request
