package redisstore_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/store"
)

// ttl returns how long a bucket lives on, in ms: -1 for ever, -2 not there.
func ttl(t testing.TB, server *redistest.Server, op store.Op) int64 {
	t.Helper()
	ms, _ := server.MustDo(t, "PTTL", name(op)).(int64)
	return ms
}

func TestTTL04_everyKeyExpires(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	day := &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 100, Align: limit.AlignCalendar, Calendar: limit.NewCalendar(limit.Day, time.UTC)}
	first := window(limit.FixedWindow, 100, time.Minute)
	first.Align = limit.AlignFirstRequest
	for _, c := range []struct {
		name     string
		l        *limit.Limit
		min, max time.Duration
	}{
		{"bucket", &limit.Limit{Algorithm: limit.TokenBucket, Rate: 100, PeriodMS: 60_000, Burst: 100}, 500 * time.Millisecond, 601 * time.Millisecond},
		{"bucket of a year", &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1, PeriodMS: limit.MaxPeriodMS, Burst: 11}, 30 * 24 * time.Hour, 31*24*time.Hour + time.Millisecond},
		{"sliding", window(limit.SlidingWindow, 100, time.Minute), time.Minute, 2 * time.Minute},
		{"log", window(limit.SlidingLog, 100, time.Minute), 59 * time.Second, time.Minute},
		{"fixed", window(limit.FixedWindow, 100, time.Minute), time.Hour, time.Hour + time.Minute},
		{"fixed from the first request", first, time.Hour + 59*time.Second, time.Hour + time.Minute},
		{"day", day, 25 * time.Hour, 49 * time.Hour},
		{"a year", window(limit.FixedWindow, 100, 366*24*time.Hour), 25 * time.Hour, 2 * 366 * 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := take(c.name, "ttl", c.l)
			for _, how := range []store.How{store.Take, store.Add, store.Back, store.Stamp} {
				op.How = how
				start := time.Now()
				must(t, s, op)
				got := time.Duration(ttl(t, server, op)) * time.Millisecond
				got += time.Since(start) // of which it has lived some
				low := c.min
				if how != store.Take {
					low = 1 // others may bring it nearer to full
				}
				if most := 2*c.max + time.Since(start); got < low || got > most {
					t.Errorf("how %d: lives for %s, want %s to %s", how, got, low, most)
				}
			}
		})
	}
	keys, _ := server.MustDo(t, "KEYS", "*").([]any)
	for _, k := range keys {
		if ms, _ := server.MustDo(t, "PTTL", k.(string)).(int64); ms == -1 {
			t.Errorf("%s lives for ever", k)
		}
	}
}

// TestTTL_nextWindow: a window whose new numbers wait lives to its end at least, however
// short the new ones are.
func TestTTL_nextWindow(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow} {
		op := take(a.String(), "ttl", window(a, 100, 100*24*time.Hour))
		must(t, s, op)
		changed := window(a, 100, time.Second)
		changed.Revision = 2
		op.Limit, op.NextWindow = changed, true
		for _, how := range []store.How{store.Take, store.Add, store.Back, store.Stamp} {
			op.How = how
			_, grants := must(t, s, op)
			g := grants[0]
			if lives := ttl(t, server, op); g.Limit.Revision != 0 || lives < g.ResetMS {
				t.Errorf("%s, how %d: lives for %d ms by %s, its window for %d", a, how, lives, g.Limit, g.ResetMS)
			}
		}
	}
}

// A window of a calendar that the asker does not count by has the length it has now.
func TestNextWindow_anotherCalendar(t *testing.T) {
	s := open(t, patient("redis://"+redistest.SharedStandalone(t).Addr))
	calendar := func(unit limit.Unit, revision int64) *limit.Limit {
		return &limit.Limit{Algorithm: limit.FixedWindow, Capacity: 10, Revision: revision, Align: limit.AlignCalendar, Calendar: limit.NewCalendar(unit, time.UTC)}
	}
	op := take(t.Name(), fmt.Sprint(time.Now().UnixNano()), calendar(limit.Week, 2))
	must(t, s, op)
	op.Limit, op.NextWindow = calendar(limit.Day, 4), true
	_, grants := must(t, s, op)
	g := grants[0]
	if g.Limit.Revision != 2 || g.Limit.LengthMS() != 7*limit.DayMS || g.Remaining != 8 {
		t.Errorf("%+v by %s of %d ms, want 8 left of a week", g, g.Limit, g.Limit.LengthMS())
	}
}

