package feed

import (
	"context"
	"errors"

	"github.com/tallygate/tallygate/internal/rulestore"
)

var errClosed = errors.New("the hub is closed")

// Whole implements rulestore.Reader: what is served, which is not to be changed. Like
// Since it waits for the first answer of the database after Start, and fails while that
// does not answer.
func (h *Hub) Whole(ctx context.Context) (rulestore.Set, error) {
	s, err := h.current(ctx)
	if err != nil {
		return rulestore.Set{}, err
	}
	set := s.set
	set.Now = h.now()
	return set, nil
}

// Since implements rulestore.Reader.
func (h *Hub) Since(ctx context.Context, revision int64) (rulestore.Changes, error) {
	s, err := h.current(ctx)
	if err != nil {
		return rulestore.Changes{}, err
	}
	changes := rulestore.Changes{Revision: s.set.Revision, Hash: s.set.Hash}
	switch {
	case s.known(revision):
		changes = s.since(revision)
	case revision < s.set.Revision: // with everything go the resets that are remembered
		changes.Forgotten, changes.Resets = true, s.since(max(revision, s.floor)).Resets
	}
	changes.Now = h.now()
	return changes, nil
}

// Wait implements rulestore.Waiter.
func (h *Hub) Wait(ctx context.Context, since int64) error {
	changed := (<-chan struct{})(h.ready)
	for {
		if s := h.state.Load(); s != nil {
			if s.set.Revision != since {
				return nil
			}
			changed = s.replaced
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.closing:
			return errClosed
		case <-changed:
		}
	}
}

// current returns what is served, once the database was asked, or why it does not
// answer.
func (h *Hub) current(ctx context.Context) (*state, error) {
	select {
	case <-h.first:
	case <-h.closing:
		return nil, errClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if failure := h.failure.Load(); failure != nil {
		return nil, *failure
	}
	select {
	case <-h.ready: // at once, but for the moment between the first answer and its state
		return h.state.Load(), nil
	case <-h.closing:
		return nil, errClosed // before the first load was done
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
