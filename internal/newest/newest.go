// Package newest serves the newest content of files that loads: certificates and
// tokens that somebody replaces while the process runs. It has no goroutine: who
// asks looks, at most once a second, whether a file changed. What does not load is
// logged once and changes nothing: the last good content stays.
package newest

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// Every is the least time between two looks at the files.
const Every = time.Second

// Config says what to load.
type Config[T any] struct {
	// Files are looked at: one with another size or time of change, or that is
	// another file by now, is a reason to load. Required.
	Files []string
	// Load reads them. Its error must not show what is in them: it is logged.
	Load func() (T, error)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told of faults and changes; nil means none.
	Log *slog.Logger
}

// Value is what the files hold. Create it with [New]; safe for concurrent use.
type Value[T any] struct {
	cfg Config[T]

	mu     sync.Mutex
	value  T
	stamps []os.FileInfo
	looked time.Time
	fault  string
}

// New loads the files for the first time; there must be something good in them.
func New[T any](cfg Config[T]) (*Value[T], error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	v := &Value[T]{cfg: cfg, looked: cfg.Now()}
	// Stamps before content: what changes in between is loaded again.
	stamps, err := stat(cfg.Files)
	if err != nil {
		return nil, err
	}
	if v.value, err = cfg.Load(); err != nil {
		return nil, err
	}
	v.stamps = stamps
	return v, nil
}

// Get returns the newest content that loaded.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.cfg.Now()
	// A clock that stepped back must not keep an old content in force.
	if since := now.Sub(v.looked); since >= 0 && since < Every {
		return v.value
	}
	v.looked = now
	v.look()
	return v.value
}

// look loads the files if they changed, or if they could not be read before.
func (v *Value[T]) look() {
	stamps, err := stat(v.cfg.Files)
	if err != nil {
		v.failed(err)
		return
	}
	if same(stamps, v.stamps) {
		return
	}
	value, err := v.cfg.Load()
	if err != nil {
		// Not the stamps: a pair of files is replaced one after the other, and a
		// fault of reading may end without a change.
		v.failed(err)
		return
	}
	v.value, v.stamps, v.fault = value, stamps, ""
	v.cfg.Log.Info("took new content of files", "files", v.cfg.Files)
}

// failed logs a fault unless it was logged already.
func (v *Value[T]) failed(err error) {
	if text := err.Error(); text != v.fault {
		v.fault = text
		v.cfg.Log.Error("files cannot be used; what was there before stays in force", "files", v.cfg.Files, "error", err)
	}
}

func stat(files []string) ([]os.FileInfo, error) {
	out := make([]os.FileInfo, len(files))
	for i, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		out[i] = info
	}
	return out, nil
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		if a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) || !os.SameFile(a[i], b[i]) {
			return false
		}
	}
	return true
}
