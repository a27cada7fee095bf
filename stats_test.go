package tallygate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// newKey is a key that no bucket of the shared Redis knows.
func newKey() string { return fmt.Sprintf("acct_%d", time.Now().UnixNano()) }

// ruleStats returns the figures of one rule.
func ruleStats(t testing.TB, s tallygate.Stats, rule string) tallygate.RuleStats {
	t.Helper()
	for _, r := range s.Rules {
		if r.Rule == rule {
			return r
		}
	}
	t.Fatalf("no figures of rule %s", rule)
	return tallygate.RuleStats{}
}

// verdicts sums the checks over all sources.
func verdicts(s tallygate.Stats) (allowed, denied int64) {
	for _, c := range s.Checks {
		if c.Allow {
			allowed += c.Count
		} else {
			denied += c.Count
		}
	}
	return allowed, denied
}

func errorCount(s tallygate.Stats, code tallygate.Code) int64 {
	for _, e := range s.Errors {
		if e.Code == code {
			return e.Count
		}
	}
	return 0
}

// bySource is the checks that are not 0, as text.
func bySource(s tallygate.Stats) string {
	var list []string
	for _, c := range s.Checks {
		if c.Count > 0 {
			list = append(list, fmt.Sprintf("%t %s %d", c.Allow, c.Source, c.Count))
		}
	}
	return strings.Join(list, ", ")
}

// waysToAnswer are limiters by the path that answers: figures must not depend on it.
func waysToAnswer(t *testing.T, rs ...rules.Rule) map[string]*tallygate.Limiter {
	t.Helper()
	exact := make([]rules.Rule, len(rs))
	for i, r := range rs {
		r.Counting = rules.CountingExact
		exact[i] = r
	}
	return map[string]*tallygate.Limiter{
		"memory":                        limiter(t, newClock(), rs...),
		"Redis, exact":                  fleet(t, 1, exact...)[0],
		"Redis, leases and deny cache":  fleet(t, 1, rs...)[0],
		"Redis, two pods share a limit": fleet(t, 2, rs...)[1],
	}
}

// MET-03: each check has one verdict and one denying rule, whichever path answers.
func TestStats_MET03_sumsAddUp(t *testing.T) {
	t.Parallel()
	site, user := bucket("met03-site", 1, 3600, 100), bucket("met03-user", 1, 3600, 2)
	site.MaxCost, user.MaxCost = 1, 1
	for name, l := range waysToAnswer(t, site, user) {
		t.Run(name, func(t *testing.T) {
			check := both(newKey(), "met03-site", "met03-user")
			if got := allowed(t, l, 10, check); got != 2 {
				t.Fatalf("%d allowed, want 2", got)
			}
			s := l.Stats()
			if allow, deny := verdicts(s); allow != 2 || deny != 8 {
				t.Errorf("checks: %d allowed and %d denied, want 2 and 8", allow, deny)
			}
			siteStats, userStats := ruleStats(t, s, "met03-site"), ruleStats(t, s, "met03-user")
			for _, tt := range []struct {
				what      string
				got, want int64
			}{
				{"spent(site)", siteStats.Spent, 2},
				{"spent(user)", userStats.Spent, 2},
				{"denied(site)", siteStats.Denied, 0},
				{"denied(user)", userStats.Denied, 8},
				{"allow(site)", siteStats.Count(tallygate.OutcomeAllow), 2},
				{"unspent(site)", siteStats.Count(tallygate.OutcomeUnspent), 8},
				{"deny(user)", userStats.Count(tallygate.OutcomeDeny), 8},
			} {
				if tt.got != tt.want {
					t.Errorf("%s = %d, want %d", tt.what, tt.got, tt.want)
				}
			}
		})
	}
}

