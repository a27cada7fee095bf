package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/store"
)

// Store is a store.Store on Redis. See the package comment.
type Store struct {
	conf    Config
	options rueidis.ClientOption
	script  script
	members script // by which pods are counted
	// bySlot says that buckets of different tags cannot be asked in one call.
	bySlot   bool
	topology *topology
	epoch    time.Time // of now

	// offsetMS is the server's clock minus ours, as of the last time it mattered:
	// it chooses the calendar windows that are offered to the script.
	offsetMS atomic.Int64
	calls    sync.Pool // of *call
	undoer   undoer
	telling  chan struct{} // one taken by each call of who counts pods

	closeOnce sync.Once
	closed    chan struct{}
	cancel    context.CancelFunc
	work      sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// New connects to the servers of conf, one after the other until one answers, each of
// which has some seconds. It fails if none does, or once ctx ends.
func New(ctx context.Context, conf Config) (*Store, error) {
	return newStore(ctx, conf, tally())
}

func newStore(ctx context.Context, conf Config, text script) (*Store, error) {
	if err := conf.validate(); err != nil {
		return nil, err
	}
	options, err := conf.options()
	if err != nil {
		return nil, err
	}
	s := &Store{
		conf:    conf,
		options: options,
		script:  text,
		members: members(),
		epoch:   time.Now(),
		closed:  make(chan struct{}),
		telling: make(chan struct{}, maxTelling),
		undoer:  undoer{places: make(chan struct{}, maxUndos)},
	}
	s.topology = newTopology(s)
	if err := s.connect(ctx); err != nil {
		s.topology.close()
		return nil, fmt.Errorf("redis at %v: %w", options.InitAddress, err)
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if !conf.NoBeats {
		s.work.Go(func() { s.beats(ctx) })
	}
	s.work.Go(func() { s.watchMemory(ctx) })
	if s.bySlot {
		s.work.Go(func() { s.topology.follow(ctx) })
	}
	return s, nil
}

// firstDial is how long the first connection may take, a TLS handshake included:
// nobody waits for it as for a check, and a wrong certificate must not pass for a
// server that is away.
const firstDial = 2 * time.Second

// connect finds out what the servers are: a cluster if one of them says so.
func (s *Store) connect(ctx context.Context) error {
	if s.options.Sentinel.MasterSet != "" {
		return s.alone(ctx, s.options.Sentinel.MasterSet)
	}
	var failed error
	for _, addr := range s.options.InitAddress {
		first := s.options
		first.Dialer.Timeout = firstDial
		s.topology.seeds[addr] = newNode(first, addr)
	}
	for _, addr := range s.options.InitAddress {
		if ctx.Err() != nil {
			return cmp.Or(failed, context.Cause(ctx))
		}
		v := ask(s.topology.seeds[addr])
		switch {
		case v.err == nil && len(v.ranges) == 0:
			failed = errNoSlots
		case v.err == nil:
			s.bySlot = true
			s.topology.adopt(v)
			return nil
		case len(s.options.InitAddress) == 1 && sort(v.err) == wrong && code(v.err) != "WRONGPASS" && code(v.err) != "NOAUTH":
			// It is no cluster, or we may not ask.
			return s.alone(ctx, addr)
		default:
			failed = v.err
		}
	}
	return failed
}

// alone makes one server, or whatever the sentinels name, the only shard, whose first
// connection has firstDial as well. One that is refused took no time, and more would not
// help: who starts without its store waits for nothing.
func (s *Store) alone(ctx context.Context, addr string) error {
	h := newShard(s, addr, addr, beat{tag: "0"})
	s.topology.single = h
	s.topology.forget(nil)
	for end := time.Now().Add(firstDial); ; {
		_, err := h.fast.node.ready()
		if err == nil || sort(err) == wrong || errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(redialAfter):
		}
	}
}

// errNoSlots is of a cluster that is being made.
var errNoSlots = errors.New("CLUSTERDOWN nobody has slots yet")

// now is a monotonic clock, in ns.
func (s *Store) now() int64 { return int64(time.Since(s.epoch)) }

// Take implements store.Store.
func (s *Store) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if err := check(ops); err != nil {
		return nil, &store.StoreError{Kind: store.Refused, Err: err}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	select {
	case <-s.closed:
		return nil, &store.StoreError{Kind: store.Unavailable, Err: errClosed}
	default:
	}
	deadline := time.Now().Add(s.conf.Deadline)
	if !s.bySlot || sameTag(ops) {
		a, err := s.ask(ctx, ops, deadline)
		if err != nil {
			return nil, err
		}
		return s.answer(a, make([]store.Grant, 0, len(ops)), ops, a.status == spent)
	}
	return s.takeGroups(ctx, ops, deadline)
}

// answer decodes a reply; one that is not our script's is the server's fault.
func (s *Store) answer(a reply, dst []store.Grant, ops []store.Op, spends bool) ([]store.Grant, error) {
	grants, err := a.grants(dst, ops, spends)
	if err != nil {
		return nil, &store.StoreError{Kind: store.Refused, Sent: true, Err: err}
	}
	return grants, nil
}

// Close gives up connections. Undos under way end first, within a second. It is safe to call twice; a Take after it fails as unavailable.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.undoer.stop()
		close(s.closed)
		s.cancel()
		s.topology.close()
		s.work.Wait()
		for range maxTelling {
			s.telling <- struct{}{} // nobody tells any more
		}
	})
	return nil
}

// check refuses calls the script would refuse, without asking it.
func check(ops []store.Op) error {
	if err := store.CheckOps(ops); err != nil {
		return err
	}
	for i := range ops {
		if ops[i].Limit.Revision >= 1<<48 {
			return fmt.Errorf("op %d: revision %d is above 2^48", i, ops[i].Limit.Revision)
		}
		for j := range i {
			if ops[i].Bucket == ops[j].Bucket {
				return fmt.Errorf("op %d: bucket of rule %q is named twice", i, ops[i].Bucket.Rule)
			}
		}
	}
	return nil
}

// appendKey appends the name of a bucket: tg:{<tag>}:<rule>.
func (s *Store) appendKey(dst []byte, b *store.Bucket) []byte {
	dst = append(dst, "tg:{"...)
	dst = s.conf.Tags.AppendTag(dst, b.Domain, b.Key)
	dst = append(dst, "}:"...)
	return append(dst, b.Rule...)
}
