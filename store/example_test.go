package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// Two buckets of one request are spent together or not at all.
func ExampleMemoryStore() {
	clock := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	m := store.NewMemoryStore(store.MemoryConfig{Now: func() time.Time { return clock }})

	account := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 1000, Burst: 200}
	route := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 2, WindowMS: 60_000}
	ops := []store.Op{
		{Bucket: store.Bucket{Domain: "public-api", Rule: "growth-global", Key: "acct_7Q2"}, Limit: account, Cost: 1},
		{Bucket: store.Bucket{Domain: "public-api", Rule: "labels-route", Key: "acct_7Q2"}, Limit: route, Cost: 1},
	}
	for range 3 {
		grants, err := m.Take(context.Background(), ops)
		if err != nil {
			fmt.Println(err)
			return
		}
		a, r := grants[0], grants[1]
		fmt.Printf("account %v, %d left; route %v, %d left, retry %d ms\n", a.OK, a.Remaining, r.OK, r.Remaining, r.RetryMS)
	}
	// Output:
	// account true, 199 left; route true, 1 left, retry 0 ms
	// account true, 198 left; route true, 0 left, retry 0 ms
	// account true, 198 left; route false, 0 left, retry 60000 ms
}