// SHD-01: a shadow rule's denials count the same whoever answers.
func TestStats_SHD01_shadowDenials(t *testing.T) {
	t.Parallel()
	shadow := bucket("shd01", 1, 3600, 5)
	shadow.MaxCost, shadow.Mode = 1, rules.ModeShadow
	for name, l := range waysToAnswer(t, shadow) {
		t.Run(name, func(t *testing.T) {
			if got := allowed(t, l, 20, ask("shd01", newKey(), 1)); got != 20 {
				t.Fatalf("%d allowed, want 20", got)
			}
			s := l.Stats()
			r := ruleStats(t, s, "shd01")
			if shadowed, denied := r.Count(tallygate.OutcomeShadowDeny), r.Count(tallygate.OutcomeDeny); shadowed != 15 || denied != 0 || r.Denied != 0 {
				t.Errorf("%d would-be denials, %d and %d real ones, want 15, 0 and 0", shadowed, denied, r.Denied)
			}
			if allow, deny := verdicts(s); allow != 20 || deny != 0 || r.Spent != 5 {
				t.Errorf("%d allowed, %d denied, %d spent, want 20, 0 and 5", allow, deny, r.Spent)
			}
		})
	}
}

// However a rule counts, the figures are what the verdicts said.
func TestStats_agreeWithVerdicts(t *testing.T) {
	t.Parallel()
	var list []rules.Rule
	for _, counting := range []rules.Counting{rules.CountingLease, rules.CountingExact, rules.CountingAsync, rules.CountingLocal, rules.CountingReport} {
		r := bucket("agree-"+string(counting), 10, 1, 60) // not so fast that a slow run is denied nothing
		r.MaxCost, r.Counting = 1, counting
		quiet := r
		quiet.ID, quiet.Mode = "quiet-"+string(counting), rules.ModeShadow
		list = append(list, r, quiet)
	}
	l := fleet(t, 1, list...)[0]
	memory := limiter(t, newClock(), list...)
	for name, l := range map[string]*tallygate.Limiter{"Redis": l, "memory": memory} {
		t.Run(name, func(t *testing.T) {
			type cell struct {
				rule    string
				outcome tallygate.Outcome
				source  tallygate.Source
			}
			want, got := map[cell]int64{}, map[cell]int64{}
			spent := map[string]int64{}
			var allow, deny int64
			key := newKey()
			for i := range 1500 {
				a, b := list[i%len(list)], list[(i/7)%len(list)]
				if a.ID == b.ID {
					continue
				}
				v := mustCheck(t, l, both(key, a.ID, b.ID))
				for _, e := range v.Entries {
					c := cell{e.Rule, tallygate.OutcomeAllow, e.Source}
					reports := strings.HasSuffix(e.Rule, "report") && e.Counted
					switch {
					case !e.Allow && e.Shadow:
						c.outcome = tallygate.OutcomeShadowDeny
					case !e.Allow:
						c.outcome = tallygate.OutcomeDeny
					case !v.Allow && !reports:
						c.outcome = tallygate.OutcomeUnspent
					default:
						spent[e.Rule]++
					}
					want[c]++
				}
				if v.Allow {
					allow++
				} else {
					deny++
				}
			}
			s := l.Stats()
			for _, r := range s.Rules {
				for _, e := range r.Entries {
					got[cell{r.Rule, e.Outcome, e.Source}] = e.Count
				}
				if r.Spent != spent[r.Rule] {
					t.Errorf("%s: %d spent, want %d", r.Rule, r.Spent, spent[r.Rule])
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("entries: got %v, want %v", got, want)
			}
			if a, d := verdicts(s); a != allow || d != deny || deny == 0 {
				t.Errorf("%d allowed and %d denied, want %d and %d", a, d, allow, deny)
			}
			t.Log(bySource(s))
		})
	}
}

// A check's source is the denying entry's, or the furthest that was asked.
func TestStats_source(t *testing.T) {
	t.Parallel()
	c := newClock()
	free, never := rules.Rule{ID: "free", CoversAll: true, Action: rules.ActionAllow}, rules.Rule{ID: "never", CoversAll: true, Action: rules.ActionDeny}
	for _, tt := range []struct {
		name  string
		check tallygate.Check
		want  string
	}{
		{"store", ask("counted", "k", 1), "true store 1"},
		{"rule alone", ask("free", "k", 1), "true rule 1"},
		{"rule and store", both("k", "free", "counted"), "true store 1"},
		{"refused by rule", both("k", "counted", "never"), "false rule 1"},
		{"no rule", tallygate.Check{Attributes: map[string]string{"plan": "none"}, Domain: "narrow"}, "true none 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			narrow := rules.Rule{ID: "narrow", Domain: "narrow", Action: rules.ActionDeny, Match: map[string]string{"plan": "growth"}}
			l := limiter(t, c, bucket("counted", 1, 1, 10), free, never, narrow)
			mustCheck(t, l, tt.check)
			if got := bySource(l.Stats()); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// A store that is away: who passed and who did not is counted by rule.
func TestStats_failModes(t *testing.T) {
	t.Parallel()
	open, closed, shadow := bucket("open", 1, 1, 10), bucket("closed", 1, 1, 10), bucket("shadow", 1, 1, 10)
	closed.FailMode, shadow.Mode = rules.FailClosed, rules.ModeShadow
	away := &fakeStore{err: &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.DeadlineExceeded}}
	l := withStore(t, newClock(), away, rules.Set{Rules: []rules.Rule{open, closed, shadow}})
	t.Cleanup(func() { _ = l.Close() })
	var seen atomic.Int64
	l.OnStoreCall(func(call tallygate.StoreCall) {
		if call.Err == nil {
			t.Error("a failed call is told as an answer")
		}
		seen.Add(1)
	})
	mustCheck(t, l, both("k", "open", "shadow"))
	mustFail(t, l, both("k", "open", "closed"), tallygate.CodeStoreTimeout)
	mustFail(t, l, ask("nowhere", "k", 1), tallygate.CodeUnknownRule)
	s := l.Stats()
	if got := bySource(s); got != "true fallback 1" || s.DegradedTimeout != 1 || s.DegradedUnavailable != 0 {
		t.Errorf("%s, %d and %d degraded", got, s.DegradedTimeout, s.DegradedUnavailable)
	}
	for rule, want := range map[string][3]int64{"open": {1, 0, 0}, "closed": {0, 1, 0}, "shadow": {0, 0, 0}} {
		r := ruleStats(t, s, rule)
		if got := [3]int64{r.FailOpen, r.FailClosed, r.Spent}; got != want {
			t.Errorf("%s: fail_open, fail_closed, spent = %v, want %v", rule, got, want)
		}
	}
	if a, b := errorCount(s, tallygate.CodeStoreTimeout), errorCount(s, tallygate.CodeUnknownRule); a != 1 || b != 1 {
		t.Errorf("%d store_timeout and %d unknown_rule, want one each", a, b)
	}
	if s.Store.Calls != 2 || s.Store.Timeouts != 2 || seen.Load() != 2 {
		t.Errorf("%+v, %d told; want 2 calls, 2 timeouts", s.Store, seen.Load())
	}
	_ = l.Close()
	mustFail(t, l, ask("open", "k", 1), tallygate.CodeClosed)
	if got := errorCount(l.Stats(), tallygate.CodeClosed); got != 1 {
		t.Errorf("%d closed, want 1", got)
	}
}

// The store's clock is told less ours.
func TestStats_clockOffset(t *testing.T) {
	t.Parallel()
	c := newClock()
	ahead := &fakeStore{grants: []store.Grant{{OK: true, NowMS: epoch.Add(70 * time.Millisecond).UnixMilli()}}}
	l := withStore(t, c, ahead, rules.Set{Rules: []rules.Rule{bucket("r", 1, 1, 10)}})
	t.Cleanup(func() { _ = l.Close() })
	if s := l.Stats(); s.Store.ClockKnown {
		t.Errorf("%s before any answer", s.Store.ClockOffset)
	}
	mustCheck(t, l, ask("r", "k", 1))
	if s := l.Stats(); !s.Store.ClockKnown || s.Store.ClockOffset != 70*time.Millisecond {
		t.Errorf("%s, known %t; want 70 ms", s.Store.ClockOffset, s.Store.ClockKnown)
	}
}

// Neither clients nor rules make the figures grow without end, and a name that is
// the caller's to use again is copied.
func TestStats_namesAreBounded(t *testing.T) {
	t.Parallel()
	var list []rules.Rule
	for i := range 1500 {
		list = append(list, rules.Rule{ID: fmt.Sprintf("rule-%d", i), CoversAll: true, Action: rules.ActionAllow})
	}
	l := limiter(t, newClock(), list...)
	for i := range 1500 {
		mustCheck(t, l, ask(fmt.Sprintf("rule-%d", i), "k", 1))
	}
	few := limiter(t, newClock(), list[0])
	buffer := make([]byte, 0, 64)
	for i := range 3000 {
		buffer = fmt.Appendf(buffer[:0], "GET /v1/%04d", i)
		mustCheck(t, few, tallygate.Check{Attributes: map[string]string{"route": unsafe.String(&buffer[0], len(buffer))}})
	}
	for _, route := range []string{"bad\xff", strings.Repeat("x", 257), tallygate.Other} {
		mustCheck(t, few, tallygate.Check{Attributes: map[string]string{"route": route}})
	}
	mustCheck(t, few, tallygate.Check{Attributes: map[string]string{"route": "GET /v1/0000"}})
	mustCheck(t, few, tallygate.Check{Attributes: map[string]string{"plan": "growth"}})

	if got := len(l.Stats().Rules); got != 1001 {
		t.Errorf("%d rules, want 1000 and other", got)
	}
	if r := ruleStats(t, l.Stats(), tallygate.Other); r.Count(tallygate.OutcomeAllow) != 500 {
		t.Errorf("%d entries of other rules, want 500", r.Count(tallygate.OutcomeAllow))
	}
	routes := map[string]int64{}
	for _, r := range few.Stats().Routes {
		if _, twice := routes[r.Route]; twice {
			t.Errorf("%q stands there twice", r.Route)
		}
		routes[r.Route] = r.Allowed
	}
	if len(routes) != 1002 || routes[tallygate.Other] != 2003 || routes[tallygate.NoRoute] != 1 || routes["GET /v1/0000"] != 2 || routes["GET /v1/0999"] != 1 {
		t.Errorf("%d routes, %d other, %d none, %d of the first, %d of the last with a name", len(routes),
			routes[tallygate.Other], routes[tallygate.NoRoute], routes["GET /v1/0000"], routes["GET /v1/0999"])
	}
}

// changing has rules that change under way.
type changing struct {
	snapshot atomic.Pointer[rules.Snapshot]
}

func (c *changing) Snapshot() *rules.Snapshot { return c.snapshot.Load() }

// Many at a time, while rules come, go and change places: nothing is lost.
func TestStats_concurrent(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 400
	a, b := bucket("a", 1, 3600, 500), bucket("b", 1, 1, 1_000_000)
	a.MaxCost, b.MaxCost = 1, 1
	sets := []rules.Set{{Rules: []rules.Rule{a, b}}, {Rules: []rules.Rule{b, forever("c"), a}}}
	feed := new(changing)
	feed.snapshot.Store(compile(t, epoch, sets[0]))
	c := newClock()
	l, err := tallygate.New(tallygate.Config{Rules: feed, Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var background, wg sync.WaitGroup
	background.Go(func() {
		for i := 0; ; i++ {
			next, _ := rules.Compile(feed.Snapshot(), sets[i%2], 0, epoch)
			feed.snapshot.Store(next)
			l.Stats()
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var allow, deny atomic.Int64
	for range workers {
		wg.Go(func() {
			var v tallygate.Verdict
			for range each {
				if err := l.Decide(context.Background(), both("k", "a", "b"), &v); err != nil {
					t.Error(err)
					return
				}
				if v.Allow {
					allow.Add(1)
				} else {
					deny.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	background.Wait()
	s := l.Stats()
	gotAllow, gotDeny := verdicts(s)
	if gotAllow != allow.Load() || gotDeny != deny.Load() || gotAllow+gotDeny != workers*each {
		t.Errorf("counted %d and %d, were %d and %d", gotAllow, gotDeny, allow.Load(), deny.Load())
	}
	ra, rb := ruleStats(t, s, "a"), ruleStats(t, s, "b")
	if ra.Spent != gotAllow || rb.Spent != gotAllow || ra.Denied != gotDeny || rb.Denied != 0 {
		t.Errorf("spent %d and %d of %d, denied %d and %d of %d", ra.Spent, rb.Spent, gotAllow, ra.Denied, rb.Denied, gotDeny)
	}
	if s.Snapshot.Revision != feed.Snapshot().Revision() {
		t.Errorf("revision %d, want %d", s.Snapshot.Revision, feed.Snapshot().Revision())
	}
}

// What was leased was spent, returned or ended; nothing is out after Close.
func TestStats_leases(t *testing.T) {
	t.Parallel()
	rule := bucket("leased", 2000, 1, 2000)
	rule.MaxCost = 1
	l := fleet(t, 1, rule)[0]
	key := newKey()
	start := time.Now()
	await.That(t, "the pod tops leases up by itself", func() bool {
		mustCheck(t, l, ask("leased", key, 1))
		return time.Since(start) > 300*time.Millisecond && l.Stats().Store.TopUps > 0
	})
	// While a call of the background is under way a token is between two figures.
	var s tallygate.Stats
	var r tallygate.RuleStats
	await.That(t, "the leases add up", func() bool {
		s = l.Stats()
		r = ruleStats(t, s, "leased")
		during := r.Leases
		return during.Granted != 0 && during.Granted == during.Spent+during.Returned+during.Expired+during.Out
	})
	if allow, deny := verdicts(s); r.Spent != allow || r.Denied != deny || s.Local.Remembered == 0 || s.Local.Pods != 1 {
		t.Errorf("%d spent of %d, %d denied of %d, %+v", r.Spent, allow, r.Denied, deny, s.Local)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s = l.Stats()
	after := ruleStats(t, s, "leased").Leases
	if after.Out != 0 || after.Idle != 0 || after.Granted != after.Spent+after.Returned+after.Expired {
		t.Errorf("%+v after Close", after)
	}
	if s.Store.Calls == 0 || s.Store.TopUps == 0 || !s.Store.ClockKnown || s.Store.ClockOffset.Abs() > time.Second {
		t.Errorf("%+v", s.Store)
	}
	t.Logf("%+v, %+v", after, s.Store)
}

// The overflow of the table in this process is told.
func TestStats_memoryStore(t *testing.T) {
	t.Parallel()
	c := newClock()
	small := store.NewMemoryStore(store.MemoryConfig{MaxBuckets: 4, Now: c.Now})
	l := withStore(t, c, small, rules.Set{Rules: []rules.Rule{bucket("r", 1, 3600, 10)}})
	for i := range 6 {
		mustCheck(t, l, ask("r", fmt.Sprint("k", i), 1))
	}
	c.Advance(time.Minute)
	s := l.Stats()
	if !s.Local.Memory || s.Local.Buckets != 4 || s.Local.Overflowed != 2 {
		t.Errorf("%+v, want 4 buckets and 2 overflowed", s.Local)
	}
	if s.Snapshot.Age != time.Minute || s.Snapshot.Revision != 1 || s.Snapshot.Rules != 1 {
		t.Errorf("%+v", s.Snapshot)
	}
}

// An error that is no StoreError counts as a store that cannot be reached.
func TestStats_strangeError(t *testing.T) {
	t.Parallel()
	l := withStore(t, newClock(), &fakeStore{err: errors.New("odd")}, rules.Set{Rules: []rules.Rule{bucket("r", 1, 1, 10)}})
	t.Cleanup(func() { _ = l.Close() })
	mustCheck(t, l, ask("r", "k", 1))
	if s := l.Stats(); s.Store.Unavailable != 1 || s.DegradedUnavailable != 1 {
		t.Errorf("%+v, %d degraded", s.Store, s.DegradedUnavailable)
	}
}

// BenchmarkStats is a scrape of a thousand rules.
func BenchmarkStats(b *testing.B) {
	var list []rules.Rule
	for i := range 1000 {
		list = append(list, forever(fmt.Sprintf("rule-%d", i)))
	}
	l := limiter(b, newClock(), list...)
	for i := range 1000 {
		mustCheck(b, l, ask(fmt.Sprintf("rule-%d", i), "k", 1))
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Stats()
	}
}
