package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
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
// concurrent use. It holds no rows: changes come with the digest of all there is, which
// tells who follows them whether they have it.
type Client struct {
	cfg ClientConfig
	up  *uplink.Client

	mu sync.Mutex // guards what follows
	// kept is an answer for the next Since, left one of everything for the next Whole.
	kept, left *told
}

// told is an answer of the control plane, read and checked.
type told struct {
	wire.Answer
	asked int64 // since which revision
	at    time.Time
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

// Whole implements rulestore.Reader.
func (c *Client) Whole(ctx context.Context) (rulestore.Set, error) {
	t := c.take(&c.left, func(*told) bool { return true })
	if t == nil {
		var err error
		if t, err = c.ask(ctx, 0, 0); err != nil {
			return rulestore.Set{}, err
		}
		if !t.Whole {
			return rulestore.Set{}, errors.New("the control plane was asked for all rules and tells changes")
		}
	}
	return rulestore.Set{Revision: t.Revision, Now: c.nowOf(t), Hash: t.Hash, Rules: t.Rules, Overrides: t.Overrides}, nil
}

// Since implements rulestore.Reader.
func (c *Client) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	t := c.take(&c.kept, func(t *told) bool { return t.asked == revision })
	if t == nil {
		var err error
		if t, err = c.ask(ctx, revision, 0); err != nil {
			return rulestore.Changes{}, err
		}
	}
	changes := rulestore.Changes{Revision: t.Revision, Now: c.nowOf(t), Hash: t.Hash}
	switch {
	case t.Whole && revision > 0:
		// The control plane does not remember what changed, or has an older database.
		changes.Forgotten = true
		c.mu.Lock()
		c.left = t
		c.mu.Unlock()
	case t.Revision < revision:
		return changes, nil // only the whole set tells what is there
	default:
		changes.Rules, changes.Overrides = t.Rules, t.Overrides
	}
	for _, reset := range t.Resets { // an answer of everything has older ones, too
		if reset.Revision > revision {
			changes.Resets = append(changes.Resets, reset)
		}
	}
	return changes, nil
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
		if t.Revision != since {
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

// take returns an answer that was put aside, once, if it fits and is fresh.
func (c *Client) take(from **told, fits func(*told) bool) *told {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := *from
	if t == nil || !fits(t) {
		return nil
	}
	*from = nil
	if c.cfg.Now().Sub(t.at) > keptFor {
		return nil
	}
	return t
}

// nowOf is the control plane's clock now, by an answer.
func (c *Client) nowOf(t *told) time.Time {
	if t.Now.IsZero() {
		return t.Now
	}
	return t.Now.Add(c.cfg.Now().Sub(t.at))
}

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
	t := &told{asked: since}
	request := uplink.Request{Method: http.MethodGet, Path: []string{"v1", "changes"}, Query: query, MaxAnswer: maxAnswer}
	if err := c.up.Do(ctx, request, &t.Answer); err != nil {
		return nil, err
	}
	t.at = c.cfg.Now()
	if err := t.check(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left != nil && c.left.Revision != t.Revision {
		c.left = nil // it is not what there is any more
	}
	return t, nil
}

// check refuses answers that make no sense. A revision that goes back is for
// rulestore.Source to judge.
func (t *told) check() error {
	switch {
	case t.Revision < 0 || t.Hash == "":
		return fmt.Errorf("the control plane's answer has revision %d and hash %.80q, which makes no sense", t.Revision, t.Hash)
	case !t.Whole && t.Revision == t.asked && len(t.Rules)+len(t.Overrides)+len(t.Resets) > 0:
		return fmt.Errorf("the control plane tells changes since revision %d that lead nowhere", t.asked)
	case !t.Whole:
		return nil
	}
	set := rulestore.Set{Rules: t.Rules, Overrides: t.Overrides}
	set.Sort()
	if got := rulestore.Digest(t.Rules, t.Overrides); got != t.Hash {
		return fmt.Errorf("the rules that the control plane tells have hash %.16q, not %.16q as it says; they are not taken", got, t.Hash)
	}
	return nil
}
