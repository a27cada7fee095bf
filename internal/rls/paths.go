package rls

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxPaths bounds the paths that are remembered: a fleet of Envoys sends a few.
const maxPaths = 4_096

// paths keeps the text of paths that were seen, so that a request makes no copy of its
// own.
type paths struct {
	known atomic.Pointer[map[string]string]
	mu    sync.Mutex // held while one is added
}

// of returns a path as text.
func (p *paths) of(path []byte) string {
	known := p.known.Load()
	if known != nil {
		if text, ok := (*known)[string(path)]; ok {
			return text
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := string(path)
	next := map[string]string{}
	if known = p.known.Load(); known != nil {
		if len(*known) >= maxPaths {
			return text
		}
		maps.Copy(next, *known)
	}
	next[text] = text
	p.known.Store(&next)
	return text
}
