// Package wire is the JSON of rules of record on their way to pods, and into their
// snapshots on disk, exact to the byte: what is read back has the digest of what was
// written. [Mirror] is a copy of the whole set that follows changes. Nothing here
// starts a goroutine; nothing is safe for concurrent use.
package wire
