// Package gateways tests the gateways that people run, as the pages in docs/gateways
// set them up: the configurations that the tests start are the ones printed there.
// It has tests only.
//
//	client ─► NGINX, HAProxy, Caddy ─► application
//	                │
//	                └─► GET /v1/ratelimit:forward
//
// Gateways run as children of the test binary on private ports of 127.0.0.1. One that
// is not installed is skipped, loudly; with CI=true in the environment its tests fail,
// except Caddy's, whose build is too slow to ask for: scripts/install-gateways.sh.
package gateways