// TestTTL_leases: a bucket does not end before what is out on leases.
func TestTTL_leases(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	op := take("leased", "ttl", &limit.Limit{Algorithm: limit.TokenBucket, Rate: 1_000_000, PeriodMS: 1, Burst: 1_000_000})
	op.Want, op.Pods, op.MaxCost = 100, 1, 1
	start := time.Now()
	_, grants := must(t, s, op)
	lives := ttl(t, server, op) + time.Since(start).Milliseconds() + 1 // of which it has lived some
	if g := grants[0]; g.Lease != 100 || lives < g.LeaseMS {
		t.Errorf("lease %d for %d ms in a bucket that lives for %d ms", g.Lease, g.LeaseMS, lives)
	}
}

func TestDenialWritesNothing(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	ops := []store.Op{
		take("bucket", "k", slow(3)),
		take("sliding", "k", window(limit.SlidingWindow, 3, time.Hour)),
		take("fixed", "k", window(limit.FixedWindow, 3, time.Hour)),
		take("log", "k", window(limit.SlidingLog, 3, time.Hour)),
	}
	for range 3 {
		must(t, s, ops...)
	}
	before := server.MustDo(t, "INFO", "replication")
	writes := calls(t, server)
	for range 10 {
		if ok, _ := must(t, s, ops...); ok {
			t.Fatal("allowed")
		}
		for _, op := range ops {
			must(t, s, op)
			op.Cost = 0
			must(t, s, op)
		}
	}
	after := calls(t, server)
	for _, c := range []string{"psetex", "zadd", "zrem", "pexpire", "del", "zremrangebyrank"} {
		if after[c] != writes[c] {
			t.Errorf("denials and looks made %d %s", after[c]-writes[c], c)
		}
	}
	_ = before
}

func TestKeyNames(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	raw := []string{"acct_7Q2", "{acct_7Q2}", "{}", "a}b", "a:b", "\x00\n\xff", strings.Repeat("x", 4096), "sk_live_secret"}
	for _, k := range raw {
		must(t, s, take("growth-global", k, slow(5)))
	}
	keys, _ := server.MustDo(t, "KEYS", "tg:{*").([]any) // others are not of buckets
	if len(keys) != len(raw) {
		t.Fatalf("%d keys for %d identities", len(keys), len(raw))
	}
	for _, k := range keys {
		name, _ := k.(string)
		tag, rule, ok := strings.Cut(strings.TrimPrefix(name, "tg:{"), "}:")
		if !ok || len(tag) != 22 || rule != "growth-global" || strings.ContainsAny(tag, "{}:") {
			t.Errorf("key %q is not tg:{22 characters}:rule", name)
		}
	}

	conf := patient("redis://" + server.Addr)
	conf.Tags = identity.Plain{}
	must(t, open(t, conf), store.Op{Bucket: store.Bucket{Domain: "public-api", Rule: "r", Key: "acct_7Q2"}, Limit: slow(5), Cost: 1})
	if n, _ := server.MustDo(t, "EXISTS", "tg:{public-api/acct_7Q2}:r").(int64); n != 1 {
		t.Errorf("no readable key with plain identities: %v", server.MustDo(t, "KEYS", "*"))
	}
}

