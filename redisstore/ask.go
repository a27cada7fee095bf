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
	timer      *time.Timer
}

type result struct {
	reply reply
	err   error
}

// ask runs the script for ops, which share a slot, and returns by the deadline.
func (s *Store) ask(ctx context.Context, ops []store.Op, deadline time.Time) (reply, error) {
	a, err := s.run(ctx, ops, deadline, 0)
	if err == nil && a.status == noWindow {
		// The windows were chosen by a clock that was wrong. Now it is right.
		s.offsetMS.Store(a.nowMS - time.Now().UnixMilli())
		a, err = s.run(ctx, ops, deadline, a.nowMS)
		if err == nil && a.status == noWindow {
			err = &store.StoreError{Kind: store.Unavailable, Err: errors.New("no calendar window fits the server's clock")}
		}
	}
	return a, err
}

// run sends one call and waits for it, for ctx or for the deadline. nowMS is the
// server's clock, 0 for what we think it is.
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
	c.timer.Reset(wait)
	go s.finish(c)
	select {
	case r := <-c.done:
		c.timer.Stop()
		s.calls.Put(c) // nobody else holds it
		return r.reply, r.err
	case <-ctx.Done():
		c.timer.Stop()
		c.left.Store(true)
		return reply{}, &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.Cause(ctx)}
	case <-c.timer.C:
		c.left.Store(true)
		return reply{}, &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.DeadlineExceeded}
	}
}

// finish sends a call and hands over its answer, whether or not somebody waits.
func (s *Store) finish(c *call) {
	a, err := s.send(c)
	<-s.inFlight
	c.done <- result{a, err}
}

// newCall packs ops. All names and arguments lie in one string.
func (s *Store) newCall(ops []store.Op, nowMS int64) *call {
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = &call{done: make(chan result, 1), timer: time.NewTimer(time.Hour)}
	}
	var ends [2 * store.MaxOps]int
	buf := make([]byte, 0, 256)
	for i := range ops {
		if ops[i].Limit.Calendar != nil && nowMS == 0 {
			nowMS = time.Now().UnixMilli() + s.offsetMS.Load()
		}
		buf = s.appendKey(buf, &ops[i].Bucket)
		ends[2*i] = len(buf)
		buf = appendOp(buf, &ops[i], nowMS)
		ends[2*i+1] = len(buf)
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

// send runs the script, by its name first. It asks again only where the first
// answer says that nothing ran, and only while the caller waits.
func (s *Store) send(c *call) (reply, error) {
	a, err := s.evalsha(c)
	for tries := 0; err != nil && tries < 2 && !c.left.Load(); tries++ {
		switch code(err) {
		case "NOSCRIPT": // a server that never saw it: new, restarted or promoted
			a, err = s.eval(c)
		case "TRYAGAIN", "READONLY": // the slot is moving and its keys are apart; or a failover is under way
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
	return a, nil
}

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
