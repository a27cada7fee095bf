package tallygate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/limit"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/store"
)

// Every malformed check gets its code and field, and the store is not asked.
func TestRefused(t *testing.T) {
	t.Parallel()
	composite := bucket("composite", 1, 1, 1)
	composite.Identity = []string{"org", "user"}
	byUser := bucket("by-user", 1, 1, 1)
	byUser.Domain, byUser.Identity = "users", []string{"user"}
	set := rules.Set{Rules: []rules.Rule{bucket("r", 1, 1, 10), composite, byUser}}
	key := []string{"k"}
	tests := []struct {
		name  string
		check tallygate.Check
		code  tallygate.Code
		field string
	}{
		{"nothing", tallygate.Check{}, tallygate.CodeBadRequest, ""},
		{"both", tallygate.Check{Entries: ask("r", "k", 1).Entries, Attributes: map[string]string{}}, tallygate.CodeBadRequest, "/attributes"},
		{"33 entries", tallygate.Check{Entries: make([]tallygate.Entry, 33)}, tallygate.CodeBadRequest, "/entries"},
		{"cost beside entries", tallygate.Check{Entries: ask("r", "k", 1).Entries, Cost: 2}, tallygate.CodeBadRequest, "/cost"},
		{"unknown domain", tallygate.Check{Domain: "nowhere", Entries: ask("r", "k", 1).Entries}, tallygate.CodeUnknownDomain, "/domain"},
		{"unknown rule", ask("nope", "k", 1), tallygate.CodeUnknownRule, "/entries/0/rule"},
		{"rule of another domain", ask("by-user", "k", 1), tallygate.CodeUnknownRule, "/entries/0/rule"},
		{"second rule unknown", both("k", "r", "nope"), tallygate.CodeUnknownRule, "/entries/1/rule"},
		{"no key", tallygate.Check{Entries: []tallygate.Entry{{Rule: "r"}}}, tallygate.CodeBadRequest, "/entries/0/key"},
		{"empty key", ask("r", "", 1), tallygate.CodeBadRequest, "/entries/0/key"},
		{"half a key", tallygate.Check{Entries: []tallygate.Entry{{Rule: "composite", Key: key}}}, tallygate.CodeBadRequest, "/entries/0/key"},
		{"above max_cost", ask("r", "k", 11), tallygate.CodeInvalidCost, "/entries/0/cost"},
		{"look with a cost", tallygate.Check{Entries: []tallygate.Entry{{Rule: "r", Key: key, Cost: 1, Look: true}}}, tallygate.CodeInvalidCost, "/entries/0/cost"},
		{"attributes above max_cost", tallygate.Check{Attributes: map[string]string{"api_key": "k", "org": "o", "user": "u"}, Cost: 11}, tallygate.CodeInvalidCost, "/cost"},
		{"negative cost", tallygate.Check{Attributes: map[string]string{"api_key": "k"}, Cost: -1}, tallygate.CodeInvalidCost, "/cost"},
		{"missing identity", tallygate.Check{Domain: "users", Attributes: map[string]string{"plan": "free"}}, tallygate.CodeMissingIdentity, "/attributes"},
		{"long attribute", tallygate.Check{Domain: "users", Attributes: map[string]string{"user": strings.Repeat("u", 5000)}}, tallygate.CodeTooLarge, "/attributes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			fake := &fakeStore{}
			err := mustFail(t, withStore(t, newClock(), fake, set), test.check, test.code)
			if err.Field != test.field {
				t.Errorf("field %q, want %q (%v)", err.Field, test.field, err)
			}
			if calls, _ := fake.asked(); calls != 0 {
				t.Errorf("%d store calls", calls)
			}
		})
	}
}

