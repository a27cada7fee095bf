package feed

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// Defaults of a [HubConfig].
const (
	// DefaultResync is how often the hub asks without a hint: all of them may be lost.
	DefaultResync = 5 * time.Second
	// DefaultKeep is how many changed rows a hub remembers: some MB, and more than
	// anybody changes while a pod restarts.
	DefaultKeep = 10_000
	// DefaultMaxWatchers is many times the largest fleet.
	DefaultMaxWatchers = 10_000
)

const (
	// loadTimeout bounds one question to the database, whose answer may be everything.
	loadTimeout = 30 * time.Second
	// retryAfter is the first pause after a failed load; it doubles up to the resync.
	retryAfter = 500 * time.Millisecond
	// quietAfter is the pause after a hint without a change, so that a source of
	// wrong hints does not keep the database busy.
	quietAfter = 50 * time.Millisecond
)

// HubConfig says what to follow.
type HubConfig struct {
	// Reader and Waiter are the database. Required.
	Reader rulestore.Reader
	Waiter rulestore.Waiter
	// Resync is the longest time between two questions, give or take a fifth; 0 means
	// DefaultResync.
	Resync time.Duration
	// WholeEvery is the time between two comparisons of everything; 0 means
	// rulestore.WholeEvery.
	WholeEvery time.Duration
	// Keep is how many changed rows to remember, so that who is behind gets changes
	// and not everything; 0 means DefaultKeep.
	Keep int
	// MaxWatchers bounds requests under way; more get 503. 0 means DefaultMaxWatchers.
	MaxWatchers int
	// WriteTimeout bounds each write of up to 64 KiB to a watcher; 0 means 10 s.
	WriteTimeout time.Duration
	// Heartbeat is the time between two comments in a stream; 0 means 15 s.
	Heartbeat time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told of outages and of what should not happen; nil means none.
	Log *slog.Logger
}

// Hub follows a database for any number of watchers; as an http.Handler it is the
// endpoint GET /v1/changes, as a rulestore.Reader that of this process. It is safe for
// concurrent use.
//
//	NewHub ─► Start (one goroutine) ─► Close
type Hub struct {
	cfg      HubConfig
	watchers chan struct{}         // a place each
	state    atomic.Pointer[state] // nil until there is a set
	closing  chan struct{}         // closed by Close: watchers go

	clock   rulestore.Clock
	first   chan struct{}         // closed after the first load, well or not
	ready   chan struct{}         // closed when there is a state
	failure atomic.Pointer[error] // of the last load; nil where it was well

	loading  sync.Mutex // held during a load
	compared time.Time  // guarded by loading

	loop loop.Loop
	bye  sync.Once
}

var (
	_ rulestore.Reader = (*Hub)(nil)
	_ rulestore.Waiter = (*Hub)(nil)
)

// NewHub returns a hub that has read nothing yet. It starts nothing.
func NewHub(cfg HubConfig) (*Hub, error) {
	switch {
	case cfg.Reader == nil || cfg.Waiter == nil:
		return nil, errors.New("feed: HubConfig.Reader and Waiter are required")
	case cfg.Resync < 0 || cfg.WholeEvery < 0 || cfg.WriteTimeout < 0 || cfg.Heartbeat < 0:
		return nil, errors.New("feed: a duration of HubConfig is negative")
	case cfg.Keep < 0 || cfg.MaxWatchers < 0:
		return nil, errors.New("feed: HubConfig.Keep or MaxWatchers is negative")
	}
	fill(&cfg.Resync, DefaultResync)
	fill(&cfg.WholeEvery, rulestore.WholeEvery)
	fill(&cfg.WriteTimeout, 10*time.Second)
	fill(&cfg.Heartbeat, 15*time.Second)
	fill(&cfg.Keep, DefaultKeep)
	fill(&cfg.MaxWatchers, DefaultMaxWatchers)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Hub{cfg: cfg, watchers: make(chan struct{}, cfg.MaxWatchers), closing: make(chan struct{}), first: make(chan struct{}), ready: make(chan struct{})}, nil
}

// fill gives a field that is zero its default.
func fill[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Start begins to follow, until Close. It does not wait for the database: see
// Ready. Started twice or after Close, it does nothing.
func (h *Hub) Start() { h.loop.Start(h.follow) }

// Close sends all watchers away and stops following; it returns when nothing of the
// hub runs any more but requests on their way out. Call it before the server's
// Shutdown, which waits for them. Closed twice, it does nothing.
func (h *Hub) Close() error {
	h.bye.Do(func() { close(h.closing) })
	h.loop.Close()
	return nil
}

// Ready reports whether there is a set to serve. Once there is, there always is.
func (h *Hub) Ready() bool { return h.state.Load() != nil }

// Revision returns the one that is served; 0 before the first.
func (h *Hub) Revision() int64 { return h.Set().Revision }

// Set returns what is served, which is not to be changed; a zero value before the
// first.
func (h *Hub) Set() rulestore.Set {
	if s := h.state.Load(); s != nil {
		return s.set
	}
	return rulestore.Set{}
}

// follow is the hub's goroutine.
func (h *Hub) follow(ctx context.Context) {
	pause := retryAfter
	for first := true; ctx.Err() == nil; first = false {
		before := h.Revision()
		err := h.Refresh(ctx)
		if first {
			close(h.first)
		}
		if err != nil {
			loop.Pause(ctx, jitter(pause))
			pause = min(2*pause, h.cfg.Resync)
			continue
		}
		pause = retryAfter
		if h.Revision() == before {
			loop.Pause(ctx, min(quietAfter, h.cfg.Resync))
		}
		h.wait(ctx)
	}
}

// Refresh asks the database now.
func (h *Hub) Refresh(ctx context.Context) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	err := h.load(ctx)
	if err == nil {
		h.answered(h.Revision())
		return nil
	}
	if ctx.Err() == nil && h.failure.Swap(&err) == nil { // an outage is told once
		h.cfg.Log.Warn("the database of the rules does not answer; pods are served what was last read",
			"error", err, "revision", h.Revision())
	}
	return err
}

