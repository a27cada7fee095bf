package tallygate_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// fleet is so many pods in front of one Redis.
func fleet(t testing.TB, pods int, list ...rules.Rule) []*tallygate.Limiter {
	t.Helper()
	url := "redis://" + redistest.SharedStandalone(t).Addr
	snapshot := tallygate.Fixed(compile(t, time.Now(), rules.Set{Rules: list}))
	limiters := make([]*tallygate.Limiter, pods)
	for i := range limiters {
		s, err := redisstore.New(context.Background(), redisstore.Config{URL: url, Tags: identity.NewHasher(nil), Deadline: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		limiters[i], err = tallygate.New(tallygate.Config{Rules: snapshot, Store: s, Deadline: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = limiters[i].Close() })
		limiters[i].SetPods(int64(pods))
	}
	return limiters
}

// TestFleet_envelope: six pods with leases admit no more than one bucket would,
// and hardly less.
func TestFleet_envelope(t *testing.T) {
	const rate, burst, pods, workers = 2000, 1000, 6, 4
	rule := bucket("fleet", rate, 1, burst)
	rule.MaxCost = 1 // leases leave room for the largest cost
	limiters := fleet(t, pods, rule)
	length := 2 * time.Second
	if testing.Short() {
		length = 300 * time.Millisecond
	}
	var allowed, checks, local atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for _, l := range limiters {
		for range workers {
			wg.Go(func() {
				var v tallygate.Verdict
				for time.Since(start) < length {
					if err := l.Decide(context.Background(), ask("fleet", "acct_"+t.Name(), 1), &v); err != nil {
						t.Error(err)
						return
					}
					checks.Add(1)
					if v.Allow {
						allowed.Add(1)
					}
					if v.Entries[0].Source != tallygate.SourceStore {
						local.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	d := time.Since(start).Seconds()
	most := burst + rate*(d+0.001)
	t.Logf("%d checks, %d allowed of at most %.0f (%.1f %%), %.1f %% answered locally", checks.Load(), allowed.Load(), most, 100*float64(allowed.Load())/most, 100*float64(local.Load())/float64(checks.Load()))
	if got := float64(allowed.Load()); got > most {
		t.Errorf("allowed %.0f, at most %.0f", got, most)
	}
	if got := float64(allowed.Load()); got < 0.9*most {
		t.Errorf("allowed %.0f, of %.0f", got, most)
	}
}
