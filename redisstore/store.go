package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/tallygate/tallygate/store"
)

// Store is a store.Store on Redis. See the package comment.
type Store struct {
	conf   Config
	client rueidis.Client
	script script
	// members is the script by which pods are counted.
	members script
	// bySlot says that buckets of different tags cannot be asked in one call.
	bySlot bool

	// offsetMS is the server's clock minus ours, as of the last time it mattered:
	// it chooses the calendar windows that are offered to the script.
	offsetMS atomic.Int64
	inFlight chan struct{}
	calls    sync.Pool // of *call
	undoer   undoer

	closeOnce sync.Once
	closed    chan struct{}
}

var _ store.Store = (*Store)(nil)

var errClosed = errors.New("the store is closed")

// New connects to the servers of conf. It fails if none answers before ctx ends.
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
	client, err := connect(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("redis at %v: %w", options.InitAddress, err)
	}
	s := &Store{
		conf:     conf,
		client:   client,
		script:   text,
		members:  members(),
		bySlot:   client.Mode() == rueidis.ClientModeCluster,
		inFlight: make(chan struct{}, conf.MaxInFlight),
		closed:   make(chan struct{}),
		undoer:   undoer{places: make(chan struct{}, maxUndos)},
	}
	return s, nil
}

// connect is rueidis.NewClient that gives up when ctx ends.
func connect(ctx context.Context, options rueidis.ClientOption) (rueidis.Client, error) {
	type result struct {
		client rueidis.Client
		err    error
	}
	done := make(chan result, 1)
	go func() {
		client, err := rueidis.NewClient(options)
		done <- result{client, err}
	}()
	select {
	case r := <-done:
		return r.client, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				r.client.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// Take implements store.Store.
func (s *Store) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if err := check(ops); err != nil {
		return nil, &store.StoreError{Kind: store.Refused, Err: err}
	}
	if len(ops) == 0 {
		return nil, nil
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
		s.client.Close()
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
