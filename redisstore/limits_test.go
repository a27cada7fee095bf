package redisstore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// slow is a bucket that gives nothing back while a test runs.
func slow(burst int64) *limit.Limit {
	return &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: burst}
}

func window(a limit.Algorithm, capacity int64, length time.Duration) *limit.Limit {
	return &limit.Limit{Algorithm: a, Capacity: capacity, WindowMS: length.Milliseconds()}
}

// take is one op of cost 1.
func take(rule, key string, l *limit.Limit) store.Op {
	return store.Op{Bucket: store.Bucket{Domain: "d", Rule: rule, Key: key}, Limit: l, Cost: 1}
}

// fresh is a key that no test before has used, on servers that they share.
func fresh(key string) string { return key + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) }

// must asks for all ops and returns whether the check passes.
func must(t testing.TB, s *redisstore.Store, ops ...store.Op) (bool, []store.Grant) {
	t.Helper()
	grants, err := s.Take(context.Background(), ops)
	for end := time.Now().Add(10 * time.Second); notConnected(err) && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		grants, err = s.Take(context.Background(), ops)
	}
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	for i := range grants {
		if !grants[i].OK && !ops[i].Shadow {
			return false, grants
		}
	}
	return true, grants
}

// notConnected reports whether a call was not sent since a connection took too long:
// calls are not kept waiting for one, as a busy machine would have them.
func notConnected(err error) bool {
	var e *store.StoreError
	return errors.As(err, &e) && e.Kind == store.Unavailable && !e.Sent && errors.Is(err, context.DeadlineExceeded)
}

// left is what a bucket has, without spending.
func left(t testing.TB, s *redisstore.Store, op store.Op) int64 {
	t.Helper()
	op.How, op.Cost = store.Peek, 0
	_, grants := must(t, s, op)
	return grants[0].Remaining
}

// eventually polls until f says yes.
func eventually(t testing.TB, within time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
