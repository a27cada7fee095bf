package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// about makes an op on a reservation of this op's bucket that holds for a second.
func about(how store.How, op store.Op, id byte, cost int64) store.Op {
	op.How, op.Cost, op.Reservation, op.TTLMS = how, cost, store.ReservationID{id}, 1000
	return op
}

// A bucket with reservations lives as long as they do, and one that had some is as
// small as before once it was written again.
func TestReserve_sizeAndLife(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	fast := &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1000, PeriodMS: 1000, Burst: 10}
	for _, c := range []struct {
		l     *limit.Limit
		bytes int64
	}{{fast, 36}, {window(limit.SlidingWindow, 10, 24*time.Hour), 41}, {window(limit.FixedWindow, 10, 24*time.Hour), 41}} {
		op := take(c.l.Algorithm.String(), "size", c.l)
		size := func() int64 {
			n, _ := server.MustDo(t, "STRLEN", name(op)).(int64)
			return n
		}
		start := time.Now()
		for id := range byte(3) {
			hold := about(store.Reserve, op, 1+id, 1)
			hold.TTLMS = 3000
			must(t, s, hold)
		}
		if got, want := size(), c.bytes+1+3*32; got != want {
			t.Errorf("%s: %d bytes with 3 reservations, want %d", c.l, got, want)
		}
		if got := ttl(t, server, op) + time.Since(start).Milliseconds() + 1; got < 3000 {
			t.Errorf("%s: it lives for %d ms, shorter than its reservations", c.l, got)
		}
		eventually(t, 10*time.Second, "the reservations have ended", func() bool {
			must(t, s, op)
			return size() == c.bytes
		})
	}
}

// What ends is worked out by whoever asks: a denial still writes nothing.
func TestReserve_denialWritesNothing(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	for _, l := range []*limit.Limit{slow(5), window(limit.SlidingWindow, 5, 24*time.Hour), window(limit.FixedWindow, 5, 24*time.Hour)} {
		op := take(l.Algorithm.String(), "denied", l)
		op.Cost = 4
		must(t, s, about(store.Reserve, op, 1, 1), take("other", "denied", slow(9)))
		must(t, s, op)
		op.Cost = 2
		before := calls(t, server)["psetex"]
		eventually(t, 10*time.Second, "it has ended", func() bool { return left(t, s, op) == 1 })
		for _, denied := range []store.Op{op, about(store.Reserve, op, 2, 2)} {
			if ok, grants := must(t, s, denied); ok || grants[0].Remaining != 1 {
				t.Errorf("%s: %+v, want a denial with 1 left", l, grants[0])
			}
		}
		for range 2 { // of what is not there
			must(t, s, about(store.Cancel, op, 9, 0))
			must(t, s, about(store.Commit, op, 9, 0))
		}
		if got := calls(t, server)["psetex"]; got != before {
			t.Errorf("%s: %d writes", l, got-before)
		}
	}
}

// A reservation whose answer was lost holds, is not made twice, and ends by itself.
func TestReserve_lostAnswer(t *testing.T) {
	server := redistest.Standalone(t)
	direct := open(t, patient("redis://"+server.Addr))
	proxy := redistest.NewProxy(t, server.Addr)
	s := open(t, patient("redis://"+proxy.Addr))
	op := take("rule", "lost", window(limit.FixedWindow, 20, 24*time.Hour))
	must(t, s, take("rule", "other", slow(20))) // the server knows the script
	proxy.LoseReplies(true)
	_, err := s.Take(context.Background(), []store.Op{about(store.Reserve, op, 1, 5)})
	var e *store.StoreError
	if !errors.As(err, &e) || !e.Sent {
		t.Errorf("err = %v, want one that says that the call was sent", err)
	}
	proxy.Pass(t)
	_, grants := must(t, direct, about(store.Reserve, op, 1, 5))
	if g := grants[0]; g.Reserved == store.ReservedNow && g.Remaining != 15 {
		t.Errorf("reserved anew with %d left", g.Remaining) // the machine slept for a second
	}
	eventually(t, 10*time.Second, "all comes back", func() bool { return left(t, direct, op) == 20 })
}

// What is no list of reservations is refused and left as it is.
func TestReserve_foreignValue(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	op := take("rule", "foreign", slow(20))
	must(t, s, about(store.Reserve, op, 1, 5))
	good, _ := server.MustDo(t, "GET", name(op)).(string)
	if len(good) != 36+1+32 {
		t.Fatalf("%d bytes", len(good))
	}
	for what, bad := range map[string]string{
		"a byte short":  good[:len(good)-1],
		"a byte more":   good + "x",
		"no list":       good[:36],
		"an empty list": good[:36] + "\x00",
		"65 of them":    good[:36] + "\x41" + strings.Repeat(good[37:], 65),
		"another kind":  good[:22] + "\x15" + good[23:],
		"kind 16":       good[:22] + "\x10" + good[23:],
	} {
		server.MustDo(t, "SET", name(op), bad)
		for _, ask := range []store.Op{op, about(store.Commit, op, 1, 5)} {
			if _, err := s.Take(context.Background(), []store.Op{ask}); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s: err = %v, want refused", what, err)
			}
		}
		if got := server.MustDo(t, "GET", name(op)); got != bad {
			t.Errorf("%s: it was changed", what)
		}
	}
}
