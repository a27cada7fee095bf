// Package newcomers bounds how many new keys of a rule get a bucket of their own on a
// pod: a flood of invented identities then fills neither the pod's table nor the
// store, and finds no fresh bucket for each.
package newcomers

import (
	"sync"
	"time"
)

// Gate lets in so many a second, and as many at once. Its zero value is ready, and it
// is safe for concurrent use.
type Gate struct {
	mu sync.Mutex // guards what follows
	// tokens are billionths of a key, as of atNS.
	tokens, atNS int64
}

// Admit lets one in, if the rate of perS a second, at most 10^9, allows.
func (g *Gate) Admit(now time.Time, perS int64) bool {
	const one = int64(time.Second)
	g.mu.Lock()
	defer g.mu.Unlock()
	at := now.UnixNano()
	// A clock that stepped back brings nothing; the first look finds all.
	if elapsed := min(at-g.atNS, one); elapsed > 0 {
		g.tokens += elapsed * perS
	}
	g.atNS, g.tokens = at, min(g.tokens, one*perS)
	if g.tokens < one {
		return false
	}
	g.tokens -= one
	return true
}
