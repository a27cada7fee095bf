// Package history checks that a store decides concurrent calls as if one after
// the other: it records histories of clients that spend from the same token
// buckets, and asks porcupine for an order of the calls, between their starts
// and ends, in which every answer is right.
//
// It is apart from package storetest so that the suite needs no dependency.
package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// The size of a history: enough calls to overlap everywhere, few enough to be
// explained within a second.
const (
	clients        = 8
	callsPerClient = 150
)

// patience is how long porcupine may look for an order before the history counts
// as undecided.
const patience = time.Minute

// Linearizable records so many histories, each of more than 1,000 calls on new
// buckets, and fails at the first that has no sequential explanation. The store
// needs a real clock, or one that does not step back, and all calls must be
// answered.
func Linearizable(t testing.TB, s store.Store, histories int) {
	t.Helper()
	for i := range histories {
		ok, err := Explained(s, rand.Uint64())
		if err != nil {
			t.Fatalf("history %d: %v", i, err)
		}
		if !ok {
			t.Fatalf("history %d of %d calls has no sequential explanation", i, clients*callsPerClient)
		}
	}
}

// Explained records one history and reports whether it can be explained. Seed
// names the buckets and draws the calls; the order in which they meet is the
// scheduler's. An error says that a call was not answered or that the history
// could not be decided.
func Explained(s store.Store, seed uint64) (bool, error) {
	calls, err := record(s, seed)
	if err != nil {
		return false, err
	}
	switch result := porcupine.CheckOperationsTimeout(model(), calls, patience); result {
	case porcupine.Ok:
		return true, nil
	case porcupine.Illegal:
		return false, nil
	default:
		return false, fmt.Errorf("undecided after %s: %s", patience, result)
	}
}

// record runs the clients and returns what they saw.
func record(s store.Store, seed uint64) ([]porcupine.Operation, error) {
	limits := numbers()
	key := fmt.Sprintf("history-%016x", seed)
	start := time.Now()
	perClient := make([][]porcupine.Operation, clients)
	errs := make([]error, clients)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client)))
			for range callsPerClient {
				in := drawCall(rng)
				ops := in.ops(key, limits)
				began := time.Since(start)
				grants, err := s.Take(context.Background(), ops)
				ended := time.Since(start)
				if err != nil {
					errs[client] = err
					return
				}
				perClient[client] = append(perClient[client], porcupine.Operation{
					ClientId: client, Input: in, Call: int64(began), Output: seen(in, grants), Return: int64(ended),
				})
			}
		})
	}
	all.Wait()
	var calls []porcupine.Operation
	for client := range clients {
		if errs[client] != nil {
			return nil, errs[client]
		}
		calls = append(calls, perClient[client]...)
	}
	return calls, nil
}

// buckets is the number of buckets a history is about.
const buckets = 3

// call is what a client asks: a cost of each bucket, 0 for not asked.
type call [buckets]int64

func drawCall(rng *rand.Rand) call {
	var c call
	c[rng.IntN(buckets)] = 1 + rng.Int64N(3)
	if rng.IntN(2) == 0 {
		c[rng.IntN(buckets)] = 1
	}
	return c
}

// numbers are the buckets' limits: scarce, so that most calls meet an edge.
func numbers() [buckets]*limit.Limit {
	return [buckets]*limit.Limit{
		{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 400},
		{Algorithm: limit.TokenBucket, Rate: 700, PeriodMS: 1000, Burst: 30},
		{Algorithm: limit.TokenBucket, Rate: 3000, PeriodMS: 7000, Burst: 60},
	}
}

func (c call) ops(key string, limits [buckets]*limit.Limit) []store.Op {
	var ops []store.Op
	for i, cost := range c {
		if cost > 0 {
			name := store.Bucket{Domain: "storetest", Rule: fmt.Sprint("rule-", i), Key: key}
			ops = append(ops, store.Op{Bucket: name, Limit: limits[i], Cost: cost, Pods: 1, MaxCost: 1})
		}
	}
	return ops
}

// answer is what the client was told: at what time, and of each bucket whether
// the cost was there and what is left.
type answer struct {
	nowMS int64
	ok    [buckets]bool
	left  [buckets]int64
}

func seen(c call, grants []store.Grant) answer {
	a, next := answer{nowMS: grants[0].NowMS}, 0
	for i, cost := range c {
		if cost > 0 {
			a.ok[i], a.left[i] = grants[next].OK, grants[next].Remaining
			next++
		}
	}
	return a
}