// TestForeignKey: a key that is not ours is left as it is, and so is the rest.
func TestForeignKey(t *testing.T) {
	server := redistest.Standalone(t)
	s := open(t, patient("redis://"+server.Addr))
	good := take("good", "k", slow(5))
	for i, words := range [][]string{{"LPUSH", "", "x"}, {"SET", "", "hello"}, {"SET", "", strings.Repeat("x", 36)}, {"ZADD", "", "1", "x"}, {"SET", "", ""}} {
		for _, l := range []*limit.Limit{slow(5), window(limit.SlidingLog, 5, time.Hour)} {
			bad := take(fmt.Sprintf("bad%d-%s", i, l.Algorithm), "k", l)
			words[1] = name(bad)
			server.MustDo(t, words...)
			dump := server.MustDo(t, "DUMP", name(bad))
			_, err := s.Take(context.Background(), []store.Op{good, bad})
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("%v: err = %v, want refused", words, err)
			}
			if server.MustDo(t, "DUMP", name(bad)) != dump {
				t.Errorf("%v: the key was changed", words)
			}
		}
	}
	if got := left(t, s, good); got != 5 {
		t.Errorf("the other bucket has %d left, want 5", got)
	}
}

// TestCLK04_windowsAreAbsolute: a counter that should have expired is not read as
// this window's.
func TestCLK04_windowsAreAbsolute(t *testing.T) {
	h := virtual(t)
	op := take("rule", "clk-04", window(limit.FixedWindow, 5, time.Minute))
	do := func() store.Grant {
		grants, err := h.Store.Take(context.Background(), []store.Op{op})
		if err != nil {
			t.Fatal(err)
		}
		return grants[0]
	}
	for range 5 {
		do()
	}
	if do().OK {
		t.Fatal("a sixth was allowed")
	}
	h.Advance(24 * time.Hour) // this harness's buckets never expire
	if g := do(); !g.OK || g.Remaining != 4 {
		t.Errorf("a day later: %+v, want allowed with 4 left", g)
	}
}

// FuzzArguments sends the script anything. It may refuse; it must not store what
// never ends or holds more than its numbers say.
func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		"010000" + "0100000000" + "040000000000" + "c80000000000" + "e803000000" + "6400000000",
		"010004" + "0100000000" + "040000000000" + "c80000000000" + "e803000000" + "6400000000" + "000000000000" + "1400000000" + "32000000" + "0100000000",
		"020000" + "0a00000000" + "040000000000" + "640000000000" + "60ea000000" + "0000000000",
		"030000" + "0100000000" + "040000000000" + "050000000000" + "60ea000000" + "0000000000",
		"040001" + "0100000000" + "060000000000" + "050000000000" + "60ea000000" + "0100000000",
		"010780" + "0100000000" + "040000000000" + "c80000000000" + "e803000000" + "6400000000" + "01000000000000000000000000000000" + "60ea0000",
		"020880" + "0a00000000" + "040000000000" + "640000000000" + "60ea000000" + "0000000000" + "01000000000000000000000000000000" + "60ea0000",
		"030980" + "0100000000" + "040000000000" + "050000000000" + "60ea000000" + "0000000000" + "01000000000000000000000000000000" + "60ea0000",
		"0105a0" + "0100000000" + "040000000000" + "c80000000000" + "e803000000" + "6400000000" + "00000000000000" + "01000000000000000000000000000000" + "60ea0000",
		"010500" + "0100000000" + "040000000000" + "c80000000000" + "e803000000" + "6400000000" + "00000000000000",
	} {
		b, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	server := redistest.Standalone(f)
	s := open(f, patient("redis://"+server.Addr))
	text := s.ScriptText()
	f.Fuzz(func(t *testing.T, a, b []byte) {
		server.MustDo(t, "DEL", "tg:{fuzz}:a", "tg:{fuzz}:b")
		for range 2 {
			_, err := server.Do("EVAL", text, "2", "tg:{fuzz}:a", "tg:{fuzz}:b", string(a), string(b))
			if err != nil && !strings.Contains(err.Error(), "TALLY") {
				t.Fatalf("the script failed: %v", err)
			}
			for _, key := range []string{"tg:{fuzz}:a", "tg:{fuzz}:b"} {
				if ms, _ := server.MustDo(t, "PTTL", key).(int64); ms == -1 || ms > 2*limit.MaxWindowMS+1 {
					t.Fatalf("%s lives for %d ms", key, ms)
				}
			}
		}
	})
}
