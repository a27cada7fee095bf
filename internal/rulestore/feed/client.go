package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/loop"
	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
	"github.com/tallygate/tallygate/internal/uplink"
)

const (
	// maxAnswer bounds what is read of an answer: several times the largest set.
	maxAnswer = 256 << 20
	// askTimeout bounds an answer that is not waited for; it may be everything, over
	// a slow network.
	askTimeout = time.Minute
	// longPoll is how long the control plane is asked to wait, and pollSlack how much
	// later its answer may come.
	longPoll  = 30 * time.Second
	pollSlack = 20 * time.Second
	// retryMost is the longest pause of Wait after failures: far below the 30 s in
	// which a change reaches every pod.
	retryMost = 5 * time.Second
	// hasty is how soon an answer without a change means that nobody waited.
	hasty = time.Second
	// keptFor is how long the answer that Wait got may be used: longer, and it is
	// better to ask again.
	keptFor = 10 * time.Second
)

// ClientConfig says where the control plane is.
type ClientConfig struct {
	// URL, Token and TLS are as in uplink.Config.
	URL   string
	Token string
	TLS   *tls.Config
	// LongPoll is how long each wait of Wait is, up to MaxWait; 0 means 30 s.
	LongPoll time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log is told of outages that Wait met; nil means none.
	Log *slog.Logger
}

// Client reads the rules of record from a control plane's feed. It is safe for
// concurrent use. It holds a copy of the set, so that the comparison of everything
// costs a hash and no transfer.
type Client struct {
	cfg ClientConfig
	up  *uplink.Client

	mu     sync.Mutex  // guards what follows
	mirror wire.Mirror // what the last Whole and the Sinces after it told
	has    bool        // whether mirror is anything
	kept   *told       // an answer for the next question
}

// told is an answer of the control plane, read and checked.
type told struct {
	asked     int64 // since which revision
	at        time.Time
	whole     bool
	hash      string
	set       rulestore.Set // if whole
	changes   rulestore.Changes
	allResets []rulestore.Reset // if whole, the remembered ones
}

var (
	_ rulestore.Reader = (*Client)(nil)
	_ rulestore.Waiter = (*Client)(nil)
)

// NewClient returns a client that has asked nothing yet.
func NewClient(cfg ClientConfig) (*Client, error) {
	if cfg.LongPoll < 0 || cfg.LongPoll > MaxWait {
		return nil, fmt.Errorf("feed: ClientConfig.LongPoll is %s; give 0 to %s", cfg.LongPoll, MaxWait)
	}
	fill(&cfg.LongPoll, longPoll)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	up, err := uplink.New(uplink.Config{URL: cfg.URL, Token: cfg.Token, TLS: cfg.TLS})
	if err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, up: up}, nil
}

// URL returns where the control plane is, without secrets.
func (c *Client) URL() string { return c.up.URL() }

// Close closes idle connections. Calls under way end with their contexts.
func (c *Client) Close() error {
	c.up.Close()
	return nil
}

// Whole implements rulestore.Reader. Where changes lead to the hash that the control
// plane tells, they are all that is transferred.
func (c *Client) Whole(ctx context.Context) (rulestore.Set, error) {
	// One that is no newer than the copy may be of before the copy: it is asked again.
	if kept := c.take(func(t *told) bool { return t.whole && t.revision() > c.mirror.Revision() }); kept != nil {
		return c.adopt(kept), nil
	}
	c.mu.Lock()
	since, has := c.mirror.Revision(), c.has && c.mirror.Revision() > 0
	c.mu.Unlock()
	if has {
		t, err := c.ask(ctx, since, 0)
		if err != nil {
			return rulestore.Set{}, err
		}
		if set, ok := c.follow(t, since); ok {
			return set, nil
		}
		if t.whole {
			return c.adopt(t), nil
		}
	}
	t, err := c.ask(ctx, 0, 0)
	if err != nil {
		return rulestore.Set{}, err
	}
	if !t.whole {
		return rulestore.Set{}, errors.New("the control plane was asked for all rules and tells changes")
	}
	return c.adopt(t), nil
}

// follow brings the copy up to date by changes, and reports whether it is then what
// the control plane has.
func (c *Client) follow(t *told, since int64) (rulestore.Set, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.whole || c.mirror.Revision() != since {
		return rulestore.Set{}, false
	}
	c.mirror.Apply(t.changes)
	set := c.mirror.Set()
	if set.Hash != t.hash {
		return rulestore.Set{}, false
	}
	set.Now = c.nowOf(t)
	set.Rules, set.Overrides = slices.Clone(set.Rules), slices.Clone(set.Overrides)
	return set, true
}

// adopt takes a whole answer as the copy.
func (c *Client) adopt(t *told) rulestore.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirror.Replace(t.set)
	c.has, c.kept = true, nil // what was kept is older than this, or this
	set := t.set
	set.Now = c.nowOf(t)
	return set
}

