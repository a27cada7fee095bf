package tallygate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/identity"
	"github.com/tallygate/tallygate/internal/await"
	"github.com/tallygate/tallygate/internal/redistest"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/redisstore"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// mustReserve reserves what must be there, for a minute.
func mustReserve(t testing.TB, l *tallygate.Limiter, c tallygate.Check, id string) (tallygate.Verdict, tallygate.Reservation) {
	t.Helper()
	v, r, err := l.Reserve(context.Background(), c, id, 0)
	if err != nil || !v.Allow || r == "" {
		t.Fatalf("Reserve: %+v, %q, %v", v, r, err)
	}
	return v, r
}

// mustSettle fails unless a call had that settlement.
func mustSettle(t testing.TB, want tallygate.Settlement) func(tallygate.Settled, error) tallygate.Settled {
	t.Helper()
	return func(got tallygate.Settled, err error) tallygate.Settled {
		t.Helper()
		if err != nil || got.Settlement != want {
			t.Fatalf("settled %+v, %v; want %s", got, err, want)
		}
		return got
	}
}

// wantRemaining looks at what is left for a key.
func wantRemaining(t testing.TB, l *tallygate.Limiter, rule, key string, want int64) {
	t.Helper()
	u, err := l.Usage(context.Background(), "", []string{key})
	if err != nil {
		t.Fatal(err)
	}
	for i := range u.Rules {
		if r := &u.Rules[i]; r.Rule == rule {
			if r.Err != nil || r.Remaining != want {
				t.Errorf("rule %s, key %s: %d left, %v; want %d", rule, key, r.Remaining, r.Err, want)
			}
			return
		}
	}
	t.Errorf("rule %s does not count key %s", rule, key)
}

// slowly are rules by each algorithm that can reserve, of 100 tokens.
func slowly() []rules.Rule {
	return []rules.Rule{
		bucket("bucket", 1, 3600, 100),
		window("sliding", limit.SlidingWindow, 100, 86_400),
		window("fixed", limit.FixedWindow, 100, 86_400),
	}
}

func TestReserve_life(t *testing.T) {
	for _, rule := range slowly() {
		t.Run(rule.ID, func(t *testing.T) {
			ctx, c := context.Background(), newClock()
			l := limiter(t, c, rule)
			check := ask(rule.ID, "acct", 30)
			v, r := mustReserve(t, l, check, "req-1")
			if v.Entries[0].Remaining != 70 {
				t.Errorf("%d remain, want 70", v.Entries[0].Remaining)
			}
			if _, again := mustReserve(t, l, check, "req-1"); again != r {
				t.Error("a repeat has another reservation")
			}
			wantRemaining(t, l, rule.ID, "acct", 70)
			got := mustSettle(t, tallygate.SettlementCommitted)(l.Commit(ctx, r, 12))
			if e := got.Entries[0]; e.Rule != rule.ID || e.Limit != 100 || e.Remaining != 88 {
				t.Errorf("the bucket is %+v, want 88 of 100", e)
			}
			mustSettle(t, tallygate.SettlementRepeated)(l.Commit(ctx, r, 12))
			mustSettle(t, tallygate.SettlementRepeated)(l.Cancel(ctx, r))
			if v, again, err := l.Reserve(ctx, check, "req-1", 0); err != nil || v.Allow || again != "" || v.Entries[0].Reason != tallygate.ReasonSettled || v.RetryMS != 0 {
				t.Errorf("a settled id: %+v, %q, %v", v, again, err)
			}
			_, r = mustReserve(t, l, check, "")
			mustSettle(t, tallygate.SettlementCanceled)(l.Cancel(ctx, r))
			mustSettle(t, tallygate.SettlementRepeated)(l.Cancel(ctx, r))
			wantRemaining(t, l, rule.ID, "acct", 88)
			_, r = mustReserve(t, l, check, "")
			got = mustSettle(t, tallygate.SettlementCommitted)(l.Commit(ctx, r, 5000))
			if got.Entries[0].Remaining != 0 {
				t.Errorf("%d remain after a commit of more than the limit", got.Entries[0].Remaining)
			}
		})
	}
}

