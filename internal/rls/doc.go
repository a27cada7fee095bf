// Package rls answers Envoy's rate limit service, version 3: ShouldRateLimit over
// gRPC, and its JSON twin at POST /json.
//
// A request's descriptors become sets of attributes (descriptors.go), a limit that a
// descriptor brings a rule of its own (override.go); the limiter decides all of them
// together, and the verdict becomes one status a descriptor, in order (reply.go,
// units.go). [Service] is that path, [Server] the gRPC server around it, which adds
// health, reflection and bounds, and counts what it cannot read (receive.go). A Service
// has no goroutine; those of a Server end with Serve. Everything is safe for concurrent
// use.
package rls
