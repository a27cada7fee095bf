package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/store"
)

// call is one call of the script on its way. Its caller may leave before it ends:
// what was not sent by then never is, what was finishes alone and is dropped.
type call struct {
	keys, args []string
	// words, where set, are another command: a beat.
	words []string
	// replicas is how many must have the spend.
	replicas int
	until    time.Time // when its caller leaves at the latest
	asking   bool      // the slot is on its way to this server
	closed   bool      // a rule of it fails closed
	// epoch is that of the shard by which it was packed.
	epoch uint32

	state atomic.Uint32
	done  chan outcome
	timer *time.Timer
}

// The states of a call.
const (
	waiting uint32 = iota
	sending
	left // its caller has gone
)

// send claims a call for sending; false if its caller has left.
func (c *call) send() bool { return c.state.CompareAndSwap(waiting, sending) }

// here reports whether the caller still waits.
func (c *call) here() bool { return c.state.Load() != left }

// leave is the caller's going. It reports whether the call was sent.
func (c *call) leave() (sent bool) { return c.state.Swap(left) == sending }

// starvedAfter is how late a call's own deadline may come before that says that
// this process was not running, rather than that the server did not answer.
const starvedAfter = 2 * time.Millisecond

// wait waits for the outcome, for the timer, which runs until deadline, or for ctx.
func (c *call) wait(ctx context.Context, deadline time.Time) outcome {
	var err error
	starved := false
	select {
	case o := <-c.done:
		c.timer.Stop()
		return o
	case <-ctx.Done():
		c.timer.Stop()
		err = context.Cause(ctx)
	case <-c.timer.C:
		err = context.DeadlineExceeded
		starved = time.Since(deadline) > starvedAfter
	}
	select {
	case o := <-c.done: // both came at once
		return o
	default:
		return outcome{class: late, err: err, sent: c.leave(), starved: starved}
	}
}

// newCall packs ops. All names and arguments lie in one string. nowMS is the
// server's clock, 0 for what we think it is; stale says which buckets are not full
// where they are missing, whatever the op says.
func (s *Store) newCall(ops []store.Op, nowMS int64, stale func(*store.Op) bool) *call {
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = &call{done: make(chan outcome, 1), timer: time.NewTimer(time.Hour)}
	}
	var ends [2 * store.MaxOps]int
	buf := make([]byte, 0, 256)
	c.replicas, c.closed = 0, false
	for i := range ops {
		op := &ops[i]
		if op.Limit.Calendar != nil && nowMS == 0 {
			nowMS = time.Now().UnixMilli() + s.offsetMS.Load()
		}
		buf = s.appendKey(buf, &op.Bucket)
		ends[2*i] = len(buf)
		flags := len(buf) + flagsAt
		buf = appendOp(buf, op, nowMS)
		if stale != nil && stale(op) {
			buf[flags] |= flagNotFresh
		}
		ends[2*i+1] = len(buf)
		c.replicas = max(c.replicas, op.Replicas)
		c.closed = c.closed || op.Closed
	}
	text, start := string(buf), 0
	c.keys, c.args = c.keys[:0], c.args[:0]
	for i := range ops {
		c.keys = append(c.keys, text[start:ends[2*i]])
		c.args = append(c.args, text[ends[2*i]:ends[2*i+1]])
		start = ends[2*i+1]
	}
	return c
}

// free takes a call back that nobody else holds: one whose outcome was received.
func (s *Store) free(c *call) {
	c.timer.Stop()
	c.state.Store(waiting)
	c.asking = false
	s.calls.Put(c)
}
