package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// laneWorkers is how many batches of one shard are under way at a time: one
	// would leave the server idle while its answers are read.
	laneWorkers = 4
	// laneBatch bounds one: its calls wait for each other.
	laneBatch = 128
)

// lane is the queue of calls to one server: those that wait go out together in one
// pipelined send. Its goroutines live as long as calls wait, at most laneWorkers of
// them, however many wait and whatever the server does.
type lane struct {
	shard   *shard
	node    *node
	workers int
	// bound is how many may wait.
	bound int

	mu      sync.Mutex // guards what follows
	queue   []*call
	running int
	closed  bool
	work    sync.WaitGroup
}

// add queues a call. It fails if too many wait, or nothing is sent any more.
func (l *lane) add(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	if len(l.queue) >= l.bound && !l.sweep() {
		return errQueue
	}
	l.queue = append(l.queue, c)
	if l.running < l.workers {
		l.running++
		l.work.Go(l.run)
	}
	return nil
}

// sweep drops the calls whose callers have left. It reports whether there were any.
func (l *lane) sweep() bool {
	before := len(l.queue)
	l.queue = slices.DeleteFunc(l.queue, func(c *call) bool { return !c.here() })
	return len(l.queue) < before
}

// take returns the calls to go out next, nil when none wait: then a worker ends. All
// of them wait for the same number of replicas.
func (l *lane) take(batch []*call) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.queue), laneBatch)
	if n == 0 {
		l.running--
		return nil
	}
	for i, c := range l.queue[:n] {
		if c.replicas != l.queue[0].replicas {
			n = i
			break
		}
	}
	batch = append(batch[:0], l.queue[:n]...)
	l.queue = slices.Delete(l.queue, 0, n)
	return batch
}

func (l *lane) run() {
	batch := make([]*call, 0, 8)
	for {
		if batch = l.take(batch); batch == nil {
			return
		}
		l.serve(batch)
		clear(batch)
	}
}

// serve sends a batch and hands out what became of it.
func (l *lane) serve(batch []*call) {
	client, err := l.node.ready()
	if err != nil {
		l.tell(batch, outcome{class: sortUnsent(err), err: err})
		return
	}
	if err := l.shard.reassure(client); err != nil {
		l.tell(batch, outcome{class: sortUnsent(err), err: err})
		return
	}
	epoch := l.shard.epoch.Load()
	batch = slices.DeleteFunc(batch, func(c *call) bool {
		if !c.send() {
			return true
		}
		if c.words == nil && c.epoch != epoch {
			c.done <- outcome{class: again, err: errChanged}
			return true
		}
		return false
	})
	if len(batch) == 0 {
		return
	}
	unknown := l.send(client, batch, epoch, false)
	if len(unknown) > 0 { // a server that never saw the script: new, restarted or promoted
		l.send(client, unknown, epoch, true)
	}
}

// send sends calls in one pipeline, the first with the script's text if so, all
// others by its name, which the server then knows, and hands out the outcomes. It
// returns those that must be sent again with the text.
func (l *lane) send(client rueidis.Client, calls []*call, epoch uint32, text bool) (unknown []*call) {
	commands := make([]rueidis.Completed, 0, len(calls)+1)
	replicas := 0
	var until time.Time
	for i, c := range calls {
		if c.asking {
			commands = append(commands, client.B().Asking().Build())
		}
		commands = append(commands, l.command(client, c, text && i == 0))
		replicas = max(replicas, c.replicas)
		if c.until.After(until) {
			until = c.until
		}
	}
	if replicas > 0 {
		commands = append(commands, acknowledged(client, replicas, until))
	}
	var results []rueidis.RedisResult
	if len(commands) == 1 {
		results = []rueidis.RedisResult{client.Do(context.Background(), commands[0])}
	} else {
		results = client.DoMulti(context.Background(), commands...)
	}
	forgot := l.shard.forgot(client, epoch)
	have := int64(0)
	if replicas > 0 {
		have, _ = results[len(results)-1].AsInt64() // 0 where that failed
	}
	at := 0
	for _, c := range calls {
		if c.asking {
			at++
		}
		o := read(c, results[at])
		at++
		switch {
		case o.class == noScript && !text && c.here():
			unknown = append(unknown, c)
			continue
		case o.class == answered && have < int64(c.replicas):
			o = outcome{class: doubted, err: errReplicas, sent: true}
		case o.class == answered && c.closed && forgot:
			o = outcome{class: doubted, err: errForgot, sent: true}
		}
		c.done <- o
	}
	return unknown
}

// command is a call as the client sends it.
func (l *lane) command(client rueidis.Client, c *call, text bool) rueidis.Completed {
	switch script := &l.shard.store.script; {
	case c.words != nil:
		return client.B().Arbitrary(c.words...).Build()
	case text:
		return client.B().Eval().Script(script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	default:
		return client.B().Evalsha().Sha1(script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	}
}

// acknowledged waits on the server until replicas have what was written, or the last
// caller leaves: those that come after would wait for it. As any other command it
// goes through the pipeline, which in this lane only calls share that wait for the
// same.
func acknowledged(client rueidis.Client, replicas int, until time.Time) rueidis.Completed {
	within := max(1, time.Until(until).Milliseconds()-1) // 0 would be for ever
	return client.B().Arbitrary("WAIT", strconv.Itoa(replicas), strconv.FormatInt(within, 10)).Build()
}

// read makes the outcome of a result.
func read(c *call, result rueidis.RedisResult) outcome {
	text, err := result.ToString()
	var r reply
	if err == nil && c.words == nil {
		r, err = parseReply(text)
	}
	o := outcome{class: sort(err), reply: r, err: err}
	// A server's own error means that nothing was spent: the script fails only
	// before its first write.
	o.sent = o.class == answered || o.class == lost || err != nil && code(err) == "" && o.class == wrong
	return o
}

// tell gives all calls of a batch the same outcome, of not having been sent.
func (l *lane) tell(batch []*call, o outcome) {
	for _, c := range batch {
		if c.send() {
			c.done <- o
		}
	}
}

// idle reports whether no call waits or is under way.
func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running == 0
}

// close ends the lane: what waits is told so, what is under way finishes.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	queue := l.queue
	l.queue = nil
	l.mu.Unlock()
	l.tell(queue, outcome{class: unsent, err: errClosed})
	l.node.close()
	l.work.Wait()
}
