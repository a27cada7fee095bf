package redisstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/store"
)

// call is one call of the script on its way. The caller may leave before it
// ends: then it finishes alone, and sends nothing more.
type call struct {
	keys, args []string
	left       atomic.Bool // the caller has gone
	done       chan result
}

type result struct {
	reply reply
	err   error
}

// ask runs the script for ops, which share a slot, and returns by the deadline.
func (s *Store) ask(ctx context.Context, ops []store.Op, deadline time.Time) (reply, error) {
	a, err := s.run(ctx, ops, deadline, s.nowMS())
	if err == nil && a.status == noWindow {
		// The windows were chosen by a clock that was wrong. Now it is right.
		a, err = s.run(ctx, ops, deadline, a.nowMS)
		if err == nil && a.status == noWindow {
			err = &store.StoreError{Kind: store.Unavailable, Err: errors.New("no calendar window fits the server's clock")}
		}
	}
	return a, err
}

// run sends one call and waits for it, for ctx or for the deadline.
func (s *Store) run(ctx context.Context, ops []store.Op, deadline time.Time, nowMS int64) (reply, error) {
	wait := time.Until(deadline)
	if wait <= 0 {
		return reply{}, &store.StoreError{Kind: store.Timeout, Err: context.DeadlineExceeded}
	}
	select {
	case <-s.closed:
		return reply{}, &store.StoreError{Kind: store.Unavailable, Err: errClosed}
	case s.inFlight <- struct{}{}:
	default:
		return reply{}, &store.StoreError{Kind: store.Unavailable, Err: errors.New("too many calls wait for the server")}
	}
	c := s.newCall(ops, nowMS)
	go func() {
		a, err := s.send(c)
		<-s.inFlight
		c.done <- result{a, err}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-c.done:
		return r.reply, r.err
	case <-ctx.Done():
		c.left.Store(true)
		return reply{}, &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.Cause(ctx)}
	case <-timer.C:
		c.left.Store(true)
		return reply{}, &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.DeadlineExceeded}
	}
}

func (s *Store) newCall(ops []store.Op, nowMS int64) *call {
	c := &call{
		keys: make([]string, len(ops)),
		args: make([]string, len(ops)),
		done: make(chan result, 1),
	}
	buf := make([]byte, 0, 128)
	for i := range ops {
		buf = s.appendKey(buf[:0], &ops[i].Bucket)
		c.keys[i] = string(buf)
		buf = appendOp(buf[:0], &ops[i], nowMS)
		c.args[i] = string(buf)
	}
	return c
}

// send runs the script, by its name first. It asks again only where the first
// answer says that nothing ran, and only while the caller waits.
func (s *Store) send(c *call) (reply, error) {
	a, err := s.evalsha(c)
	for tries := 0; err != nil && tries < 2 && !c.left.Load(); tries++ {
		switch code(err) {
		case "NOSCRIPT": // a server that never saw it: new, restarted or promoted
			a, err = s.eval(c)
		case "TRYAGAIN": // the slot is moving and its keys are apart
			time.Sleep(time.Millisecond)
			a, err = s.evalsha(c)
		default:
			return a, classify(err)
		}
	}
	if err != nil {
		return a, classify(err)
	}
	return a, nil
}

func (s *Store) evalsha(c *call) (reply, error) {
	cmd := s.client.B().Evalsha().Sha1(s.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	return s.do(cmd)
}

func (s *Store) eval(c *call) (reply, error) {
	cmd := s.client.B().Eval().Script(s.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	return s.do(cmd)
}

// do runs one command without a context: a deadline there would cost five
// allocations a call and not hold while the client dials. run's timer holds.
func (s *Store) do(cmd rueidis.Completed) (reply, error) {
	text, err := s.client.Do(context.Background(), cmd).ToString()
	if err != nil {
		return reply{}, err
	}
	a, err := parseReply(text)
	if err != nil {
		return reply{}, err
	}
	s.offsetMS.Store(a.nowMS - time.Now().UnixMilli())
	return a, nil
}

// nowMS is the server's clock, as far as we know it.
func (s *Store) nowMS() int64 { return time.Now().UnixMilli() + s.offsetMS.Load() }

// code is the first word of a server's error, "" of any other.
func code(err error) string {
	var e *rueidis.RedisError
	if !errors.As(err, &e) {
		return ""
	}
	word, _, _ := strings.Cut(e.Error(), " ")
	return word
}

// classify says what an error means to the caller. A server's own error means that
// nothing was spent: the script fails only before its first write.
func classify(err error) *store.StoreError {
	e := &store.StoreError{Kind: store.Unavailable, Err: err}
	switch code(err) {
	case "":
		var dial *net.OpError
		e.Sent = !errors.Is(err, rueidis.ErrClosing) && !(errors.As(err, &dial) && dial.Op == "dial")
		if errors.Is(err, errReply) {
			e.Kind = store.Refused
		}
	case "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY":
	default: // WRONGTYPE, OOM, NOPERM, NOAUTH, WRONGPASS, CROSSSLOT, ERR, TALLY …
		e.Kind = store.Refused
	}
	return e
}
