package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// Waits of a store that is away at the start.
const (
	// firstConnect is how long the start waits before it goes on without.
	firstConnect = 2 * time.Second
	// connectEvery is how long one later attempt may take, and the pause after.
	connectEvery = time.Second
)

// openStore is a store that counts pods and can be closed.
type openStore interface { //nolint:interfacebloat // it is all that redisstore.Store does
	store.Store
	store.Healther
	redisstore.Beater
	Close() error
}

// lateStore is a store that may not be there yet: a pod that starts while the
// store is away must answer what its open rules allow, not fail to start. Its
// goroutine, if there is one, ends with Close.
type lateStore struct {
	since  time.Time // of the first attempt
	open   atomic.Pointer[openStore]
	cancel context.CancelFunc
	done   chan struct{}
}

// errAway is why there is no store yet.
var errAway = errors.New("the store could not be reached since the start")

// connect connects to a store. Where it cannot be reached it goes on trying in
// the background; any other error, such as a wrong password, is returned.
func connect(ctx context.Context, log *slog.Logger, open func(context.Context) (openStore, error)) (*lateStore, error) {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &lateStore{since: time.Now(), cancel: cancel, done: make(chan struct{})}
	err := l.try(ctx, firstConnect, open)
	if err == nil {
		close(l.done)
		return l, nil
	}
	if !unreachable(err) {
		cancel()
		return nil, err
	}
	log.Error("the store cannot be reached; closed rules deny and open ones pass until it can", "error", err)
	go func() {
		defer close(l.done)
		pause := time.NewTicker(connectEvery)
		defer pause.Stop()
		told := ""
		for {
			select {
			case <-background.Done():
				return
			case <-pause.C:
			}
			err := l.try(background, connectEvery, open)
			if err == nil {
				log.Info("the store can be reached")
				return
			}
			// It was away and is there now, and something else is wrong.
			if !unreachable(err) && err.Error() != told {
				told = err.Error()
				log.Error("the store cannot be used; it is tried again every second", "error", err)
			}
		}
	}()
	return l, nil
}

// try makes one attempt.
func (l *lateStore) try(ctx context.Context, within time.Duration, open func(context.Context) (openStore, error)) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s, err := open(ctx)
	if err == nil {
		l.open.Store(&s)
	}
	return err
}

// unreachable reports whether an error may pass by itself: no connection, one
// that was closed, or a server that says that it is not ready.
func unreachable(err error) bool {
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	for _, word := range []string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "BUSY"} {
		if strings.Contains(err.Error(), word+" ") {
			return true
		}
	}
	return false
}

// Take implements store.Store.
func (l *lateStore) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	s, err := l.get()
	if err != nil {
		return nil, err
	}
	return s.Take(ctx, ops)
}

// Beat implements redisstore.Beater.
func (l *lateStore) Beat(ctx context.Context, pod string) (live int64, joined bool, err error) {
	s, err := l.get()
	if err != nil {
		return 0, false, err
	}
	return s.Beat(ctx, pod)
}

// Leave implements redisstore.Beater. A pod that never reached the store is none
// of its members.
func (l *lateStore) Leave(ctx context.Context, pod string) error {
	s, err := l.get()
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	return s.Leave(ctx, pod)
}

// Health implements store.Healther.
func (l *lateStore) Health() store.Health {
	s, err := l.get()
	if err != nil {
		return store.Health{}
	}
	return s.Health()
}

// get returns the store once it is there.
func (l *lateStore) get() (openStore, error) {
	s := l.open.Load()
	if s == nil {
		return nil, &store.StoreError{Kind: store.Unavailable, Down: time.Since(l.since), Err: errAway}
	}
	return *s, nil
}

// Close ends the attempts and closes the store.
func (l *lateStore) Close() error {
	l.cancel()
	<-l.done
	if s := l.open.Load(); s != nil {
		return (*s).Close()
	}
	return nil
}
