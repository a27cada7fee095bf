package redisstore_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/storetest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patient is a configuration for tests of answers, not of deadlines: on a busy
// machine 5 ms are soon over.
func patient(url string) redisstore.Config {
	return redisstore.Config{URL: url, Tags: identity.NewHasher(nil), Deadline: 2 * time.Second}
}

// open connects to a server for the length of the test.
func open(t testing.TB, conf redisstore.Config) *redisstore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := redisstore.New(ctx, conf)
	for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // it gives up before a busy machine connects
		s, err = redisstore.New(ctx, conf)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// connected returns a store that has a connection to every shard of a cluster.
func connected(t *testing.T) *redisstore.Store {
	t.Helper()
	s := open(t, patient("redis://"+redistest.SharedCluster(t).Addrs()[0]))
	for i := range 64 { // more than enough keys to meet each of three shards
		must(t, s, take("connected", strconv.Itoa(i), slow(1)))
	}
	return s
}

// virtual returns a harness on a standalone server with a clock of its own.
func virtual(t *testing.T) storetest.Harness {
	t.Helper()
	server := redistest.Standalone(t)
	server.MustDo(t, "MSET", "tg:clock:s", "1800000000", "tg:clock:us", "0")
	return storetest.Harness{
		Store: redisstore.OpenVirtual(t, patient("redis://"+server.Addr)),
		Advance: func(d time.Duration) {
			server.MustDo(t, "INCRBY", "tg:clock:us", strconv.FormatInt(d.Microseconds(), 10))
		},
		Leases: true,
	}
}

func TestConformance(t *testing.T) {
	t.Run("virtual clock", func(t *testing.T) {
		h := virtual(t)
		storetest.Run(t, func(*testing.T) storetest.Harness { return h })
	})
	t.Run("standalone", func(t *testing.T) {
		s := open(t, patient("redis://"+redistest.SharedStandalone(t).Addr))
		storetest.Run(t, func(*testing.T) storetest.Harness { return storetest.Harness{Store: s, Leases: true} })
	})
	t.Run("cluster", func(t *testing.T) {
		s := connected(t)
		storetest.Run(t, func(*testing.T) storetest.Harness { return storetest.Harness{Store: s, Leases: true} })
	})
}
