package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/admin/api"
	"github.com/tallygate/tallygate/internal/pgtest"
	"github.com/tallygate/tallygate/internal/rulestore/postgres"
	"github.com/tallygate/tallygate/internal/rulestore/sqldb"
)

func openPostgres(t *testing.T) *sqldb.DB {
	t.Helper()
	open := func(url string) (*postgres.Store, error) {
		return postgres.Open(context.Background(), postgres.Config{URL: url})
	}
	s, err := open(pgtest.Database(t, func(url string) error {
		s, err := open(url)
		if err != nil {
			return err
		}
		return s.Close()
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.DB
}

// Of writers who have seen the same version one wins, and the others hear of it
// (SQL-01: none of them is told that the database is busy).
func TestPut_oneOfFiftyWins(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *sqldb.DB{
		"sqlite":   func(t *testing.T) *sqldb.DB { t.Helper(); return openSQLite(t) },
		"postgres": openPostgres,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startOn(t, open(t), nil)
			r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
			var mu sync.Mutex
			count := map[int]int{}
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					got := r.ask(t, "PUT", "/v1/rules/a", bucket("a", 100+i), ifMatch(1))
					mu.Lock()
					defer mu.Unlock()
					count[got.status]++
				})
			}
			all.Wait()
			if count[200] != 1 || count[409] != 49 {
				t.Errorf("got %v, want one 200 and 49 times 409", count)
			}
			if live := read[api.Rule](t, r.must(t, "GET", "/v1/rules/a", "")); live.Version != 2 {
				t.Errorf("version %d", live.Version)
			}
		})
	}
}

func TestPut_thousandTimesLeavesNoGoroutine(t *testing.T) {
	// Not parallel: it counts goroutines.
	r := startOn(t, openSQLite(t), nil)
	r.must(t, "PUT", "/v1/rules/a", bucket("a", 20), create)
	before := goleak.IgnoreCurrent()
	for i := range 1_000 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/v1/rules/a", strings.NewReader(bucket("a", 20+i)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("If-Match", fmt.Sprintf(`"%d"`, i+1))
		got, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = got.Body.Close(); got.StatusCode != http.StatusOK {
			t.Fatalf("put %d: status %d", i, got.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	goleak.VerifyNone(t, before)
}