// Since implements rulestore.Reader.
func (c *Client) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	t := c.take(func(t *told) bool { return t.asked == revision })
	if t == nil {
		var err error
		if t, err = c.ask(ctx, revision, 0); err != nil {
			return rulestore.Changes{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ours := c.has && c.mirror.Revision() == revision
	if t.whole {
		return c.differenceLocked(t, revision, ours), nil
	}
	if ours {
		c.mirror.Apply(t.changes)
	}
	changes := t.changes
	changes.Now = c.nowOf(t)
	return changes, nil
}

// differenceLocked makes changes of a whole answer: the control plane does not
// remember what happened since the revision, or has an older database. Where we do
// not know what the caller has, the answer is that only Whole tells, for which it is
// kept.
func (c *Client) differenceLocked(t *told, revision int64, ours bool) rulestore.Changes {
	if t.set.Revision < revision || !ours && revision > 0 {
		c.kept = t
		return rulestore.Changes{Revision: min(t.set.Revision, revision-1), Now: c.nowOf(t)}
	}
	var before rulestore.Set
	if ours {
		before = c.mirror.Set()
	}
	changes := wire.Diff(before, t.set)
	changes.Now = c.nowOf(t)
	for _, reset := range t.allResets {
		if reset.Revision > revision {
			changes.Resets = append(changes.Resets, reset)
		}
	}
	c.mirror.Replace(t.set)
	c.has = true
	return changes
}

// Wait implements rulestore.Waiter by long polls. What the last one tells is kept for
// the next Since or Whole, so that a change costs one request. While the control
// plane is away Wait goes on trying.
func (c *Client) Wait(ctx context.Context, since int64) error {
	failures := 0
	for {
		began := time.Now()
		t, err := c.ask(ctx, since, c.cfg.LongPoll)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if failures == 0 {
				c.logAway(err)
			}
			failures++
			loop.Pause(ctx, jitter(min(retryAfter<<min(failures-1, 10), retryMost)))
			continue
		case failures > 0:
			c.cfg.Log.Info("the control plane answers again", "failures", failures)
			failures = 0
		}
		if t.revision() != since {
			c.mu.Lock()
			c.kept = t
			c.mu.Unlock()
			return nil
		}
		if time.Since(began) < hasty {
			loop.Pause(ctx, jitter(hasty))
		}
	}
}

// logAway says that nobody answers, or that this pod is refused: it has to be let in,
// and waiting mends nothing.
func (c *Client) logAway(err error) {
	e, ok := errors.AsType[*uplink.StatusError](err)
	if ok && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden) {
		c.cfg.Log.Warn("the control plane refuses this pod: it needs a token of role pod (token-file); trying on", "error", err)
		return
	}
	c.cfg.Log.Warn("the control plane does not answer; trying on", "error", err)
}

// take returns the kept answer if it fits and is fresh, once.
func (c *Client) take(fits func(*told) bool) *told {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.kept
	if t == nil || !fits(t) {
		return nil
	}
	c.kept = nil
	if c.cfg.Now().Sub(t.at) > keptFor {
		return nil
	}
	return t
}

// nowOf is the control plane's clock now, by an answer.
func (c *Client) nowOf(t *told) time.Time {
	now := t.changes.Now
	if now.IsZero() {
		return now
	}
	return now.Add(c.cfg.Now().Sub(t.at))
}

func (t *told) revision() int64 { return t.changes.Revision }

// ask asks once and checks the answer.
func (c *Client) ask(ctx context.Context, since int64, wait time.Duration) (*told, error) {
	limit := askTimeout
	query := url.Values{"since": {strconv.FormatInt(since, 10)}}
	if wait > 0 {
		limit = wait + pollSlack
		query.Set("wait", wait.String())
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var a wire.Answer
	err := c.up.Do(ctx, uplink.Request{Method: http.MethodGet, Path: []string{"v1", "changes"}, Query: query, MaxAnswer: maxAnswer}, &a)
	if err != nil {
		return nil, err
	}
	return c.check(since, a)
}

// check refuses answers that make no sense. A revision that goes back is for
// rulestore.Source to judge.
func (c *Client) check(since int64, a wire.Answer) (*told, error) {
	t := &told{asked: since, at: c.cfg.Now(), whole: a.Whole, hash: a.Hash}
	rules, overrides, resets := a.Records()
	t.changes = rulestore.Changes{Revision: a.Revision}
	if a.NowMS > 0 {
		t.changes.Now = time.UnixMilli(a.NowMS).UTC()
	}
	switch {
	case a.Revision < 0 || a.Hash == "":
		return nil, fmt.Errorf("the control plane's answer has revision %d and hash %.80q, which makes no sense", a.Revision, a.Hash)
	case !a.Whole && a.Revision == since && len(rules)+len(overrides)+len(resets) > 0:
		return nil, fmt.Errorf("the control plane tells changes since revision %d that lead nowhere", since)
	case !a.Whole && a.Revision < since:
		return t, nil // only the whole set tells what is there
	case !a.Whole:
		t.changes.Rules, t.changes.Overrides, t.changes.Resets = rules, overrides, resets
		return t, nil
	}
	t.allResets = resets
	t.set = rulestore.Set{Revision: a.Revision, Hash: a.Hash, Rules: rules, Overrides: overrides}
	t.set.Sort()
	if got := rulestore.Digest(t.set.Rules, t.set.Overrides); got != a.Hash {
		return nil, fmt.Errorf("the rules that the control plane tells have hash %.16q, not %.16q as it says; they are not taken", got, a.Hash)
	}
	return t, nil
}
