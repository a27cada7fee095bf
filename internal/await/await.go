// Package await is how tests wait for what others do, a goroutine, a process or a
// server: by asking again until it has happened. How long that takes proves nothing, so
// it may take long, on a busy machine as well.
package await

import (
	"testing"
	"time"
)

const (
	// hangs is when it will not happen any more.
	hangs = time.Minute
	every = 2 * time.Millisecond
)

// That returns once ok is true, and ends the test where it never is. ok is called by the
// caller's goroutine, at once and then every 2 ms.
func That(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(hangs); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", hangs, what)
		}
	}
}
