package tallygate_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// elsewhere is a store that is not in this process, and may be away.
type elsewhere struct {
	store *store.MemoryStore
	err   atomic.Pointer[store.StoreError]
}

func (e *elsewhere) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	if err := e.err.Load(); err != nil {
		return nil, err
	}
	return e.store.Take(ctx, ops)
}

// givenUp is the error of a breaker that is open.
func givenUp() *store.StoreError {
	return &store.StoreError{Kind: store.Unavailable, Down: time.Nanosecond, Err: errors.New("breaker open")}
}

// awayLimiter is a limiter whose store is away.
func awayLimiter(t *testing.T, list ...rules.Rule) (*tallygate.Limiter, *elsewhere) {
	t.Helper()
	c := newClock()
	s := &elsewhere{store: c.Memory()}
	s.err.Store(givenUp())
	l := withStore(t, c, s, rules.Set{Rules: list})
	t.Cleanup(func() { _ = l.Close() })
	return l, s
}

// A closed rule is refused first, then open ones are decided, and nothing is drawn
// where the check does not pass.
func TestAway_order(t *testing.T) {
	t.Parallel()
	open, closed, listed, part, quiet := bucket("open", 1, 3600, 5), bucket("closed", 1, 3600, 5), bucket("listed", 1, 3600, 5), bucket("part", 1, 3600, 10), bucket("quiet", 1, 3600, 1)
	closed.FailMode, listed.FailMode, part.FailMode = rules.FailClosed, rules.FailClosed, rules.FailClosed
	open.MaxCost, part.MaxCost = 1, 1
	listed.ClosedAllow, part.ClosedAllowanceMilli = [][]string{{"staff"}}, 300
	quiet.Mode, quiet.FailMode = rules.ModeShadow, rules.FailClosed
	l, _ := awayLimiter(t, open, closed, listed, part, quiet)
	mustFail(t, l, both("staff", "open", "part", "closed"), tallygate.CodeStoreUnavailable)
	if err := mustFail(t, l, both("k", "open", "part", "listed"), tallygate.CodeStoreUnavailable); err.Rule != "listed" {
		t.Errorf("refused by %s, want listed", err.Rule)
	}
	for i := range 3 {
		v := mustCheck(t, l, both("staff", "listed", "part", "open", "quiet"))
		sources := []tallygate.Source{v.Entries[0].Source, v.Entries[1].Source, v.Entries[2].Source, v.Entries[3].Source}
		if !v.Allow || v.Degraded != tallygate.DegradedUnavailable || v.Tightest != -1 ||
			fmt.Sprint(sources) != "[allowlist fallback fallback none]" {
			t.Fatalf("check %d: %+v", i, v)
		}
	}
	v := mustCheck(t, l, both("staff", "listed", "part", "open"))
	e := v.Entries[1]
	if v.Allow || v.DeniedBy != "part" || v.RetryMS != 1000 || v.Degraded == "" || v.Tightest != -1 ||
		e.Source != tallygate.SourceFallback || e.Reason != tallygate.ReasonOverLimit || e.Counted || e.Limit != 0 {
		t.Errorf("%+v, want denied by the allowance of 3, with nothing but a wait", v)
	}
	if v.Entries[0].Source != tallygate.SourceNone || v.Entries[2].Source != tallygate.SourceNone {
		t.Errorf("%+v, want nothing drawn elsewhere", v.Entries)
	}
	if got := allowed(t, l, 20, ask("open", "staff", 1)); got != 7 {
		t.Errorf("%d of the open rule left, want 10 less 3", got)
	}
}

