package store

import (
	"fmt"
	"time"
)

// ErrorKind sorts the reasons why a store did not answer.
type ErrorKind uint8

const (
	// Timeout means no answer within the deadline. The call may have run.
	Timeout ErrorKind = 1 + iota
	// Unavailable means that the store could not be reached or cannot serve now.
	Unavailable
	// Refused means that the store will not do this: rights, memory, a
	// key of another type, arguments out of bounds.
	Refused
)

// String returns the kind's name: "timeout", "unavailable" or "refused".
func (k ErrorKind) String() string {
	switch k {
	case Timeout:
		return "timeout"
	case Unavailable:
		return "unavailable"
	case Refused:
		return "refused"
	default:
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
}

// StoreError says that a store could not answer. It is never a denial.
type StoreError struct {
	Kind ErrorKind
	// Sent says that the call may have reached the store: what it asked for may
	// have happened, and must not be sent again.
	Sent bool
	// Shard names the primary asked, if known.
	Shard string
	// Down is for how long the shard has been given up on: this call was not sent,
	// nor were those before it. 0 while calls are still sent.
	Down time.Duration
	// Err is the cause.
	Err error
}

// Error returns the kind, the shard and the cause.
func (e *StoreError) Error() string {
	if e.Shard == "" {
		return fmt.Sprintf("store %s: %v", e.Kind, e.Err)
	}
	return fmt.Sprintf("store %s at %s: %v", e.Kind, e.Shard, e.Err)
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }
