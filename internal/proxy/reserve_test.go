package proxy_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/proxy"
)

// ledger is a Reserver that writes down what happens.
type ledger struct {
	mu   sync.Mutex
	log  []string
	full bool
	fail error
}

func (l *ledger) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.log = append(l.log, text)
}

func (l *ledger) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.log)
}

func (l *ledger) Reserve(_ context.Context, check tallygate.Check, v *tallygate.Verdict) (proxy.Hold, error) {
	l.add("reserve " + string(rune('0'+check.Cost)))
	*v = tallygate.Verdict{Allow: !l.full, Tightest: -1}
	return &hold{l}, nil
}

type hold struct{ *ledger }

func (h *hold) Commit(_ context.Context, cost int64) error {
	h.add("commit " + string(rune('0'+cost)))
	return h.fail
}

func (h *hold) Cancel(context.Context) error {
	h.add("cancel")
	return h.fail
}

func TestCostOfTheAnswer(t *testing.T) {
	t.Parallel()
	gone, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	for _, tt := range []struct {
		name               string
		ledger             *ledger
		costs              []string
		upstream           *url.URL
		want               []string
		bad, missing, lost int64
	}{
		{"told", &ledger{}, []string{"7"}, nil, []string{"reserve 3", "commit 7"}, 0, 0, 0},
		{"nothing", &ledger{}, []string{"0"}, nil, []string{"reserve 3", "commit 0"}, 0, 0, 0},
		{"missing: the estimate stands", &ledger{}, nil, nil, []string{"reserve 3", "commit 3"}, 0, 1, 0},
		{"twice", &ledger{}, []string{"1", "2"}, nil, []string{"reserve 3", "commit 3"}, 1, 0, 0},
		{"below nothing", &ledger{}, []string{"-1"}, nil, []string{"reserve 3", "commit 3"}, 1, 0, 0},
		{"above the bound", &ledger{}, []string{"1000000001"}, nil, []string{"reserve 3", "commit 3"}, 1, 0, 0},
		{"denied: nothing is held", &ledger{full: true}, []string{"7"}, nil, []string{"reserve 3"}, 0, 0, 0},
		{"never sent", &ledger{}, nil, &url.URL{Scheme: "http", Host: gone.Addr().String()}, []string{"reserve 3", "cancel"}, 0, 0, 0},
		{"the store is away", &ledger{fail: errors.New("away")}, []string{"7"}, nil, []string{"reserve 3", "commit 7"}, 0, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			config := proxy.Config{Reserver: tt.ledger, CostHeader: "x-cost", Upstream: tt.upstream}
			config.Limit.Limiter = limiterOf(t, c, snapshotOf(t, c, rule("r", "ip", 1)))
			config.Limit.Cost = func(*http.Request) int64 { return 3 }
			f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["X-Cost"] = tt.costs
			}), 0, config)
			r, _ := f.get(t, "/")
			if r.Header["X-Cost"] != nil {
				t.Error("the client sees the cost header")
			}
			await.That(t, "the request is settled", func() bool { return f.Stats().Inflight == 0 })
			if err := f.stop(); err != nil { // after which all is settled
				t.Error(err)
			}
			if got := tt.ledger.lines(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if s := f.Stats(); s.BadCosts != tt.bad || s.MissingCosts != tt.missing || s.LostCosts != tt.lost {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

// By the library: what is left is what the answers told, not what was estimated.
func TestCostIsCounted(t *testing.T) {
	t.Parallel()
	c := newClock()
	counted := rule("tokens", "ip", 100)
	counted.MaxCost = 100
	l := limiterOf(t, c, snapshotOf(t, c, counted))
	config := proxy.Config{Reserver: proxy.Reservations(l, 0), CostHeader: "X-Cost"}
	config.Limit.Limiter = l
	config.Limit.Cost = func(*http.Request) int64 { return 10 }
	f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Cost", r.URL.Query().Get("cost"))
	}), 0, config)
	for _, tt := range []struct {
		cost, left string
		status     int
	}{
		{"1", "90", 200},   // the estimate is out while the request is
		{"30", "89", 200},  // the first came to 1
		{"100", "59", 200}, // above the limit: the request has happened
		{"1", "0", 429},
	} {
		r, body := f.get(t, "/?cost="+tt.cost)
		if r.StatusCode != tt.status || r.Header.Get("X-RateLimit-Remaining") != tt.left {
			t.Errorf("cost %s: %d, %s left, want %d, %s: %s", tt.cost, r.StatusCode, r.Header.Get("X-RateLimit-Remaining"), tt.status, tt.left, body)
		}
		await.That(t, "the cost is told", func() bool { return f.Stats().Inflight == 0 })
	}
	if s := f.Stats(); s.BadCosts != 0 || s.MissingCosts != 0 || s.LostCosts != 0 {
		t.Errorf("stats %+v", s)
	}
}