func TestReserve_endsByItself(t *testing.T) {
	ctx, c := context.Background(), newClock()
	l := limiter(t, c, slowly()[1:]...)
	for _, id := range []string{"sliding", "fixed"} {
		_, r, err := l.Reserve(ctx, ask(id, "acct", 100), "", time.Second)
		if err != nil || r == "" {
			t.Fatal(r, err)
		}
		start := c.Now()
		c.Advance(999 * time.Millisecond)
		if v := mustCheck(t, l, ask(id, "acct", 1)); v.Allow {
			t.Errorf("%s: a millisecond early it had ended", id)
		}
		c.Advance(time.Millisecond)
		if v := mustCheck(t, l, ask(id, "acct", 1)); !v.Allow {
			t.Errorf("%s: after %v it had not ended", id, c.Now().Sub(start))
		}
		mustSettle(t, tallygate.SettlementUnknown)(l.Cancel(ctx, r))
		mustSettle(t, tallygate.SettlementLate)(l.Commit(ctx, r, 9))
		mustSettle(t, tallygate.SettlementRepeated)(l.Commit(ctx, r, 9))
		wantRemaining(t, l, id, "acct", 90)
	}
}

func TestReserve_anotherPod(t *testing.T) {
	ctx, c := context.Background(), newClock()
	snapshot, shared := tallygate.Fixed(compile(t, c.Now(), rules.Set{Rules: slowly()})), c.Memory()
	pod := func(secret string) *tallygate.Limiter {
		l, err := tallygate.New(tallygate.Config{Rules: snapshot, Store: &elsewhere{store: shared}, Now: c.Now, Deadline: time.Minute, ReservationSecret: []byte(secret)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, two, foreign := pod("s"), pod("s"), pod("x")
	_, r := mustReserve(t, one, ask("bucket", "sk_live_1", 40), "")
	if strings.Contains(string(r), "sk_live") {
		t.Error("the key is in the reservation")
	}
	if _, err := foreign.Commit(ctx, r, 10); tallygate.CodeOf(err) != tallygate.CodeBadRequest {
		t.Errorf("a pod with another secret: %v", err)
	}
	mustSettle(t, tallygate.SettlementCommitted)(two.Commit(ctx, r, 10))
	mustSettle(t, tallygate.SettlementRepeated)(one.Commit(ctx, r, 10))
	wantRemaining(t, one, "bucket", "sk_live_1", 90)
}

// What was reserved of a candidate costs the rule once the candidate is none any more.
func TestReserve_candidateEnds(t *testing.T) {
	live, next := bucket("r", 1, 3600, 20), bucket("r", 1, 3600, 10)
	for name, after := range map[string]rules.Rule{"dropped": live, "promoted": next} {
		t.Run(name, func(t *testing.T) {
			ctx, c, in := context.Background(), newClock(), new(switched)
			in.apply(t, c.Now(), onTrial(next, rules.StageCanary, 100, live))
			l, err := tallygate.New(tallygate.Config{Rules: in, Store: c.Memory(), Now: c.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			_, committed := mustReserve(t, l, ask("r", "k", 5), "")
			_, canceled := mustReserve(t, l, ask("r", "k", 5), "")
			in.apply(t, c.Now(), rules.Set{Rules: []rules.Rule{after}})
			mustSettle(t, tallygate.SettlementLate)(l.Commit(ctx, committed, 7))
			mustSettle(t, tallygate.SettlementRepeated)(l.Commit(ctx, committed, 7))
			mustSettle(t, tallygate.SettlementUnknown)(l.Cancel(ctx, canceled))
			wantRemaining(t, l, "r", "k", after.Burst-7)
		})
	}
}

func TestReserve_costsByRule(t *testing.T) {
	ctx := context.Background()
	l := limiter(t, newClock(), bucket("requests", 1, 3600, 10), bucket("tokens", 1, 3600, 5000))
	check := tallygate.Check{Entries: []tallygate.Entry{{Rule: "requests", Key: []string{"k"}, Cost: 1}, {Rule: "tokens", Key: []string{"k"}, Cost: 800}}}
	_, r := mustReserve(t, l, check, "")
	if _, err := l.CommitEach(ctx, r, map[string]int64{"token": 1}); tallygate.CodeOf(err) != tallygate.CodeUnknownRule {
		t.Errorf("a cost of another rule: %v", err)
	}
	mustSettle(t, tallygate.SettlementCommitted)(l.CommitEach(ctx, r, map[string]int64{"tokens": 1234}))
	wantRemaining(t, l, "requests", "k", 9)
	wantRemaining(t, l, "tokens", "k", 3766)
}

func TestReserve_denials(t *testing.T) {
	ctx, c := context.Background(), newClock()
	l := limiter(t, c, bucket("a", 1, 3600, 100), bucket("b", 1, 3600, 2))
	v, r, err := l.Reserve(ctx, tallygate.Check{Entries: []tallygate.Entry{{Rule: "a", Key: []string{"k"}, Cost: 9}, {Rule: "b", Key: []string{"k"}, Cost: 2}, {Rule: "b", Key: []string{"k"}, Look: true}}}, "", 0)
	if err != nil || !v.Allow || r == "" {
		t.Fatal(v, r, err)
	}
	if v, r, err := l.Reserve(ctx, both("k", "a", "b"), "", 0); err != nil || v.Allow || r != "" || v.DeniedBy != "b" || v.RetryMS == 0 {
		t.Errorf("nothing is left of b: %+v, %q, %v", v, r, err)
	}
	wantRemaining(t, l, "a", "k", 91)
	for range store.MaxReservations {
		mustReserve(t, l, ask("a", "many", 1), "")
	}
	if v, _, err := l.Reserve(ctx, ask("a", "many", 1), "", 0); err != nil || v.Allow || v.Entries[0].Reason != tallygate.ReasonTooManyReservations || v.RetryMS != time.Minute.Milliseconds() {
		t.Errorf("one more than fit: %+v, %v", v, err)
	}
	if v := mustCheck(t, l, ask("a", "many", 1)); !v.Allow {
		t.Error("a check is denied by the number of reservations")
	}
}

func TestReserve_refusals(t *testing.T) {
	local := bucket("local", 1, 1, 5)
	local.Counting = rules.CountingLocal
	l := limiter(t, newClock(), bucket("a", 1, 1, 5), window("log", limit.SlidingLog, 5, 60), local)
	for _, c := range []struct {
		name  string
		check tallygate.Check
		id    string
		ttl   time.Duration
		code  tallygate.Code
	}{
		{"a log", ask("log", "k", 1), "", 0, tallygate.CodeNotReservable},
		{"a rule each pod counts alone", ask("local", "k", 1), "", 0, tallygate.CodeNotReservable},
		{"a look", look("a", "k"), "", 0, tallygate.CodeInvalidCost},
		{"above max_cost", ask("a", "k", 6), "", 0, tallygate.CodeInvalidCost},
		{"a long id", ask("a", "k", 1), strings.Repeat("i", 257), 0, tallygate.CodeTooLarge},
		{"a short time", ask("a", "k", 1), "", time.Second - 1, tallygate.CodeBadRequest},
		{"a long time", ask("a", "k", 1), "", time.Hour + 1, tallygate.CodeBadRequest},
		{"no rule", ask("nobody", "k", 1), "", 0, tallygate.CodeUnknownRule},
		{"long keys", longKeys("a"), "", 0, tallygate.CodeTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			if v, r, err := l.Reserve(context.Background(), c.check, c.id, c.ttl); tallygate.CodeOf(err) != c.code {
				t.Errorf("%+v, %q, %v; want %s", v, r, err, c.code)
			}
		})
	}
	_, r := mustReserve(t, l, ask("a", "k", 1), "")
	for name, settle := range map[string]func() error{
		"a negative cost":  func() error { _, err := l.Commit(context.Background(), r, -1); return err },
		"a large cost":     func() error { _, err := l.Commit(context.Background(), r, limit.MaxCost+1); return err },
		"a large one of a": func() error { _, err := l.CommitEach(context.Background(), r, map[string]int64{"a": -1}); return err },
	} {
		if err := settle(); tallygate.CodeOf(err) != tallygate.CodeInvalidCost {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []tallygate.Reservation{"", "x", r + "A", r[:len(r)-2]} {
		if _, err := l.Cancel(context.Background(), bad); tallygate.CodeOf(err) != tallygate.CodeBadRequest {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func longKeys(rule string) (c tallygate.Check) {
	for i := range 4 {
		c.Entries = append(c.Entries, tallygate.Entry{Rule: rule, Key: []string{fmt.Sprint(i, strings.Repeat("k", 4000))}, Cost: 1})
	}
	return c
}

// What is not enforced refuses nothing, and what only counts is counted in the end.
func TestReserve_shadowAndReport(t *testing.T) {
	ctx := context.Background()
	shadow, log, report := bucket("shadow", 1, 3600, 5), window("log", limit.SlidingLog, 5, 60), bucket("report", 1, 3600, 50)
	shadow.Mode, log.Mode, report.Counting = rules.ModeShadow, rules.ModeShadow, rules.CountingReport
	l := limiter(t, newClock(), shadow, log, report)
	check := tallygate.Check{}
	for _, id := range []string{"shadow", "log", "report"} {
		check.Entries = append(check.Entries, tallygate.Entry{Rule: id, Key: []string{"k"}, Cost: 4})
	}
	_, r := mustReserve(t, l, check, "")
	_, over := mustReserve(t, l, check, "") // the shadow rule would deny
	wantRemaining(t, l, "shadow", "k", 1)
	wantRemaining(t, l, "report", "k", 50)
	mustSettle(t, tallygate.SettlementCommitted)(l.Commit(ctx, r, 3))
	mustSettle(t, tallygate.SettlementCommitted)(l.Commit(ctx, over, 3))
	mustSettle(t, tallygate.SettlementRepeated)(l.Commit(ctx, over, 3))
	wantRemaining(t, l, "shadow", "k", 2)
	wantRemaining(t, l, "report", "k", 44)
}

func TestReserve_nothingToHold(t *testing.T) {
	allow := rules.Rule{ID: "allow", Action: rules.ActionAllow, Match: map[string]string{"plan": "x"}}
	l := limiter(t, newClock(), allow)
	for _, plan := range []string{"x", "y"} {
		v, r, err := l.Reserve(context.Background(), tallygate.Check{Attributes: map[string]string{"plan": plan}}, "", 0)
		if err != nil || !v.Allow || r != "" {
			t.Errorf("plan %s: %+v, %q, %v", plan, v, r, err)
		}
	}
}

// Without the store a rule's fail mode decides, and nothing is counted twice after.
func TestReserve_away(t *testing.T) {
	ctx := context.Background()
	closed := bucket("closed", 1, 3600, 100)
	closed.FailMode = rules.FailClosed
	t.Run("closed", func(t *testing.T) {
		l, _ := awayLimiter(t, closed)
		if _, r, err := l.Reserve(ctx, ask("closed", "k", 5), "", 0); tallygate.CodeOf(err) != tallygate.CodeStoreUnavailable || r != "" {
			t.Errorf("%q, %v", r, err)
		}
	})
	for _, c := range []struct {
		name string
		sent bool
		cost int64
		done tallygate.Settlement
		left int64
	}{
		// What the fallback admitted is told by the pod: 5 of it, and the rest here.
		{"open, more", false, 7, tallygate.SettlementCommitted, 93},
		{"open, less", false, 3, tallygate.SettlementCommitted, 95},
		// A call that was sent may have reserved: here it did not.
		{"open, sent", true, 7, tallygate.SettlementLate, 93},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, s := awayLimiter(t, bucket("open", 1, 3600, 100))
			if c.sent {
				s.err.Store(&store.StoreError{Kind: store.Timeout, Sent: true, Err: context.DeadlineExceeded})
			}
			v, r := mustReserve(t, l, ask("open", "k", 5), "")
			if v.Degraded == "" || v.Entries[0].Source != tallygate.SourceFallback {
				t.Errorf("it is not degraded: %+v", v)
			}
			if _, err := l.Commit(ctx, r, c.cost); err == nil && c.cost > 5 {
				t.Error("a commit passed without the store")
			}
			s.err.Store(nil)
			mustCheck(t, l, look("open", "k")) // the pod tells what it admitted
			mustSettle(t, c.done)(l.Commit(ctx, r, c.cost))
			if c.cost > 5 {
				mustSettle(t, tallygate.SettlementRepeated)(l.Commit(ctx, r, c.cost))
			}
			wantRemaining(t, l, "open", "k", c.left)
		})
	}
}

// lossy is a store whose answers to reservations are lost.
type lossy struct{ store *store.MemoryStore }

func (s lossy) Take(ctx context.Context, ops []store.Op) ([]store.Grant, error) {
	grants, err := s.store.Take(ctx, ops)
	if err == nil && ops[0].How == store.Reserve {
		return nil, &store.StoreError{Kind: store.Timeout, Sent: true, Err: context.DeadlineExceeded}
	}
	return grants, err
}

// A reservation whose answer was lost may hold: it ends by itself.
func TestReserve_lostAnswer(t *testing.T) {
	ctx, c := context.Background(), newClock()
	closed := window("closed", limit.FixedWindow, 100, 86_400)
	closed.FailMode = rules.FailClosed
	l := withStore(t, c, lossy{c.Memory()}, rules.Set{Rules: []rules.Rule{closed}})
	t.Cleanup(func() { _ = l.Close() })
	if _, _, err := l.Reserve(ctx, ask("closed", "k", 60), "id", 0); tallygate.CodeOf(err) != tallygate.CodeStoreTimeout {
		t.Fatal(err)
	}
	wantRemaining(t, l, "closed", "k", 40)
	c.Advance(time.Minute)
	wantRemaining(t, l, "closed", "k", 100)
}

func TestReserve_stats(t *testing.T) {
	ctx, c := context.Background(), newClock()
	l := limiter(t, c, window("r", limit.FixedWindow, 20, 86_400))
	_, one := mustReserve(t, l, ask("r", "k", 5), "one")
	mustReserve(t, l, ask("r", "k", 5), "one")
	_, two := mustReserve(t, l, ask("r", "k", 5), "two")
	_, _, _ = l.Reserve(ctx, ask("r", "k", 15), "", 0)
	_, late, _ := l.Reserve(ctx, ask("r", "k", 5), "", time.Second)
	for range 2 {
		_, _ = l.Commit(ctx, one, 4)
		_, _ = l.Cancel(ctx, two)
	}
	c.Advance(time.Second)
	_, _ = l.Commit(ctx, late, 1)
	got := l.Stats().Rules[0]
	if want := (tallygate.ReservationStats{Reserved: 3, Denied: 1, Committed: 1, Canceled: 1, Late: 1}); got.Reservations != want {
		t.Errorf("got %+v, want %+v", got.Reservations, want)
	}
	if got.Spent != 15 {
		t.Errorf("spent %d, want the estimates, 15", got.Spent)
	}
}

// On a cluster the buckets of two keys lie in two places: what one reserved is undone
// where the other denies, and its id can be used again.
func TestReserve_cluster(t *testing.T) {
	ctx := context.Background()
	url := "redis://" + redistest.SharedCluster(t).Addrs()[0]
	pods := make([]*tallygate.Limiter, 2)
	snapshot := tallygate.Fixed(compile(t, time.Now(), rules.Set{Rules: []rules.Rule{bucket("reserve-a", 1, 3600, 100), bucket("reserve-b", 1, 3600, 10)}}))
	for i := range pods {
		s, err := redisstore.New(ctx, redisstore.Config{URL: url, Tags: identity.NewHasher(nil), Deadline: patient})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if pods[i], err = tallygate.New(tallygate.Config{Rules: snapshot, Store: s, Deadline: patient, ReservationSecret: []byte("s")}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pods[i].Close() })
	}
	key := fmt.Sprint(time.Now().UnixNano())
	check := func(b int64) tallygate.Check {
		return tallygate.Check{Entries: []tallygate.Entry{{Rule: "reserve-a", Key: []string{key + "a"}, Cost: 40}, {Rule: "reserve-b", Key: []string{key + "b"}, Cost: b}}}
	}
	if v := mustCheck(t, pods[0], ask("reserve-b", key+"b", 5)); !v.Allow {
		t.Fatal(v)
	}
	if v, r, err := pods[0].Reserve(ctx, check(6), "id", 0); err != nil || v.Allow || r != "" {
		t.Fatalf("%+v, %q, %v", v, r, err)
	}
	await.That(t, "the first is undone", func() bool {
		u, err := pods[0].Usage(ctx, "", []string{key + "a"})
		return err == nil && u.Rules[0].Remaining == 100
	})
	_, r := mustReserve(t, pods[0], check(5), "id")
	mustSettle(t, tallygate.SettlementCommitted)(pods[1].Commit(ctx, r, 3))
	mustSettle(t, tallygate.SettlementRepeated)(pods[0].Commit(ctx, r, 3))
	wantRemaining(t, pods[1], "reserve-a", key+"a", 97)
}
