package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/tallygate/tallygate/store"
)

// mostTries bounds how often one call is sent on: a redirection, a server that is
// a replica by now, keys that are apart. Each says that nothing ran.
const mostTries = 4

// routineWait is how long a call waits for a slot that moves, or a failover, before
// it asks again.
const routineWait = time.Millisecond

var (
	errDown    = errors.New("the shard does not answer and is not asked until a probe finds it back")
	errQueue   = errors.New("too many calls wait for the server")
	errNobody  = errors.New("no server is known to own the slot")
	errWindows = errors.New("no calendar window fits the server's clock")
)

// ask runs the script for ops, which share a slot, and returns by the deadline.
func (s *Store) ask(ctx context.Context, ops []store.Op, deadline time.Time) (reply, error) {
	a, err := s.run(ctx, ops, deadline, 0)
	if err == nil && a.status == noWindow {
		// The windows were chosen by a clock that was wrong. Now it is right.
		s.offsetMS.Store(a.nowMS - time.Now().UnixMilli())
		a, err = s.run(ctx, ops, deadline, a.nowMS)
		if err == nil && a.status == noWindow {
			err = &store.StoreError{Kind: store.Unavailable, Err: errWindows}
		}
	}
	return a, err
}

// run sends one call to where its slot is and waits for it, for ctx or for the
// deadline. It is sent on where the answer says that nothing ran. nowMS is the
// server's clock, 0 for what we think it is.
func (s *Store) run(ctx context.Context, ops []store.Op, deadline time.Time, nowMS int64) (reply, error) {
	var to *shard
	asking := false
	for try := 1; ; try++ {
		if time.Until(deadline) <= 0 {
			return reply{}, &store.StoreError{Kind: store.Timeout, Err: context.DeadlineExceeded}
		}
		c := s.newCall(ops, nowMS, nil)
		slot := s.slot(c)
		if to == nil {
			if to = s.topology.owner(slot); to == nil {
				s.topology.kick()
				return reply{}, &store.StoreError{Kind: store.Unavailable, Err: errNobody}
			}
		}
		c.epoch = to.epoch.Load() // before its holds are looked at
		if to.refuses(ops) {
			s.free(c)
			return reply{}, &store.StoreError{Kind: store.Unavailable, Shard: to.addr, Err: errForgot}
		}
		if stale := to.stale(); stale != nil {
			epoch := c.epoch
			c = s.newCall(ops, nowMS, stale)
			c.epoch = epoch
		}
		c.asking = asking
		o, down := to.ask(ctx, c, deadline)
		if o.class != late {
			s.free(c)
		}
		if o.class == answered {
			return o.reply, nil
		}
		if next, ok := s.follow(to, &o, slot); ok && try < mostTries {
			to, asking = next, o.class == asks || o.class == apart && asking
			continue
		}
		e := o.failure(to.addr)
		e.Down = down
		return reply{}, e
	}
}

// slot returns the slot of a call's keys, 0 where there are none.
func (s *Store) slot(c *call) int {
	if !s.bySlot {
		return 0
	}
	return Slot(c.keys[0])
}

// follow returns where a call goes next whose answer says that nothing ran, nil for
// whoever owns the slot then, and whether it goes on at all.
func (s *Store) follow(from *shard, o *outcome, slot int) (*shard, bool) {
	switch o.class {
	case again:
		return nil, true
	case moved, asks:
		addr := redirect(o.err)
		if addr == "" {
			s.topology.kick()
			return nil, false
		}
		if o.class == moved {
			return s.topology.moved(slot, address(addr, from.addr)), true
		}
		return s.topology.at(address(addr, from.addr)), true
	case apart:
		time.Sleep(routineWait)
		return from, true
	case readOnly:
		s.topology.kick()
		time.Sleep(routineWait)
		return nil, true
	case answered, noScript, ill, unsent, lost, late, doubted, wrong:
	}
	return nil, false
}
