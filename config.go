package tallygate

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Config says what a [Limiter] works with.
type Config struct {
	// Rules has the rules in force; a *rules.Watcher, or Fixed. Required.
	Rules Snapshots
	// Store holds the counts. Nil means a store.MemoryStore of this process: fine
	// for one pod, and not shared with others. The limiter does not close it.
	Store store.Store
	// Deadline is how long a check waits for the store at most, behind others that
	// ask for the same buckets. 0 means 5 ms. It does not shorten the store's own.
	Deadline time.Duration
	// LocalEntries bounds the buckets this pod remembers leases and denials of; a
	// bucket beyond it is asked of the store each time. 0 means 100,000.
	LocalEntries int
	// Now is the clock by which overrides end, so that of who writes them; counting
	// uses the store's. Nil means time.Now.
	Now func() time.Time
	// Pod is this pod's id among all pods: it decides whether the pod enforces a
	// candidate in stage canary. Pods with the same id, such as none, do alike.
	Pod string
	// ShowKey is how a key is shown in Trials and Busiest, as it may leave the pod.
	// It is called when those are, and must be safe for concurrent use. Nil shows the
	// first 16 digits of a SHA-256 digest of domain and key.
	ShowKey func(domain, key string) string
	// ReservationSecret is what a Reservation is encrypted and signed with, so that it
	// tells no key and nobody can make one. All pods that settle each other's need the
	// same. Empty means neither.
	ReservationSecret []byte
	// Log gets what no answer shows, such as why the store did not answer, at
	// most once a second. Nil means none.
	Log *slog.Logger
}

// Snapshots is where a limiter finds the rules in force. It is asked once a
// check, from any goroutine; it must be fast and never return nil.
type Snapshots interface {
	Snapshot() *rules.Snapshot
}

// Fixed returns Snapshots that never change.
func Fixed(s *rules.Snapshot) Snapshots { return fixed{s} }

type fixed struct{ snapshot *rules.Snapshot }

func (f fixed) Snapshot() *rules.Snapshot { return f.snapshot }

// validate checks c and fills in the defaults.
func (c *Config) validate() error {
	if c.Rules == nil {
		return badRequest("/Rules", "Config.Rules is required: a *rules.Watcher or tallygate.Fixed")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Deadline < 0 || c.LocalEntries < 0 {
		return badRequest("/Deadline", "Config.Deadline and Config.LocalEntries are 0 or more")
	}
	if c.Deadline == 0 {
		c.Deadline = 5 * time.Millisecond
	}
	if c.ShowKey == nil {
		c.ShowKey = digest
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Store == nil {
		c.Store = store.NewMemoryStore(store.MemoryConfig{Now: c.Now})
	}
	return nil
}

// digest shows a key so that it can be told from others, and not be read.
func digest(domain, key string) string {
	sum := sha256.Sum256([]byte(domain + "\x00" + key)) // no domain has a NUL
	return hex.EncodeToString(sum[:])[:16]
}
