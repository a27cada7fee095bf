// Package fleet is what pods tell the control plane, and what it knows of them.
//
//	pod: Reporter, each 10 s ─► Sink: Client (POST) or the Registry itself
//	control plane: Registry ─► Pods, Rate, Trials
//	                  └─► Supervisor, each 5 s: candidate.Judge ─► stops canaries
//
// A report never holds up a check: the pod builds it aside, and one that is lost is
// made good by the next. Slices of trials are sent until they are acknowledged, and
// one that comes twice counts once.
//
// Reporter and Supervisor have one goroutine each, from Start until Close. A Registry
// has none. All are safe for concurrent use.
package fleet