// MET-03 and SHD-01 without a store: every admission has one source, every denied
// check one rule, and the sums agree.
func TestStats_awaySumsAddUp(t *testing.T) {
	t.Parallel()
	site, user, shadow := bucket("site", 1, 3600, 100), bucket("user", 1, 3600, 2), bucket("shadow", 1, 3600, 5)
	closed, listed, report := bucket("closed", 1, 3600, 5), bucket("listed", 1, 3600, 5), bucket("report", 1, 3600, 5)
	for _, r := range []*rules.Rule{&site, &user, &shadow, &closed, &listed, &report} {
		r.MaxCost = 1
	}
	shadow.Mode, report.Counting = rules.ModeShadow, rules.CountingReport
	closed.FailMode, listed.FailMode = rules.FailClosed, rules.FailClosed
	listed.ClosedAllow = [][]string{{"k"}}
	l, s := awayLimiter(t, site, user, shadow, closed, listed, report)
	if got := allowed(t, l, 10, both("k", "site", "user", "shadow", "listed", "report")); got != 4 {
		t.Fatalf("%d allowed, want 2 × 2", got)
	}
	for range 3 {
		mustFail(t, l, both("k", "site", "closed"), tallygate.CodeStoreUnavailable)
	}
	s.err.Store(nil)
	if v := mustCheck(t, l, ask("site", "k", 1)); !v.Allow || v.Degraded != "" {
		t.Fatalf("%+v, want the store's answer", v)
	}
	stats := l.Stats()
	if allow, deny := verdicts(stats); allow != 5 || deny != 6 || stats.DegradedUnavailable != 10 || stats.DegradedTimeout != 0 {
		t.Errorf("%d allowed, %d denied, %d degraded; want 5, 6, 10", allow, deny, stats.DegradedUnavailable)
	}
	if got := bySource(stats); got != "true store 1, true fallback 4, false fallback 6" {
		t.Errorf("checks by source: %s", got)
	}
	for rule, want := range map[string]string{
		"site":   "allow store 1, allow fallback 4, unspent none 6; spent 1, denied 0, open 4, closed 0",
		"user":   "allow fallback 4, deny fallback 6; spent 0, denied 6, open 4, closed 0",
		"shadow": "allow none 4, unspent none 6; spent 0, denied 0, open 0, closed 0",
		"closed": "; spent 0, denied 0, open 0, closed 3",
		"listed": "allow allowlist 4, unspent none 6; spent 0, denied 0, open 4, closed 0",
		"report": "allow async 10; spent 10, denied 0, open 0, closed 0",
	} {
		r := ruleStats(t, stats, rule)
		var list []string
		for _, e := range r.Entries {
			list = append(list, fmt.Sprintf("%s %s %d", e.Outcome, e.Source, e.Count))
		}
		got := fmt.Sprintf("%s; spent %d, denied %d, open %d, closed %d", strings.Join(list, ", "), r.Spent, r.Denied, r.FailOpen, r.FailClosed)
		if got != want {
			t.Errorf("%s: %s, want %s", rule, got, want)
		}
	}
}

// What was admitted without the store and the bucket had not is known once it is back.
func TestStats_overTheLimit(t *testing.T) {
	t.Parallel()
	r := bucket("r", 1, 3600, 10)
	r.MaxCost = 1
	l, s := awayLimiter(t, r)
	if got := allowed(t, l, 50, ask("r", "k", 1)); got != 20 {
		t.Fatalf("%d passed, want 20", got)
	}
	if local := l.Stats().Local; local.Fallbacks != 1 || local.FallbackOverflowed != 0 {
		t.Errorf("%+v, want one fallback", local)
	}
	s.err.Store(nil)
	if v := mustCheck(t, l, ask("r", "k", 1)); v.Allow || v.Entries[0].Source != tallygate.SourceStore {
		t.Errorf("%+v, want denied by the store: all ten were charged", v)
	}
	// No more is told than a full bucket holds, so no more is known to be over.
	if got := ruleStats(t, l.Stats(), "r"); got.OverFallback != 0 || got.OverAsync != 0 {
		t.Errorf("%d over by fallback, %d by async; want none of the 10 told", got.OverFallback, got.OverAsync)
	}
}

// What a rule says of failing goes with the question.
func TestOps_failMode(t *testing.T) {
	t.Parallel()
	open, closed, shadow, async := bucket("open", 1, 3600, 5), bucket("closed", 1, 3600, 5), bucket("shadow", 1, 3600, 5), bucket("async", 1, 3600, 5)
	closed.FailMode, shadow.FailMode, async.FailMode = rules.FailClosed, rules.FailClosed, rules.FailClosed
	closed.Replicas, shadow.Mode, async.Counting = 2, rules.ModeShadow, rules.CountingAsync
	fake := &fakeStore{err: errors.New("away")}
	l := withStore(t, newClock(), fake, rules.Set{Rules: []rules.Rule{open, closed, shadow, async}})
	t.Cleanup(func() { _ = l.Close() })
	_, _ = l.Check(context.Background(), both("k", "open", "closed", "shadow", "async"))
	type said struct {
		closed   bool
		replicas int
	}
	got := map[string]said{}
	_, ops := fake.asked()
	for _, op := range ops {
		got[op.Bucket.Rule] = said{op.Closed, op.Replicas}
	}
	want := map[string]said{"open": {}, "closed": {true, 2}, "shadow": {}, "async": {true, 0}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// FLT-12 as far as it is the limiter's: a slow store refuses with a timeout while it is
// tried, and as unavailable once it was given up on.
func TestAway_FLT12(t *testing.T) {
	t.Parallel()
	login := window("login", limit.SlidingLog, 5, 60)
	login.FailMode = rules.FailClosed
	l, s := awayLimiter(t, login)
	slow := &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.DeadlineExceeded}
	for i := range 10 {
		code := tallygate.CodeStoreTimeout
		s.err.Store(slow)
		if i >= 3 {
			code = tallygate.CodeStoreUnavailable
			s.err.Store(&store.StoreError{Kind: store.Timeout, Down: time.Duration(i) * time.Millisecond, Err: context.DeadlineExceeded})
		}
		mustFail(t, l, ask("login", "k", 1), code)
	}
}
