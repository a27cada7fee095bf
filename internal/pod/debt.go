package pod

import (
	"errors"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// debt is what a pod admitted by a fallback for calls that surely did not run, and
// has not told the store. It is told once, when the store answers again: first the
// pod looks, since a call that finds out whether the store is back may be lost, and
// what may have been told must not be told again; then it charges, and only then it
// asks.
type debt struct {
	untold int64 // tokens
	// telling is the tokens of the charge under way, and looking says that a look is.
	telling int64
	looking bool
	// heard says that the store has answered since the last failure, and left what
	// it said is there.
	heard bool
	left  int64
	// queued says that the pod tells it by itself, should the key go quiet.
	queued bool
	// restNS is until when nothing is told: the last charge was as large as one may be.
	restNS int64
}

func (d *debt) any() bool { return d.untold > 0 || d.telling > 0 || d.looking || d.queued }

// add owes cost more. No more is owed than a full bucket holds: no store could
// charge it.
func (d *debt) add(l *limit.Limit, cost int64) { d.untold = min(d.untold+cost, l.Full()) }

// tell returns the next op on the way to having told all: a look or a charge. over is
// what is not told since the bucket cannot take it.
func (d *debt) tell(now int64, l *limit.Limit, name store.Bucket) (op store.Op, over int64, ok bool) {
	switch {
	case d.untold == 0 || d.telling > 0 || d.looking || now < d.restNS:
		return store.Op{}, 0, false
	case !d.heard:
		d.looking = true
		return store.Op{Bucket: name, Limit: l}, 0, true
	}
	if l.Algorithm == limit.SlidingWindow || l.Algorithm == limit.FixedWindow {
		// A window's count would pass its limit, and refuse all of the next one too.
		over = max(0, d.untold-d.left)
		d.untold -= over
	}
	d.telling = min(d.untold, limit.MaxCost)
	d.untold -= d.telling
	return store.Op{Bucket: name, Limit: l, How: store.Add, Cost: d.telling}, over, d.telling > 0
}

// told takes in the answer to what tell said. over is what the bucket could not take.
// What surely did not arrive is kept; of what may have arrived nothing is told again.
func (d *debt) told(now int64, l *limit.Limit, op *store.Op, g *store.Grant, err error) (over int64) {
	told := d.telling
	if op.How == store.Add {
		d.telling = 0
	} else {
		d.looking, told = false, 0
	}
	if err != nil {
		d.heard = false
		if !mayHaveRun(err) {
			d.add(l, told)
		}
		return 0
	}
	d.hear(g)
	if op.How != store.Add {
		return 0
	}
	if d.untold > 0 {
		d.restNS = now + int64(TickEvery)
	}
	return told - min(told, max(0, g.Receipt.Cost))
}

// hear takes in that the store answers, and what it said is left.
func (d *debt) hear(g *store.Grant) {
	if !g.Skipped {
		d.heard, d.left = true, g.Remaining
	}
}

// mayHaveRun reports whether a call that failed may have done what it asked for.
func mayHaveRun(err error) bool {
	e, ok := errors.AsType[*store.StoreError](err)
	return !ok || e.Sent
}

// unsent is the error of those for whom another call failed before theirs was sent.
func unsent(err error) error {
	e, ok := errors.AsType[*store.StoreError](err)
	if !ok {
		return &store.StoreError{Kind: store.Unavailable, Err: err}
	}
	before := *e
	before.Sent = false
	return &before
}