// What a rule answers when the store does not: FLT-12 and HDR-08, as far as they
// are the limiter's.
func TestFailMode(t *testing.T) {
	t.Parallel()
	open, closed, shadow := bucket("open", 1, 1, 10), bucket("closed", 1, 1, 10), bucket("shadow", 1, 1, 10)
	alone, report := bucket("alone", 1, 1, 10), bucket("report", 1, 1, 10)
	alone.FailMode, alone.Counting = rules.FailClosed, rules.CountingLocal
	report.FailMode, report.Counting = rules.FailClosed, rules.CountingReport
	closed.FailMode = rules.FailClosed
	shadow.FailMode, shadow.Mode = rules.FailClosed, rules.ModeShadow
	allow := rules.Rule{ID: "allow", Action: rules.ActionAllow, CoversAll: true}
	set := rules.Set{Rules: []rules.Rule{open, closed, shadow, allow, alone, report}}
	away := &store.StoreError{Kind: store.Timeout, Down: time.Second, Err: errors.New("breaker open")}
	timeout := &store.StoreError{Kind: store.Timeout, Sent: true, Err: errors.New("slow")}
	unavailable := &store.StoreError{Kind: store.Unavailable, Err: errors.New("refused connection")}
	refused := fmt.Errorf("wrapped: %w", &store.StoreError{Kind: store.Refused, Err: errors.New("NOPERM")})
	tests := []struct {
		name     string
		ids      []string
		err      error
		degraded tallygate.Degraded
		code     tallygate.Code
	}{
		{"open, timeout", []string{"open"}, timeout, tallygate.DegradedTimeout, ""},
		{"open, unavailable", []string{"open"}, unavailable, tallygate.DegradedUnavailable, ""},
		{"open, refused", []string{"open"}, refused, tallygate.DegradedUnavailable, ""},
		{"open, some other error", []string{"open"}, errors.New("bug"), tallygate.DegradedUnavailable, ""},
		{"closed, timeout", []string{"closed"}, timeout, "", tallygate.CodeStoreTimeout},
		{"closed, unavailable", []string{"closed"}, unavailable, "", tallygate.CodeStoreUnavailable},
		{"closed, refused", []string{"closed"}, refused, "", tallygate.CodeStoreUnavailable},
		{"open, given up on", []string{"open"}, away, tallygate.DegradedUnavailable, ""},
		{"closed, given up on", []string{"closed"}, away, "", tallygate.CodeStoreUnavailable},
		{"what needs no store is not closed", []string{"open", "alone", "report"}, away, tallygate.DegradedUnavailable, ""},
		{"closed wins", []string{"open", "closed"}, timeout, "", tallygate.CodeStoreTimeout},
		{"shadow is never closed", []string{"open", "shadow", "allow"}, timeout, tallygate.DegradedTimeout, ""},
		{"too few grants", []string{"closed"}, nil, "", tallygate.CodeStoreUnavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := withStore(t, newClock(), &fakeStore{err: test.err}, set)
			if test.code != "" {
				if err := mustFail(t, l, both("k", test.ids...), test.code); err.Rule != "closed" {
					t.Errorf("rule %q, want closed", err.Rule)
				}
				return
			}
			v := mustCheck(t, l, both("k", test.ids...))
			if !v.Allow || v.Degraded != test.degraded || len(v.Entries) != len(test.ids) {
				t.Errorf("%+v, want degraded %s", v, test.degraded)
			}
			if v.Tightest != -1 && v.Entries[v.Tightest].Rule != "alone" {
				t.Errorf("%+v, want no headers but of what needs no store", v)
			}
			if e := v.Entries[0]; e.Counted || e.Source != tallygate.SourceFallback || string(e.Reason) != string(test.degraded) {
				t.Errorf("%+v, want no made-up numbers", e)
			}
		})
	}
}

// Where no store is needed, none that is away matters.
func TestNoStoreNeeded(t *testing.T) {
	t.Parallel()
	allow := rules.Rule{ID: "allow", Action: rules.ActionAllow, CoversAll: true}
	deny := rules.Rule{ID: "deny", Action: rules.ActionDeny, CoversAll: true}
	closed := bucket("closed", 1, 1, 10)
	closed.FailMode = rules.FailClosed
	fake := &fakeStore{err: errors.New("away")}
	l := withStore(t, newClock(), fake, rules.Set{Rules: []rules.Rule{allow, deny, closed}})
	if v := mustCheck(t, l, both("k", "allow")); !v.Allow {
		t.Errorf("%+v, want allow", v)
	}
	if v := mustCheck(t, l, both("k", "closed", "deny")); v.Allow || v.DeniedBy != "deny" || v.Entries[0].Source != tallygate.SourceNone {
		t.Errorf("%+v, want denied by deny", v)
	}
	if calls, _ := fake.asked(); calls != 0 {
		t.Errorf("%d store calls", calls)
	}
}

func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l := limiter(t, newClock(), bucket("r", 1, 1, 1))
	_, err := l.Check(ctx, ask("r", "k", 1))
	if tallygate.CodeOf(err) != tallygate.CodeCanceled || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	if v := mustCheck(t, l, ask("r", "k", 1)); !v.Allow {
		t.Error("the canceled check spent a token")
	}
}

// MEM-03: closing twice does no harm, use after it is an error and not a hang.
func TestMEM03(t *testing.T) {
	t.Parallel()
	l := limiter(t, newClock(), bucket("r", 1, 1, 1))
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := l.Check(context.Background(), ask("r", "k", 1)); !errors.Is(err, tallygate.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	if _, err := tallygate.New(tallygate.Config{}); err == nil {
		t.Error("New without rules succeeded")
	}
	snapshot := compile(t, epoch, rules.Set{Rules: []rules.Rule{window("r", limit.SlidingLog, 1, 60)}})
	l, err := tallygate.New(tallygate.Config{Rules: tallygate.Fixed(snapshot)})
	if err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, l, 2, ask("r", "k", 1)); got != 1 {
		t.Errorf("%d of 2 allowed with the defaults, want 1", got)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	err := &tallygate.Error{Code: tallygate.CodeInvalidCost, Field: "/cost", Message: "cost 2 is above 1", Err: errors.New("cause")}
	if got, want := err.Error(), "invalid_cost at /cost: cost 2 is above 1: cause"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := tallygate.CodeOf(fmt.Errorf("wrapped: %w", err)); got != tallygate.CodeInvalidCost {
		t.Errorf("CodeOf = %q", got)
	}
	if got := tallygate.CodeOf(errors.New("other")); got != "" {
		t.Errorf("CodeOf of another error = %q", got)
	}
}