// answered ends a failure.
func (h *Hub) answered(revision int64) {
	if h.failure.Swap(nil) != nil {
		h.cfg.Log.Info("the database of the rules answers again", "revision", revision)
	}
}

// wait returns at a hint, and at the latest when it is time to ask without one.
func (h *Hub) wait(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, jitter(h.cfg.Resync))
	defer cancel()
	if h.cfg.Waiter.Wait(waiting, h.Revision()) != nil {
		<-waiting.Done()
	}
}

// load asks for what changed, and from time to time for everything.
func (h *Hub) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	now := h.state.Load()
	if now == nil {
		return h.whole(ctx)
	}
	changes, err := h.since(ctx, now.set.Revision)
	switch {
	case err != nil:
		return err
	case changes.Revision < now.set.Revision:
		h.cfg.Log.Warn("the database of the rules is an older one than before; serving what is in it",
			"revision", changes.Revision, "before", now.set.Revision)
		return h.whole(ctx)
	case changes.Forgotten:
		return h.whole(ctx)
	case changes.Revision > now.set.Revision:
		h.publish(now.after(h.nameable(changes), h.cfg.Keep))
	}
	if h.cfg.Now().Sub(h.compared) < h.cfg.WholeEvery {
		return nil
	}
	return h.compare(ctx)
}

// since asks for changes, and everything for the whole; both hear the database's clock.
func (h *Hub) since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	asked := h.cfg.Now()
	changes, err := h.cfg.Reader.Since(ctx, revision)
	if err == nil {
		h.clock.Heard(asked, h.cfg.Now(), changes.Now)
	}
	return changes, err
}

func (h *Hub) everything(ctx context.Context) (rulestore.Set, error) {
	asked := h.cfg.Now()
	set, err := h.cfg.Reader.Whole(ctx)
	if err == nil {
		h.clock.Heard(asked, h.cfg.Now(), set.Now)
	}
	return set, err
}

// now is the database's clock.
func (h *Hub) now() time.Time { return h.cfg.Now().Add(h.clock.Offset()) }

// whole reads everything, and forgets what changed before.
func (h *Hub) whole(ctx context.Context) error {
	set, err := h.everything(ctx)
	if err != nil {
		return err
	}
	h.publish(newState(h.nameableSet(set)))
	h.compared = h.cfg.Now()
	return nil
}

// compare reads everything and looks whether it is what the changes made. The
// database may be a few revisions further already: then so are we, first.
func (h *Hub) compare(ctx context.Context) error {
	set, err := h.everything(ctx)
	if err != nil {
		return err
	}
	now := h.state.Load()
	if set.Revision > now.set.Revision {
		changes, err := h.since(ctx, now.set.Revision)
		if err != nil {
			return err
		}
		if changes.Revision > now.set.Revision {
			h.publish(now.after(h.nameable(changes), h.cfg.Keep))
			now = h.state.Load()
		}
	}
	if set.Revision > now.set.Revision || set.Revision < now.floor {
		return nil // another database, or too many changes at once: the next load tells
	}
	h.compared = h.cfg.Now()
	set = h.nameableSet(set)
	if set.Revision < now.set.Revision {
		set = wire.Merge(set, now.since(set.Revision))
	}
	if set.Hash != now.set.Hash {
		h.cfg.Log.Warn("somebody changed rules in the database without a new revision; serving what is in it", "revision", set.Revision)
		h.publish(newState(set))
	}
	return nil
}

// publish puts a state into force and wakes who waits. The failure before it ends
// first: who is woken reads at once.
func (h *Hub) publish(next *state) {
	h.answered(next.set.Revision)
	before := h.state.Load()
	h.state.Store(next)
	if before != nil {
		close(before.replaced)
		return
	}
	close(h.ready)
}

// nameable leaves out rows whose names JSON cannot carry, and says so.
func (h *Hub) nameable(c rulestore.Changes) rulestore.Changes {
	c.Rules, c.Overrides = h.named(c.Rules, c.Overrides)
	return c
}

func (h *Hub) nameableSet(set rulestore.Set) rulestore.Set {
	rules, overrides := h.named(set.Rules, set.Overrides)
	if len(rules) != len(set.Rules) || len(overrides) != len(set.Overrides) {
		set.Hash = rulestore.Digest(rules, overrides)
	}
	set.Rules, set.Overrides = rules, overrides
	return set
}

func (h *Hub) named(rules []rulestore.Rule, overrides []rulestore.Override) ([]rulestore.Rule, []rulestore.Override) {
	keptRules, keptOverrides := rules[:0:0], overrides[:0:0]
	for _, r := range rules {
		if !wire.Unnameable(r.ID, string(r.Candidate.Stage)) {
			keptRules = append(keptRules, r)
		}
	}
	for _, o := range overrides {
		if !wire.Unnameable(o.Rule, o.ID) {
			keptOverrides = append(keptOverrides, o)
		}
	}
	if out := len(rules) - len(keptRules) + len(overrides) - len(keptOverrides); out > 0 {
		h.cfg.Log.Warn("rows in the database have names that are not UTF-8; pods do not get them", "rows", out)
	}
	return keptRules, keptOverrides
}

// jitter spreads a time by a fifth, so that processes do not ask in step.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
