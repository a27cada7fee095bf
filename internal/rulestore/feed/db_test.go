package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/rulestore"
	"github.com/tallygate/tallygate/internal/rulestore/wire"
)

// database is a store in memory that counts its questions, may be away and may lose
// its hints.
type database struct {
	deaf bool // hints are lost

	mu        sync.Mutex // guards what follows
	set       rulestore.Set
	history   []rulestore.Changes
	hint      chan struct{}
	away      bool
	questions int
	now       time.Time
}

var errAway = errors.New("connection refused")

func newDatabase() *database { return &database{hint: make(chan struct{})} }

// edit makes one change; each has the next revision.
func (d *database) edit(change func(revision int64) rulestore.Changes) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := change(d.set.Revision + 1)
	c.Revision = d.set.Revision + 1
	d.history = append(d.history, c)
	d.set = wire.Merge(d.set, c)
	close(d.hint)
	d.hint = make(chan struct{})
	return c.Revision
}

func (d *database) put(id string, version int64) int64 {
	return d.edit(func(revision int64) rulestore.Changes {
		return rulestore.Changes{Rules: []rulestore.Rule{ruleRow(id, version, revision)}}
	})
}

func ruleRow(id string, version, revision int64) rulestore.Rule {
	return rulestore.Rule{
		ID: id, Version: version, Revision: revision, LiveVersion: version,
		Live: json.RawMessage(fmt.Sprintf(`{"id":%q,"match":{"plan":"<&>"},"identity":["api_key"],"algorithm":"token_bucket","rate":1,"burst":%d}`, id, version)),
	}
}

func (d *database) remove(id string, version int64) int64 {
	return d.edit(func(revision int64) rulestore.Changes {
		return rulestore.Changes{Rules: []rulestore.Rule{{ID: id, Version: version, Revision: revision, Deleted: true}}}
	})
}

func (d *database) reset(rule, key string) int64 {
	return d.edit(func(revision int64) rulestore.Changes {
		return rulestore.Changes{Resets: []rulestore.Reset{{Rule: rule, Key: []string{key}, Revision: revision, At: time.UnixMilli(5)}}}
	})
}

// byHand changes a rule without a new revision.
func (d *database) byHand(id string, version int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := wire.Merge(d.set, rulestore.Changes{Revision: d.set.Revision, Rules: []rulestore.Rule{ruleRow(id, version, d.set.Revision)}})
	d.set = set
}

// older makes it what it was at a revision.
func (d *database) older(set rulestore.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = set
	d.history = slices.DeleteFunc(d.history, func(c rulestore.Changes) bool { return c.Revision > set.Revision })
	close(d.hint)
	d.hint = make(chan struct{})
}

func (d *database) setAway(away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.away = away
}

func (d *database) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.questions
}

func (d *database) current() rulestore.Set {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set
}

func (d *database) Whole(context.Context) (rulestore.Set, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.questions++
	if d.away {
		return rulestore.Set{}, errAway
	}
	set := d.set
	set.Now = d.now
	set.Rules, set.Overrides = slices.Clone(set.Rules), slices.Clone(set.Overrides)
	return set, nil
}

func (d *database) Since(_ context.Context, revision int64) (rulestore.Changes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.questions++
	if d.away {
		return rulestore.Changes{}, errAway
	}
	out := rulestore.Changes{Revision: d.set.Revision, Now: d.now}
	rules := map[string]rulestore.Rule{}
	for _, c := range d.history {
		if c.Revision <= revision {
			continue
		}
		for _, r := range c.Rules {
			rules[r.ID] = r
		}
		out.Overrides = append(out.Overrides, c.Overrides...)
		out.Resets = append(out.Resets, c.Resets...)
	}
	out.Rules = slices.SortedFunc(maps.Values(rules), func(a, b rulestore.Rule) int { return int(a.Revision - b.Revision) })
	return out, nil
}

func (d *database) Wait(ctx context.Context, since int64) error {
	for {
		d.mu.Lock()
		hint, revision := d.hint, d.set.Revision
		d.mu.Unlock()
		if revision != since && !d.deaf {
			return nil
		}
		if d.deaf {
			hint = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hint:
		}
	}
}
