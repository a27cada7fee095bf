package bench_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/store"
)

// buckets is how many make the growth of a store a figure.
func buckets() int {
	if *figures {
		return 200_000
	}
	return 500
}

// testRedisMemory fills servers with token buckets whose names are at most 44
// bytes and compares how much they grow with the published hash.
func testRedisMemory(t *testing.T) {
	hash := grownBy(t, redistest.Standalone(t), func(s *redistest.Server, n int) {
		sha, _ := s.MustDo(t, "SCRIPT", "LOAD", published).(string)
		for i := range n {
			s.MustDo(t, "EVALSHA", sha, "1", fmt.Sprintf("tg:{%022d}:growth-global-1", i), "1", "200000", "1") // lives for 55 h
		}
	})
	fill := func(want int64) func(s *redistest.Server, n int) {
		return func(s *redistest.Server, n int) { fillBuckets(t, "redis://"+s.Addr, n, want) }
	}
	exact := grownBy(t, redistest.Standalone(t), fill(0))
	leased := grownBy(t, redistest.Standalone(t), fill(20))
	row(t, "Redis, a token bucket / published hash", exact, hash, "B", "<= 200 B", exact <= 200)
	row(t, "Redis, a token bucket with leases / published hash", leased, hash, "B", "<= 216 B", leased <= 216)

	c := redistest.NewCluster(t)
	before := make([]int64, len(c.Nodes))
	for i, n := range c.Primaries() {
		before[i] = used(t, n)
	}
	// As many a shard as above: how full a hash table is shows in every figure.
	shards := len(c.Primaries())
	fillBuckets(t, "redis://"+c.Addrs()[0], shards*buckets(), 0)
	var grown int64
	for i, n := range c.Primaries() {
		grown += used(t, n) - before[i]
	}
	clustered := float64(grown) / float64(shards*buckets())
	row(t, "Redis Cluster, a token bucket / published hash", clustered, hash, "B", "<= 216 B", clustered <= 216)
}

func grownBy(t *testing.T, s *redistest.Server, fill func(s *redistest.Server, n int)) float64 {
	t.Helper()
	before := used(t, s)
	fill(s, buckets())
	return float64(used(t, s)-before) / float64(buckets())
}

// used is the memory of data: buffers of clients and replicas come and go.
func used(t *testing.T, s *redistest.Server) int64 {
	t.Helper()
	info, err := s.Info("memory")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64)
		return n
	}
	return read("used_memory") - read("mem_clients_normal") - read("mem_clients_slaves") - read("mem_total_replication_buffers")
}

// fillBuckets spends once in n buckets whose names have 44 bytes.
func fillBuckets(t *testing.T, url string, n int, want int64) {
	t.Helper()
	s, err := redisstore.New(context.Background(), redisstore.Config{URL: url, Tags: identity.NewHasher(nil), Deadline: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	// No bucket may fill up, and so end, while others are still written.
	slow := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: 3_600_000, Burst: 2000, Revision: 1_800_000_000_000}
	ask := together(t, func(i int) error {
		_, err := s.Take(context.Background(), []store.Op{{
			Bucket: store.Bucket{Domain: "public-api", Rule: "growth-global-1", Key: "acct_" + strconv.Itoa(i)},
			Limit:  slow, Cost: 1, Want: want, Pods: 1, MaxCost: 1,
		}})
		return err
	})
	ask(n - callers)
}
