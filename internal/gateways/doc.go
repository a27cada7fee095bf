// Package gateways tests the program as it is built with the gateways and clients that
// people run, each as the pages in docs set it up: the configurations and flags that the
// tests start are the ones printed there. It has tests only.
//
//	client ─► NGINX, HAProxy, Caddy ─► application
//	                │
//	                └─► GET /v1/ratelimit:forward    tallygate serve ─► Redis
//	grpcurl, client_cmd ─► gRPC, curl ─► POST /json    tallygate serve
//	client ─► tallygate proxy ─► application
//
// TestMain builds tallygate; it, the gateways and the clients run as children of the test
// binary on private ports of 127.0.0.1. scripts/install-gateways.sh installs the gateways
// and builds the clients. What is missing is skipped, loudly; with CI=true in the
// environment its tests fail.
package gateways
