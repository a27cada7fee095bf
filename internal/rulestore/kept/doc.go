// Package kept holds the last good set of rules on a pod's disk, so that a pod which
// is restarted while its rules of record are away starts with them.
//
//	Source ─► Store ─► Reader: a database, or the feed
//	            │ after each change, at most once a second
//	            ▼
//	          file: rows of the one before, and changes. It is served only while the
//	          Reader has never answered
//
// A Store has one goroutine, which writes, from Start until Close. It is safe for
// concurrent use.
package kept
